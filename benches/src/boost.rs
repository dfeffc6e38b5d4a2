//! Boost.Context and Boost.Fiber through the C++ shim, where they are installed.

/// What a crowd of fibers did.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Answer {
    /// Yields made, over all units.
    pub yields: u64,
    /// Yields after which another unit had run before the yielding one went on.
    pub switched: u64,
}

#[cfg(has_boost)]
mod shim {
    use super::Answer;
    use std::ffi::c_void;

    unsafe extern "C" {
        pub(super) safe fn boost_version() -> u32;
        pub(super) safe fn boost_context_rounds(rounds: u64) -> u64;
        pub(super) safe fn boost_fiber_crowd(units: usize, yields: u64) -> Answer;
        pub(super) safe fn boost_fiber_sleepers(units: usize, nanoseconds: u64) -> usize;
        pub(super) fn boost_fiber_parked(
            units: usize,
            look: extern "C" fn(*mut c_void),
            context: *mut c_void,
        ) -> usize;
    }
}

/// Boost's version, as in "1.74".
#[cfg(has_boost)]
pub fn version() -> String {
    let number = shim::boost_version();
    format!("{}.{}", number / 100_000, number / 100 % 1000)
}

/// `rounds` resumes of a `boost::context::fiber` and as many suspends. Returns the sum of
/// `round + 1` over all rounds.
#[cfg(has_boost)]
pub fn context_rounds(rounds: u64) -> u64 {
    shim::boost_context_rounds(rounds)
}

/// `units` fibers of `yields` yields each, started and joined.
#[cfg(has_boost)]
pub fn crowd(units: usize, yields: u64) -> Answer {
    shim::boost_fiber_crowd(units, yields)
}

/// `units` fibers that each sleep; returns how many slept at least that long.
#[cfg(has_boost)]
pub fn sleepers(units: usize, span: std::time::Duration) -> usize {
    let nanoseconds = u64::try_from(span.as_nanos()).expect("a sleep of less than 584 years");
    shim::boost_fiber_sleepers(units, nanoseconds)
}

/// Calls `look` while `units` fibers wait; returns how many did.
#[cfg(has_boost)]
pub fn parked(units: usize, look: &mut dyn FnMut()) -> usize {
    use std::ffi::c_void;

    extern "C" fn call(look: *mut c_void) {
        // SAFETY: `look` is the pointer passed below, and the shim calls only while that call
        // lasts. A panic ends the process at this `extern "C"` border, as it should.
        let look = unsafe { &mut *look.cast::<&mut dyn FnMut()>() };
        look();
    }
    let mut look = look;
    // SAFETY: `call` fits the pointer given, which outlives the call.
    unsafe { shim::boost_fiber_parked(units, call, (&raw mut look).cast()) }
}
