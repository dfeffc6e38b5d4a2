//! The small waits of `std::thread`: yielding, sleeping, parking.

use std::time::Duration;

use crate::carrier;
use crate::clock;
use crate::reason::Reason;
use crate::wait::{self, Until};

/// Lets other fibers run. Returns at once if none is ready; on a plain thread, yields that.
#[inline]
pub fn yield_now() {
    let Some(me) = wait::current_fiber() else { return std::thread::yield_now() };
    let carrier = carrier::of(me);
    if !carrier.must_not_switch() {
        carrier::yield_from(me);
    }
}

/// Puts the calling fiber (or plain thread) to sleep for at least `duration`.
///
/// Cut short when the fiber is cancelled or a [`timeout`](crate::timeout) it is in ends.
pub fn sleep(duration: Duration) {
    wait::sleep_until(clock::after(duration), Reason::Sleep);
}

/// Waits until [`Fiber::unpark`](crate::Fiber::unpark) of the calling fiber (or plain thread), or
/// returns at once if that came before. May return early for no reason, as std's.
///
/// Cut short when the fiber is cancelled or a [`timeout`](crate::timeout) it is in ends.
pub fn park() {
    park_until(clock::NEVER);
}

/// [`park`] for at most `duration`.
pub fn park_timeout(duration: Duration) {
    park_until(clock::after(duration));
}

fn park_until(deadline: u64) {
    wait::park_self(Until { deadline, cancellable: true });
}
