//! A time limit on everything a piece of code waits for.

use std::time::Duration;

use crate::carrier::clock;
use crate::fiber::current::current;
use crate::wait::cancel::TimedOut;
use crate::wait::limits::Limit;

/// Runs `f`; whatever it still waits for when `duration` has passed is cut short.
///
/// `f` always runs to its end. Waits that are cut short return an error or, where they cannot, return
/// early; so do waits that begin later. `Err` says that this has happened. If it has not, the value of `f` is
/// returned, even if it took longer. Limits may be nested; the earliest counts. Like cancellation, a limit
/// does not end waits for locks, nor waits in a [`shield`](crate::shield) that is within the limit.
///
/// On a plain thread it limits the waits of this crate.
///
/// # What was received is not lost
///
/// A call decides by its result, not by the clock: one that has read bytes, accepted a connection or
/// taken a permit returns them, however late, and does not count as cut short. A call that has done a
/// part (a long write, `MSG_WAITALL`) returns how much; the next call is then cut short at once.
///
/// But if a call was cut short, `timeout` drops the value that `f` returns, and what `f` has gathered in it.
/// To keep that, gather it in a variable outside `f`, or use [`timeout_with_value`].
///
/// ```
/// use std::time::Duration;
/// use carefree_runtime::{sleep, timeout};
///
/// let slow = timeout(Duration::from_millis(5), || sleep(Duration::from_secs(3600)));
/// assert!(slow.is_err());
/// assert_eq!(timeout(Duration::from_secs(60), || 42), Ok(42));
/// ```
///
/// # Errors
/// [`TimedOut`] if at least one wait was cut short by this limit.
pub fn timeout<T>(duration: Duration, f: impl FnOnce() -> T) -> Result<T, TimedOut> {
    let (value, result) = timeout_with_value(duration, f);
    result.map(|()| value)
}

/// [`timeout`] that also returns the value of `f` if a wait was cut short: as a rule, a part of what was
/// wanted.
///
/// ```
/// use std::time::Duration;
/// use carefree_runtime::{Semaphore, timeout_with_value};
///
/// let permits = Semaphore::new(2);
/// let (taken, result) = timeout_with_value(Duration::from_millis(5), || {
///     let mut taken = Vec::new();
///     while let Ok(permit) = permits.acquire() {
///         taken.push(permit);
///     }
///     taken
/// });
/// assert!(result.is_err());
/// assert_eq!(taken.len(), 2);
/// ```
pub fn timeout_with_value<T>(
    duration: Duration,
    f: impl FnOnce() -> T,
) -> (T, Result<(), TimedOut>) {
    let me = current();
    let limit = Limit::until(clock::after(duration));
    let value = limit.during(me, f);
    (value, if limit.is_told() { Err(TimedOut) } else { Ok(()) })
}
