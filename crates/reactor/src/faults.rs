//! Kernel calls that fail on demand: for this crate's own tests, and only with the feature `faults`.
//!
//! Every system call of the crate asks the calling thread's plan first. What the `io-uring` crate
//! calls (set-up, registration, mapping) goes through libc's symbols; a test binary that defines
//! those can send them to [`call`], and so ask the plan too.

use std::cell::RefCell;

use crate::sys::raw;

/// Given a system call's number: the error to answer with instead of entering the kernel.
pub type Plan = Box<dyn FnMut(libc::c_long) -> Option<i32>>;

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

/// Gives the calling thread a plan, or none; returns the one it had.
pub fn set(plan: Option<Plan>) -> Option<Plan> {
    PLAN.with(|cell| cell.replace(plan))
}

/// What the plan has for this call.
pub(crate) fn next(number: libc::c_long) -> Option<i32> {
    // Without storage: the thread is ending. Borrowed: the plan itself makes a call.
    let ask = |cell: &RefCell<Option<Plan>>| cell.try_borrow_mut().ok()?.as_mut()?(number);
    PLAN.try_with(ask).ok()?
}

/// A system call that asks the plan first.
///
/// # Errors
/// The `errno` value that the plan or the kernel answered with.
///
/// # Safety
/// The arguments must be such that what the kernel does with them is sound.
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: the caller's promise.
    unsafe { raw::syscall(number, args) }
}
