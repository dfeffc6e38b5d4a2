//! System calls that no signal interrupts.
//!
//! Signals end no call of a fiber. While the fiber is parked, no signal reaches it. But a thread that makes
//! a call in its stead can be interrupted, and calls that move data between two files (`sendfile`,
//! `splice`) look for signals even where they do not wait: they then move less, or fail with `EINTR`.
//! Repeating such a call would be wrong: a part may have been moved, and a time limit would begin anew.
//! So signals are blocked while the call is made.
//!
//! Some are not blocked: those that the call itself raises (`SIGPIPE`, `SIGXFSZ`, a fault) must reach the
//! thread; a terminal answers a background process by another error if its signals are blocked; and libc
//! keeps the first real-time signals for itself, one of which `setuid` waits for.
//!
//! The mask is set around each call, not once for the threads of the pool: a process or a thread that an
//! offloaded function starts inherits it.

use std::ffi::c_int;
use std::ptr;

use carefree_ground::kernel;

/// Bytes of the kernel's set of signals.
const SIZE: usize = size_of::<u64>();

/// The signals that are not blocked.
const HEARD: [c_int; 14] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGPIPE,
    libc::SIGXFSZ,
    libc::SIGSYS,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    32,
    33,
];

const fn withheld() -> u64 {
    let mut set = u64::MAX;
    let mut at = 0;
    while at < HEARD.len() {
        set &= !(1 << (HEARD[at] - 1));
        at += 1;
    }
    set
}

/// [`carefree_runtime::offload`] for one system call, which no signal interrupts.
pub(crate) fn offload<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    carefree_runtime::offload(|| uninterrupted(call))
}

/// Makes a system call with signals blocked. They are delivered after it.
pub(crate) fn uninterrupted<R>(call: impl FnOnce() -> R) -> R {
    let _before = Before::new();
    call()
}

/// Makes a system call with these signals blocked as well.
pub(crate) fn blocking<R>(set: u64, call: impl FnOnce() -> R) -> R {
    let _before = Before::change(libc::SIG_BLOCK, set);
    call()
}

/// The thread's mask, to be put back.
struct Before(Option<u64>);

impl Before {
    fn new() -> Before {
        Before::change(libc::SIG_BLOCK, withheld())
    }

    fn change(how: c_int, set: u64) -> Before {
        let mut before = 0u64;
        let place = (&raw mut before) as usize;
        let arguments = [how as usize, (&raw const set) as usize, place, SIZE, 0, 0];
        // SAFETY: the kernel reads the one set and writes the other; both have `SIZE` bytes and are there during the call.
        let blocked = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
        // A sandbox may deny that. Then signals do interrupt.
        Before(blocked.is_ok().then_some(before))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let place = ptr::from_ref(before) as usize;
            let arguments = [libc::SIG_SETMASK as usize, place, 0, SIZE, 0, 0];
            // SAFETY: the mask that the thread had.
            let _ = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
        }
    }
}
