//! The watchdog's threads.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_runtime::launch::launch_with_stack;

/// How many have been started, of three: the watchdog itself, `desk`'s and `rescue`'s.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Starts a thread that runs `f`, which does not return. False: no thread can be had.
///
/// The thread handles no signals but its own faults: a handler of the program's may allocate, or wait.
pub(super) fn start_thread(name: &str, f: impl FnOnce() + Send + 'static) -> bool {
    // Not the default: RUST_MIN_STACK is for fibers, too, and may be too little for this.
    const STACK: usize = 2 << 20;
    let runs = move || {
        let mut signals = MaybeUninit::uninit();
        // SAFETY: `signals` is written by the first call, and changed or read by the others.
        unsafe {
            libc::sigfillset(signals.as_mut_ptr());
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
                libc::sigdelset(signals.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, signals.as_ptr(), ptr::null_mut());
        }
        f();
    };
    let started = launch_with_stack(name, STACK, runs).is_ok();
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
