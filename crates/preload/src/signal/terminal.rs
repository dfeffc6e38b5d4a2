//! Functions of libc's that change a terminal.
//!
//! The kernel stops a process in the background that does so, unless the thread blocks the signal for that. Carriers do
//! not block it, so it is blocked for the call where the calling thread blocks it.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use carefree_runtime::wait::without_parking;
use libc::{pid_t, termios};

use crate::signal::deliver;
use crate::signal::set::{bit, change_kernels};
use crate::thread::record::{self, set_errno};

/// Makes a call with the calling thread's mask, as far as terminals are concerned.
fn as_masked(call: impl FnOnce() -> c_int) -> c_int {
    let blocks =
        |record: &record::Record| record.mask.load(Ordering::SeqCst) & bit(libc::SIGTTOU) != 0;
    if record::current().is_none_or(|(_, record)| !blocks(record)) {
        let done = call();
        // The handler runs before the call returns.
        // SAFETY: the address of the caller's variable.
        if done != 0 && unsafe { *libc::__errno_location() } == libc::EINTR {
            deliver::settle();
            set_errno(libc::EINTR);
        }
        return done;
    }
    // (A caller that parked might go on on another kernel thread.)
    without_parking(|| {
        let before = change_kernels(libc::SIG_BLOCK, Some(bit(libc::SIGTTOU)));
        let done = call();
        change_kernels(libc::SIG_SETMASK, Some(before));
        done
    })
}

stand_in! {
    /// `tcsetpgrp(3)`.
    fn tcsetpgrp(file: c_int, group: pid_t) -> c_int {
        // SAFETY: the caller's arguments.
        as_masked(|| unsafe { next(file, group) })
    }

    /// `tcsetattr(3)`.
    fn tcsetattr(file: c_int, when: c_int, settings: *const termios) -> c_int {
        // SAFETY: the caller's arguments.
        as_masked(|| unsafe { next(file, when, settings) })
    }

    /// `tcflush(3)`.
    fn tcflush(file: c_int, which: c_int) -> c_int {
        // SAFETY: the caller's arguments.
        as_masked(|| unsafe { next(file, which) })
    }

    /// `tcflow(3)`.
    fn tcflow(file: c_int, how: c_int) -> c_int {
        // SAFETY: the caller's arguments.
        as_masked(|| unsafe { next(file, how) })
    }

    /// `tcsendbreak(3)`.
    fn tcsendbreak(file: c_int, duration: c_int) -> c_int {
        // SAFETY: the caller's arguments.
        as_masked(|| unsafe { next(file, duration) })
    }
}
