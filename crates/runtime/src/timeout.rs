//! A time limit on everything a piece of code waits for.

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::time::Duration;

use crate::clock::{self, NEVER};
use crate::fiber::FiberRef;
use crate::wait;

/// A limit in force: lies in the frame of the [`timeout`] that set it.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// When it ends, or an outer one does if that is earlier.
    at: u64,
    outer: Cell<*const Deadline>,
    /// A wait was cut short by it.
    cut: Cell<bool>,
}

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
    let me = wait::current();
    let outer = me.deadline.get();
    let own = clock::after(duration);
    let deadline = Deadline {
        // SAFETY: limits lie in frames of this fiber that are still alive.
        at: unsafe { outer.as_ref() }.map_or(own, |outer| own.min(outer.at)),
        outer: Cell::new(outer),
        cut: Cell::new(false),
    };
    let _lift = Lift(me, &deadline);
    me.deadline.set(&deadline);
    let value = f();
    if deadline.cut.get() { Err(TimedOut) } else { Ok(value) }
}

/// Takes a limit out of force, also when `f` panics.
///
/// It is the innermost one as a rule, but a limit set in a coroutine that was suspended under it can
/// end in any order with those of the fiber that resumes it.
struct Lift<'a>(FiberRef, &'a Deadline);

impl Drop for Lift<'_> {
    fn drop(&mut self) {
        let mut link = &self.0.deadline;
        // SAFETY: limits in force lie in frames that are alive.
        while let Some(limit) = unsafe { link.get().as_ref() } {
            if ptr::eq(limit, self.1) {
                link.set(limit.outer.get());
                return;
            }
            link = &limit.outer;
        }
    }
}

/// When the limits in force cut a wait short.
#[inline]
pub(crate) fn innermost(me: FiberRef, cancellable: bool) -> u64 {
    if !cancellable || me.deadline.get().is_null() {
        return NEVER;
    }
    // SAFETY: the limit lies in a frame of this fiber that is still alive.
    unsafe { (*me.deadline.get()).at }
}

/// A wait was cut short at `at`: notes it in every limit that ends then.
pub(crate) fn cut(me: FiberRef, at: u64) {
    let mut limit = me.deadline.get();
    // SAFETY: as above.
    while let Some(deadline) = unsafe { limit.as_ref() } {
        if deadline.at <= at {
            deadline.cut.set(true);
        }
        limit = deadline.outer.get();
    }
}
