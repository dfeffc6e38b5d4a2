//! Times on C's clocks as deadlines on the runtime's. (Spans of time: `duration`.)

use std::ffi::c_int;

use carefree_runtime::clock::{self, NEVER};

use crate::call::user::User;

/// The clock that a time refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Monotonic,
    /// Users and time servers set it. A deadline on it is computed as if it were not set before then. (The
    /// kernel would notice.)
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
/// `EINVAL` when its nanoseconds are negative or make a second.
fn nanoseconds(time: &libc::timespec) -> Result<i128, c_int> {
    if !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    Ok(i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec))
}

fn clamp(nanoseconds: i128) -> u64 {
    u64::try_from(nanoseconds.max(0)).unwrap_or(NEVER)
}

/// [`absolute`] of a time that the caller of a lock's function has given, which libc's reads unasked.
///
/// # Errors
/// As for that.
pub(crate) fn absolute_of(time: User<libc::timespec>, clock: Clock) -> Result<u64, c_int> {
    // SAFETY: libc's function would read it unasked.
    absolute(&unsafe { time.read_seen() }, clock)
}

/// Whether the caller of a lock's function has given a time, for functions that ask that first, also where they need not
/// wait.
///
/// # Errors
/// `EINVAL` if not.
pub(crate) fn check_of(time: User<libc::timespec>) -> Result<(), c_int> {
    // SAFETY: libc's function would read it unasked.
    nanoseconds(&unsafe { time.read_seen() }).map(drop)
}

/// The moment at which `clock` shows `time`. A negative time is in the past, as for libc's locks.
///
/// # Errors
/// `EINVAL` when it is not a time.
pub(crate) fn absolute(time: &libc::timespec, clock: Clock) -> Result<u64, c_int> {
    let moment = nanoseconds(time)?;
    match clock {
        Clock::Monotonic => Ok(clamp(moment)),
        Clock::Realtime => {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: there is room for the time.
            unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
            Ok(clamp(i128::from(clock::now()) + moment - nanoseconds(&now)?))
        }
    }
}
