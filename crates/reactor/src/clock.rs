//! The one clock: nanoseconds of `CLOCK_MONOTONIC`, as a `u64`.
//!
//! A plain integer rather than `std::time::Instant`, because deadlines are shifted into wheel
//! slots and handed to the kernel, and an `Instant` shows neither its value nor its origin. The
//! count starts near boot and reaches 2^64 after 584 years, so every sum here saturates and
//! [`NEVER`], the largest value, is free to mean what it says.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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

/// `nanoseconds` as the kernel takes spans and moments.
#[cfg(not(all(test, loom)))]
pub(crate) fn timespec(nanoseconds: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
    }
}

/// A clock that stands still until it is set forward: the mock backend's.
///
/// Shared by the drivers of all carriers of a runtime. A driver with nothing to do sets it forward
/// to the moment it was to sleep until. That is wrong while something goes on that the drivers
/// cannot see: a call on a thread of its own, a peer that is no fiber. Whoever knows of such a
/// thing [holds](Virtual::hold) the time meanwhile.
///
/// ```
/// use carefree_reactor::{Driver, Idle, clock::Virtual};
/// use std::sync::Arc;
///
/// # fn main() -> std::io::Result<()> {
/// const HOUR: u64 = 3_600_000_000_000;
/// let clock = Arc::new(Virtual::new());
/// let mut driver = Driver::mock(42, Arc::clone(&clock), Arc::new(Idle::new()))?;
/// let start = driver.now();
/// driver.wait(Some(start + HOUR), &mut Vec::new());
/// assert_eq!(clock.now(), start + HOUR);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Virtual {
    now: AtomicU64,
    holds: AtomicUsize,
}

impl Virtual {
    /// A clock that shows one second, whenever and wherever it is made.
    pub const fn new() -> Self {
        Virtual { now: AtomicU64::new(1_000_000_000), holds: AtomicUsize::new(0) }
    }

    /// The time on this clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Sets it forward to `time`; never back, and never to [`NEVER`].
    pub fn set_forward(&self, time: u64) {
        if time != NEVER {
            self.now.fetch_max(time, Ordering::SeqCst);
        }
    }

    /// Keeps drivers from setting it forward until the result is dropped.
    pub fn hold(&self) -> Hold<'_> {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(self)
    }

    /// Whether somebody holds the time.
    pub fn is_held(&self) -> bool {
        self.holds.load(Ordering::SeqCst) > 0
    }
}

impl Default for Virtual {
    fn default() -> Self {
        Virtual::new()
    }
}

/// Time stands still while this lives. See [`Virtual::hold`].
#[derive(Debug)]
pub struct Hold<'c>(&'c Virtual);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
    }
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
