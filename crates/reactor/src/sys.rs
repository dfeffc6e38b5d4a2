//! This crate's use of the kernel: a futex, a thread's timer slack, and the backends.
//!
//! System calls do not go through libc, whose functions Carefree interposes to park fibers: a carrier
//! that slept through one of these would enter the scheduler. See `carefree_ground`.

pub(crate) mod raw;

// Loom checks the protocol of `Idle`, which needs only a futex and a bell.
#[cfg(not(all(test, loom)))]
mod acceptor;
#[cfg(not(all(test, loom)))]
mod attempt;
#[cfg(not(all(test, loom)))]
pub(crate) mod epoll;
#[cfg(not(all(test, loom)))]
mod make_ring;
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

/// Makes the kernel end this thread's timed waits at most `nanoseconds` late instead of the default of
/// 50 us. (0 would restore the default.)
pub(crate) fn set_timer_slack(nanoseconds: usize) {
    // SAFETY: PR_SET_TIMERSLACK takes one number and accesses no memory.
    let _ = unsafe {
        raw::syscall(libc::SYS_prctl, [libc::PR_SET_TIMERSLACK as usize, nanoseconds, 0, 0, 0, 0])
    };
    // If a kernel or a seccomp filter refuses, waits are as late as those of any thread.
}
