//! Calls on a file that a thread of the offload pool makes.

use std::ffi::c_int;

use carefree_runtime::waiters::Seat;

use crate::call::answer::Answer;
use crate::call::uninterrupted::offload;
use crate::descriptor::Waiter;

/// Has a thread of the pool make a call on `fd`.
///
/// As long as the call has not begun, who closes `fd` waits, and the call then fails: it is not made
/// on a file that has got the number meanwhile.
///
/// # Safety
/// `call` may run on another thread.
pub(crate) unsafe fn on_file(fd: c_int, call: impl FnOnce() -> Answer) -> Answer {
    let seat = Seat::new();
    let waiter = Waiter::new(fd, &seat).ok_or(libc::EBADF)?;
    // SAFETY: the caller's promise.
    unsafe { on_file_of(waiter, call) }
}

/// [`on_file`], for who is among those who wait on the file already, and leaves when the call begins.
///
/// # Safety
/// As for that.
pub(crate) unsafe fn on_file_of(waiter: Waiter, call: impl FnOnce() -> Answer) -> Answer {
    let call = move || {
        let holds = waiter.holds();
        drop(waiter);
        if holds { call() } else { Err(libc::EBADF) }
    };
    // SAFETY: the caller's promise; a waiter may leave on any thread, and its seat stays until the
    // call is over.
    unsafe { offload(call) }
}
