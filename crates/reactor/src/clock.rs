//! The one clock: nanoseconds of `CLOCK_MONOTONIC`, as a `u64`.
//!
//! A plain integer rather than `std::time::Instant`, because deadlines are shifted into wheel
//! slots and passed to the kernel, and an `Instant` shows neither its value nor its origin. The
//! count starts near boot and reaches 2^64 after 584 years, so sums saturate, and the largest value
//! can mean [`NEVER`].

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The deadline that never comes. Times too far away to count saturate to it.
pub const NEVER: u64 = u64::MAX;

/// The time now: nanoseconds on `CLOCK_MONOTONIC`.
///
/// Never goes backwards on one thread, nor between two threads if one of the readings happens
/// before the other. Costs some 20 ns: libc uses the vDSO and does not enter the kernel.
#[inline]
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `time`, a timespec.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // It can only fail for a bad pointer or an unknown clock.
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

/// The time `duration` after `time`; [`NEVER`] when that is too far to count.
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

/// The time `duration` from now; [`NEVER`] when that is too far to count.
#[inline]
pub fn after(duration: Duration) -> u64 {
    add(now(), duration)
}

/// The duration from `from` to `to`; zero when `to` is earlier, `Duration::MAX` when `to` is
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

/// `nanoseconds` in the kernel's form for durations and times.
#[cfg(not(all(test, loom)))]
pub(crate) fn timespec(nanoseconds: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as _,
        tv_nsec: (nanoseconds % 1_000_000_000) as _,
    }
}

/// The mock backend's clock, which stands still until it is set forward.
///
/// Shared by the drivers of all carriers of a runtime. Instead of sleeping until a time, a driver
/// with nothing to do sets the clock forward to that time. That is wrong while something is under
/// way that the drivers cannot see, such as a call on a separate thread or a peer that is not a
/// fiber. Code that knows of such a thing [holds](Virtual::hold) the time meanwhile.
///
/// ```
/// use carefree_reactor::{Driver, Idle, Shared, clock::Virtual};
/// use std::sync::Arc;
///
/// # fn main() -> std::io::Result<()> {
/// const HOUR: u64 = 3_600_000_000_000;
/// let clock = Arc::new(Virtual::new());
/// let mut driver = Driver::mock(42, Arc::clone(&clock), Shared::new(Idle::new()))?;
/// let start = driver.now();
/// driver.wait(Some(start + HOUR), &mut carefree_reactor::Completions::new());
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
    /// A clock that starts at one second.
    pub const fn new() -> Self {
        Virtual { now: AtomicU64::new(1_000_000_000), holds: AtomicUsize::new(0) }
    }

    /// The time on this clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Sets the clock forward to `time`; never back, and never to [`NEVER`].
    pub fn set_forward(&self, time: u64) {
        if time != NEVER {
            self.now.fetch_max(time, Ordering::SeqCst);
        }
    }

    /// Stops drivers from setting the clock forward until the result is dropped.
    pub fn hold(&self) -> Hold<'_> {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(self)
    }

    /// Whether a [`Hold`] exists.
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
    fn it_advances_with_instant() {
        let (ours, theirs) = (now(), Instant::now());
        std::thread::sleep(Duration::from_millis(3));
        // `now` was read first at the start and last at the end, so its span includes the other.
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
