//! Counts of plain threads that wait without a time limit; and the search for deadlocks, for which such a
//! thread wakes now and then (a *look*: see `process::deadlock`).

use std::sync::OnceLock;
use std::time::Duration;

use crate::protocol::sync::{AtomicU64, AtomicUsize, Ordering};

/// Time between two looks of a thread.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Plain threads whose wait is without a time limit and has not been ended.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Such waits begun since the start of the process.
static WAITS: AtomicU64 = AtomicU64::new(0);

/// What a waiting thread has seen by its last look.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// A sum of switches and waits, if all runtimes were dormant: it changes when anything goes on.
    pub(crate) activity: Option<u64>,
    /// Looks in a row for which that has not changed.
    pub(crate) silent: u32,
}

/// `process::deadlock::look`: a module above this one.
static LOOKS: OnceLock<fn(&mut Seen)> = OnceLock::new();

/// Sets the function that looks.
pub(crate) fn set_look(look: fn(&mut Seen)) {
    // It is the same one each time.
    let _ = LOOKS.set(look);
}

/// Looks for a deadlock. (Before the first runtime there is nothing to look at.)
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

/// Such a wait was ended; called by the party that has ended it.
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
