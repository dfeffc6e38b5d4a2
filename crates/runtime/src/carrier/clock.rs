//! The clock that deadlines are on: the machine's, or a runtime's own.
//!
//! A runtime built with [`virtual_time`](crate::RuntimeBuilder::virtual_time) has a clock that stands
//! still while a fiber can run and jumps to the next deadline when all wait. All deadlines of its fibers
//! are on that clock, so whatever has one takes the time from here.

use std::time::Duration;

pub use carefree_reactor::clock::{NEVER, add, between, nanos};

use crate::carrier::carrier;
use crate::fiber::current::without_parking;
use crate::protocol::sync::clock as machine;

/// The time now, for the caller: nanoseconds on its runtime's clock if it is a fiber of one with
/// virtual time, else on `CLOCK_MONOTONIC`.
///
/// Also amid a wait that has begun: so libc's function is called, and not what stands in for it, which may handle
/// signals, whose handlers may wait themselves.
#[inline]
pub fn now() -> u64 {
    virtual_now().unwrap_or_else(|| without_parking(machine::now))
}

/// The virtual time, if the caller's is; in nanoseconds, from one second on.
#[inline]
pub fn virtual_now() -> Option<u64> {
    let time = carrier::here()?.virtual_time()?;
    Some(time.clock.now())
}

/// The moment at which a sleep until `deadline` ends: in 292 years at the latest, on the machine's clock. What waits for
/// ever may be deadlocked; a program that sleeps for ever, while handlers of signals do its work, is not. (Virtual time
/// never comes to [`NEVER`], and jumps to all before.)
pub fn some_time(deadline: u64) -> u64 {
    if virtual_now().is_some() { deadline } else { deadline.min(NEVER / 2) }
}

/// The moment `duration` from [`now`]; [`NEVER`] if the clock cannot count so far.
#[inline]
pub fn after(duration: Duration) -> u64 {
    add(now(), duration)
}
