//! The caller of a stand-in: whether it is a fiber, and its floating-point control words and exceptions.

use carefree_context::arch::{FloatControl, FloatState};

pub(crate) use carefree_runtime::wait::on_fiber;

/// Puts the default floating-point control words in force; returns what is to be put back.
#[inline(always)]
pub(crate) fn set_float() -> FloatState {
    let state = FloatState::current();
    if !state.control().is_default() {
        // SAFETY: the default ones.
        unsafe { FloatControl::DEFAULT.put_in_force() };
    }
    state
}

/// Puts the caller's control words back in force, and has just the exceptions raised that the caller has: fibers that ran
/// meanwhile have raised others.
#[inline(always)]
pub(crate) fn reset_float(state: FloatState) {
    // SAFETY: what the caller had set.
    unsafe { state.put_in_force() };
}

/// Calls `f`, which may park, under the default floating-point control words.
#[inline(always)]
pub(crate) fn guarded<R>(f: impl FnOnce() -> R) -> R {
    let control = set_float();
    let result = f();
    reset_float(control);
    result
}
