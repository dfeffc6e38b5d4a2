//! The one clock: nanoseconds of `CLOCK_MONOTONIC`, as a `u64`.
//!
//! A plain integer rather than `std::time::Instant`, because deadlines are shifted into wheel
//! slots and handed to the kernel, and an `Instant` shows neither its value nor its origin. The
//! count starts near boot and reaches 2^64 after 584 years, so every sum here saturates and
//! [`NEVER`], the largest value, is free to mean what it says.

use std::time::Duration;

/// The deadline that never comes. Everything too far away to count saturates to it.
pub const NEVER: u64 = u64::MAX;

/// The time now: nanoseconds on `CLOCK_MONOTONIC`.
///
/// Never goes backwards on one thread, nor between two threads when one of the readings happens
/// before the other. Costs some 20 ns: libc answers it from the vDSO without entering the kernel.
#[inline]
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to for the length of the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // It fails only for a bad pointer or an unknown clock, and this is neither.
    debug_assert_eq!(failed, 0, "clock_gettime(CLOCK_MONOTONIC) failed");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `duration` in nanoseconds, [`NEVER`] when it is too long to count (584 years and up).
///
/// ```
/// use carefree_reactor::clock;
/// use std::time::Duration;
/// assert_eq!(clock::nanos(Duration::from_micros(3)), 3_000);
/// assert_eq!(clock::nanos(Duration::MAX), clock::NEVER);
/// ```
#[inline]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// The moment `duration` later than `time`, [`NEVER`] when that is beyond counting.
///
/// ```
/// use carefree_reactor::clock;
/// use std::time::Duration;
/// assert_eq!(clock::add(500, Duration::from_nanos(7)), 507);
/// assert_eq!(clock::add(500, Duration::MAX), clock::NEVER);
/// ```
#[inline]
pub fn add(time: u64, duration: Duration) -> u64 {
    time.saturating_add(nanos(duration))
}

/// The moment `duration` from now, [`NEVER`] when that is beyond counting.
#[inline]
pub fn after(duration: Duration) -> u64 {
    add(now(), duration)
}

/// How long from `from` until `to`; zero when `to` has passed, `Duration::MAX` when `to` is
/// [`NEVER`].
///
/// ```
/// use carefree_reactor::clock;
/// use std::time::Duration;
/// assert_eq!(clock::between(500, 507), Duration::from_nanos(7));
/// assert_eq!(clock::between(507, 500), Duration::ZERO);
/// assert_eq!(clock::between(500, clock::NEVER), Duration::MAX);
/// ```
#[inline]
pub fn between(from: u64, to: u64) -> Duration {
    if to == NEVER { Duration::MAX } else { Duration::from_nanos(to.saturating_sub(from)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_advances_with_the_standard_clock() {
        let (ours, theirs) = (now(), Instant::now());
        std::thread::sleep(Duration::from_millis(3));
        // Ours was read first at the start and last at the end, so it must span theirs.
        let elapsed = theirs.elapsed();
        assert!(between(ours, now()) >= elapsed);
    }

    #[test]
    fn nothing_overflows() {
        assert_eq!(nanos(Duration::from_nanos(u64::MAX - 1)), u64::MAX - 1);
        assert_eq!(nanos(Duration::from_secs(u64::MAX)), NEVER);
        assert_eq!(add(NEVER, Duration::from_nanos(1)), NEVER);
        assert_eq!(after(Duration::MAX), NEVER);
        assert_eq!(between(0, NEVER - 1), Duration::from_nanos(u64::MAX - 1));
    }
}
