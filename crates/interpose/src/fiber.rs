//! What every stand-in needs to know of who calls it.

use std::ffi::c_int;

use carefree_context::arch::FloatControl;

pub(crate) use carefree_runtime::wait::on_fiber;

use crate::parking::told;

/// Sets the caller's `errno`.
#[inline]
pub(crate) fn set_errno(errno: c_int) {
    let errno = told(errno);
    // SAFETY: the address of a variable of the calling thread or fiber. It is asked for anew each time: after a wait, the caller may be on another
    // carrier, and in shared mode even its `errno` is that carrier's.
    unsafe { *libc::__errno_location() = errno };
}

/// What a function of libc returns for the kernel's answer: the number, or -1 with `errno` set.
#[inline]
pub(crate) fn answer(returned: Result<usize, c_int>) -> isize {
    match returned {
        Ok(number) => number as isize,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// Puts the default floating-point control words in force; returns those to put back.
#[inline(always)]
pub(crate) fn set_float() -> FloatControl {
    let control = FloatControl::current();
    if !control.is_default() {
        // SAFETY: the default ones.
        unsafe { FloatControl::DEFAULT.put_in_force() };
    }
    control
}

/// Puts the caller's control words back in force.
#[inline(always)]
pub(crate) fn reset_float(control: FloatControl) {
    if !control.is_default() {
        // SAFETY: those that the caller had set.
        unsafe { control.put_in_force() };
    }
}

/// Calls `f`, which may park, under the default floating-point control words.
#[inline(always)]
pub(crate) fn guarded<R>(f: impl FnOnce() -> R) -> R {
    let control = set_float();
    let result = f();
    reset_float(control);
    result
}
