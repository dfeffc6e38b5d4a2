//! Calls on a file that a thread of the offload pool makes.

use std::ffi::c_int;

use carefree_runtime::waiters::Seat;

use crate::call::answer::Answer;
use crate::call::uninterrupted::uninterrupted;
use crate::descriptor::Waiter;
use carefree_runtime::offload_unchecked;

/// Has a thread of the pool make a call on `fd`.
///
/// Until the call begins, a `close` of `fd` waits for it, and makes it fail: so it is not made on another
/// file that has been given the number meanwhile.
pub(crate) fn on_file(fd: c_int, call: impl FnOnce() -> Answer + Send) -> Answer {
    let seat = Seat::new();
    let waiter = Waiter::new(fd, &seat).ok_or(libc::EBADF)?;
    on_file_of(waiter, call)
}

/// [`on_file`] for a fiber that has registered as a waiter already. The waiter is dropped when the call
/// begins.
pub(crate) fn on_file_of(waiter: Waiter, call: impl FnOnce() -> Answer + Send) -> Answer {
    let call = move || {
        let holds = waiter.holds();
        drop(waiter);
        if holds { call() } else { Err(libc::EBADF) }
    };
    // SAFETY: a call that may be sent, and a waiter, which may leave on any thread: its seat stays until
    // the call is over.
    unsafe { offload_unchecked(|| uninterrupted(call)) }
}
