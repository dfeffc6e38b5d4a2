//! How many plain threads wait without a time limit, and the look at whether any of them can ever go
//! on, which such a thread takes once in a while.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Time between two looks of a thread.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Plain threads that wait without a time limit, and whose wait was not ended.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Such waits begun since the start of the process.
static WAITS: AtomicU64 = AtomicU64::new(0);

/// What a waiting thread's look before has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Switches made so far, if all runtimes were dormant.
    pub(crate) activity: Option<u64>,
    /// Looks without any sign of life.
    pub(crate) silent: u32,
}

/// What looks: a module above this one.
static LOOKS: OnceLock<fn(&mut Seen)> = OnceLock::new();

/// Says what looks, once in a process.
pub(crate) fn set_look(look: fn(&mut Seen)) {
    // The same one each time.
    let _ = LOOKS.set(look);
}

/// Takes a look. (Before the first runtime there is nothing to be seen.)
pub(crate) fn look(seen: &mut Seen) {
    if let Some(look) = LOOKS.get() {
        look(seen);
    }
}

/// A plain thread is about to wait without a time limit.
pub(crate) fn thread_waits() {
    WAITS.fetch_add(1, Ordering::SeqCst);
    WAITING.fetch_add(1, Ordering::SeqCst);
}

/// Its wait was ended.
pub(crate) fn thread_woken() {
    WAITING.fetch_sub(1, Ordering::SeqCst);
}

/// Plain threads that wait without a time limit.
pub(crate) fn waiting() -> usize {
    WAITING.load(Ordering::SeqCst)
}

/// Such waits begun since the start of the process.
pub(crate) fn waits() -> u64 {
    WAITS.load(Ordering::SeqCst)
}

/// Forgets the threads that wait: in the child of a fork.
pub(crate) fn renew() {
    WAITING.store(0, Ordering::SeqCst);
}
