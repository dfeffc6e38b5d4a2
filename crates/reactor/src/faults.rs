//! Kernel calls that fail on demand: for this crate's own tests, and only with the feature `faults`.
//!
//! Every system call of the crate asks the calling thread's plan first. What the `io-uring` crate
//! calls (set-up, registration, mapping) goes through libc's symbols; a test binary that defines
//! those can send them to [`call`], and so ask the plan too.

use std::cell::Cell;
use std::mem;

use crate::sys::raw;

/// Given a system call's number: the error to answer with instead of entering the kernel.
pub type Plan = Box<dyn FnMut(libc::c_long) -> Option<i32>>;

thread_local! {
    /// The plan is leaked, so that this variable has no destructor: the runtime makes system calls on
    /// a fiber whose destructors have been run, and what is registered then would be run again by the
    /// next fiber that gets the storage.
    static PLAN: Cell<Option<&'static mut Plan>> = const { Cell::new(None) };
}

/// Gives the calling thread a plan, or none; returns the one it had.
pub fn set(plan: Option<Plan>) -> Option<Plan> {
    let plan = plan.map(|plan| Box::leak(Box::new(plan)));
    let before = PLAN.replace(plan)?;
    Some(mem::replace(before, Box::new(|_| None)))
}

/// What the plan has for this call.
pub(crate) fn next(number: libc::c_long) -> Option<i32> {
    // Not there while it is asked: it may make calls itself.
    let plan = PLAN.take()?;
    let answer = plan(number);
    PLAN.set(Some(plan));
    answer
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
