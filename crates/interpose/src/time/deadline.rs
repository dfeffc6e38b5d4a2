//! Times on C's clocks, as deadlines on the runtime's. (How long: `span`.)

use std::ffi::c_int;

use carefree_runtime::clock::{self, NEVER};

/// The clock that a time refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Monotonic,
    /// Set by people and time servers: a deadline on it is where it would be if it went on as it
    /// does now. (The kernel would notice that it was set during the wait.)
    Realtime,
}

impl Clock {
    /// # Errors
    /// `EINVAL` for a clock that libc's timed locks do not know either.
    pub(crate) fn from_id(id: libc::clockid_t) -> Result<Clock, c_int> {
        match id {
            libc::CLOCK_MONOTONIC => Ok(Clock::Monotonic),
            libc::CLOCK_REALTIME => Ok(Clock::Realtime),
            _ => Err(libc::EINVAL),
        }
    }
}

/// `time` in nanoseconds.
///
/// # Errors
/// `EINVAL` when its nanoseconds are no part of a second.
fn nanoseconds(time: &libc::timespec) -> Result<i128, c_int> {
    if !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    Ok(i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec))
}

fn clamp(nanoseconds: i128) -> u64 {
    u64::try_from(nanoseconds.max(0)).unwrap_or(NEVER)
}

/// The moment `time`, a reading of `clock`. In the past if it is negative, as libc's locks have it.
///
/// # Errors
/// `EINVAL` when it is not a time.
pub(crate) fn absolute(time: &libc::timespec, clock: Clock) -> Result<u64, c_int> {
    let moment = nanoseconds(time)?;
    match clock {
        Clock::Monotonic => Ok(clamp(moment)),
        Clock::Realtime => {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: writes the time.
            unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
            Ok(clamp(i128::from(clock::now()) + moment - nanoseconds(&now)?))
        }
    }
}
