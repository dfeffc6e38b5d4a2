//! The watchdog's threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_runtime::launch::launch_undisturbed;

/// How many have been started, of two: the watchdog itself and `desk`'s.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Starts a thread that runs `f`, which does not return. False: no thread can be had.
///
/// The thread handles no signals but its own faults: a handler of the program's may allocate, or wait.
pub(super) fn start_thread(name: &str, f: impl FnOnce() + Send + 'static) -> bool {
    let started = launch_undisturbed(name, f).is_ok();
    if started {
        THREADS.fetch_add(1, Ordering::SeqCst);
    }
    started
}

/// Threads of the watchdog.
pub(crate) fn threads() -> usize {
    THREADS.load(Ordering::SeqCst)
}

/// Forgets them: in the child of a fork.
pub(super) fn renew() {
    THREADS.store(0, Ordering::SeqCst);
}
