//! The small waits of `std::thread`: sleeping, parking.

use std::time::{Duration, Instant};

use crate::carrier::clock;
use crate::protocol::reason::Reason;
use crate::wait::park::{self, Until};

/// Puts the calling fiber (or plain thread) to sleep for at least `duration`.
///
/// Cut short when the fiber is cancelled or a [`timeout`](crate::timeout) that it is within is over.
pub fn sleep(duration: Duration) {
    park::sleep_until(clock::some_time(clock::after(duration)), Reason::Sleep);
}

/// [`sleep`] for a number of milliseconds.
#[deprecated(note = "replaced by `sleep`, as in `std::thread`")]
pub fn sleep_ms(ms: u32) {
    sleep(Duration::from_millis(u64::from(ms)));
}

/// Puts the calling fiber (or plain thread) to sleep until `deadline` has passed.
///
/// Cut short as [`sleep`] is. (`std::thread::sleep_until` is not stable yet.)
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// carefree_runtime::run(|| carefree_runtime::sleep_until(deadline));
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until(deadline: Instant) {
    sleep(deadline.saturating_duration_since(Instant::now()));
}

/// Waits until [`Thread::unpark`](crate::Thread::unpark) of the calling fiber (or plain thread), or
/// returns at once if that came before. May return early for no reason, as std's.
///
/// Cut short when the fiber is cancelled or a [`timeout`](crate::timeout) that it is within is over.
pub fn park() {
    park_until(clock::NEVER);
}

/// [`park`] for at most `duration`.
pub fn park_timeout(duration: Duration) {
    park_until(clock::after(duration));
}

/// [`park_timeout`] for a number of milliseconds.
#[deprecated(note = "replaced by `park_timeout`, as in `std::thread`")]
pub fn park_timeout_ms(ms: u32) {
    park_timeout(Duration::from_millis(u64::from(ms)));
}

fn park_until(deadline: u64) {
    park::park_self(Until { deadline, cancellable: true });
}
