//! System calls that no signal interrupts.
//!
//! Signals end no call of a fiber. Where the fiber parks that is so of itself; but a thread that makes
//! a call in its stead is interrupted like any other, and what moves data between two files (`sendfile`,
//! `splice`) looks for signals even where it does not wait, and then moves less or fails with `EINTR`.
//! To make such a call again would not do: a part may have been moved, and a time limit would begin
//! anew. So the signals are blocked for as long as the call takes.
//!
//! Not all of them: those that the call itself brings about (`SIGPIPE`, `SIGXFSZ`, a fault) must reach
//! the thread; a terminal answers a process from its background by another error if its signals are
//! blocked; and libc has the first three real-time signals for itself, one of which `setuid` waits for.
//!
//! Around one call alone, not for the pool's threads altogether: what is started by a function that is
//! offloaded inherits the mask.

use std::ffi::c_int;
use std::ptr;

use carefree_ground::kernel;

/// Bytes of the kernel's set of signals.
const SIZE: usize = size_of::<u64>();

/// Those that get through.
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

/// As [`carefree_runtime::offload`], for one system call: no signal interrupts it.
pub(crate) fn offload<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    carefree_runtime::offload(|| uninterrupted(call))
}

/// Makes a system call that signals of others do not interrupt. They come after it.
pub(crate) fn uninterrupted<R>(call: impl FnOnce() -> R) -> R {
    let _before = Before::new();
    call()
}

/// The thread's mask, to be put back.
struct Before(Option<u64>);

impl Before {
    fn new() -> Before {
        let (set, mut before) = (withheld(), 0u64);
        let place = (&raw mut before) as usize;
        let how = libc::SIG_BLOCK as usize;
        let arguments = [how, (&raw const set) as usize, place, SIZE, 0, 0];
        // SAFETY: two sets of signals.
        let blocked = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
        // Where that is denied, signals interrupt.
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
