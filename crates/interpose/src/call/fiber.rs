//! The caller of a stand-in: whether it is a fiber, and its floating-point control words.

use carefree_context::arch::FloatControl;

pub(crate) use carefree_runtime::wait::on_fiber;

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
