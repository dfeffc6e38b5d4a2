//! A time limit on everything a piece of code waits for.

use std::fmt;
use std::time::Duration;

use crate::clock;
use crate::limits::{self, Limit};
use crate::wait;

/// The time limit was reached: see [`timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the time limit was reached")
    }
}

impl std::error::Error for TimedOut {}

impl From<TimedOut> for std::io::Error {
    fn from(timed_out: TimedOut) -> Self {
        std::io::Error::new(std::io::ErrorKind::TimedOut, timed_out)
    }
}

/// Runs `f`; whatever it still waits for when `duration` has passed is cut short.
///
/// `f` always runs to its end: waits that are cut short return an error or, where none can be
/// returned, return early, and so do those that begin later. `Err` says that this has happened; if
/// `f` came through without it, its value is returned even if it took longer. Limits may be nested,
/// the earliest counts. Like cancellation, a limit does not end waits for locks, nor waits within
/// [`shield`](crate::shield).
///
/// On a plain thread it limits Carefree's own waits alike.
///
/// # What was received is not lost
///
/// A call decides by its result, not by the clock: one that has read bytes, accepted a connection or
/// taken a permit returns them, however late, and does not count as cut short. A call that has done a
/// part (a long write, `MSG_WAITALL`) returns how much; the next call is then cut short at once.
///
/// What `f` itself has gathered before one of its calls was cut short is another matter: `timeout`
/// drops the value that `f` returns then. To keep it, gather it in a variable outside `f`, or use
/// [`timeout_with_value`].
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

/// [`timeout`], but returns what `f` returned even if a wait was cut short: a part of what was wanted,
/// as a rule.
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
    let me = wait::current();
    let limit = Limit::until(clock::after(duration));
    let value = limit.during(me, f);
    (value, if limit.is_told() { Err(TimedOut) } else { Ok(()) })
}

/// Takes note that a call of the running fiber tells its caller that it was cut short by a limit: every
/// [`timeout`] that ends at the limit's time returns `Err`.
///
/// For those who build calls on [`park`](wait::park) and [`operation`](crate::operation): a wait that was
/// cut short is not the end of a call that has something to return all the same. So the waits do not
/// take note themselves; the call does, when nothing but the limit is left to be told.
#[cold]
pub fn tell_timed_out() {
    if let Some(me) = wait::try_current() {
        limits::tell(me);
    }
}
