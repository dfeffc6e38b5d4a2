//! The kernel, as far as this crate needs it: a futex, a thread's timer slack, and the backends.
//!
//! System calls are made here and not through `libc::syscall`, because Carefree interposes that
//! very symbol to let std's locks park fibers: a carrier that went to sleep through it would ask
//! itself whether it may sleep.

pub(crate) mod raw;

// Loom checks the idle word's protocol, which needs no more of the kernel than a futex and a bell.
#[cfg(not(all(test, loom)))]
mod acceptor;
#[cfg(not(all(test, loom)))]
mod attempt;
#[cfg(not(all(test, loom)))]
pub(crate) mod epoll;
#[cfg(not(all(test, loom)))]
pub(crate) mod mock;
#[cfg(not(all(test, loom)))]
mod poll;
#[cfg(not(all(test, loom)))]
pub(crate) mod uring;
#[cfg(not(all(test, loom)))]
mod waiting;

#[cfg(not(all(test, loom)))]
mod bell;
#[cfg(all(test, loom))]
#[path = "sys/bell_model.rs"]
mod bell;
#[cfg(not(all(test, loom)))]
mod futex;
#[cfg(all(test, loom))]
#[path = "sys/futex_model.rs"]
mod futex;

#[cfg(not(all(test, loom)))]
pub(crate) use attempt::{after_fork, attempt, before_fork};
pub(crate) use bell::Bell;
pub(crate) use futex::Futex;

/// Asks the kernel to end this thread's timed waits within `nanoseconds` of their time instead of
/// the usual 50 us. (0 would restore the usual.)
pub(crate) fn set_timer_slack(nanoseconds: usize) {
    // SAFETY: PR_SET_TIMERSLACK takes one number and touches no memory of ours.
    let _ = unsafe {
        raw::syscall(libc::SYS_prctl, [libc::PR_SET_TIMERSLACK as usize, nanoseconds, 0, 0, 0, 0])
    };
    // A kernel or a seccomp filter that refuses leaves waits as late as any thread's: no error.
}
