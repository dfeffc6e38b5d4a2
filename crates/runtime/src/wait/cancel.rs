//! Cooperative cancellation: it cuts waits short, and code that computes asks for it ([`check`]).

use std::fmt;

use crate::carrier::clock;
use crate::carrier::wake;
use crate::fiber::current::{current, try_current};
use crate::fiber::header::FiberRef;
use crate::wait::limits::{self, Limit};

/// The fiber was cancelled: see [`JoinHandle::cancel`](crate::JoinHandle::cancel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the fiber was cancelled")
    }
}

impl std::error::Error for Cancelled {}

impl From<Cancelled> for std::io::Error {
    fn from(_: Cancelled) -> Self {
        // The error of a system call that was cancelled; std has no kind for it.
        std::io::Error::from_raw_os_error(libc::ECANCELED)
    }
}

/// The time limit was reached: see [`timeout`](crate::timeout()).
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

/// Why a fiber should end what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// It was cancelled.
    Cancelled,
    /// A [`timeout`](crate::timeout) that it is within is over.
    TimedOut,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interrupted::Cancelled => Cancelled.fmt(out),
            Interrupted::TimedOut => TimedOut.fmt(out),
        }
    }
}

impl std::error::Error for Interrupted {}

impl From<Interrupted> for std::io::Error {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Cancelled => Cancelled.into(),
            Interrupted::TimedOut => TimedOut.into(),
        }
    }
}

/// Cancels `fiber`, and ends its wait if that can be cut short.
pub(crate) fn cancel(fiber: FiberRef) {
    fiber.cancel.send();
    wake::wake_cancelled(fiber);
}

/// Whether the calling fiber should go on: `Err` once it has been cancelled, or a
/// [`timeout`](crate::timeout) that it is within is over.
///
/// Within a [`shield`] only a `timeout` that is within it as well counts. Waits ask by themselves; loops that
/// compute for long should ask now and then.
///
/// # Errors
/// [`Interrupted`], with the reason.
pub fn check() -> Result<(), Interrupted> {
    interrupted().inspect_err(|why| {
        if *why == Interrupted::TimedOut {
            limits::tell_timed_out();
        }
    })
}

/// [`check`] for a call that may have something else to return. If it returns
/// [`Interrupted::TimedOut`] in the end, it calls [`tell_timed_out`](crate::tell_timed_out).
///
/// # Errors
/// [`Interrupted`], with the reason.
#[inline]
pub fn interrupted() -> Result<(), Interrupted> {
    let Some(me) = try_current() else { return Ok(()) };
    let in_force = limits::of(me);
    if !in_force.shielded && me.cancel.peek() {
        return Err(Interrupted::Cancelled);
    }
    if in_force.until != clock::NEVER && in_force.until <= clock::now() {
        return Err(Interrupted::TimedOut);
    }
    Ok(())
}

/// Runs `f` without interruption from outside: cancellation, and each [`timeout`](crate::timeout) that the call is
/// within, take effect after it. A `timeout` in `f` cuts short what it limits, as anywhere.
///
/// ```
/// let handle = carefree_runtime::spawn(|| {
///     carefree_runtime::shield(|| carefree_runtime::park()); // not cut short by `cancel`
///     carefree_runtime::check()
/// });
/// handle.cancel();
/// handle.thread().unpark();
/// assert!(handle.join().unwrap().is_err());
/// ```
pub fn shield<T>(f: impl FnOnce() -> T) -> T {
    Limit::shield().during(current(), f)
}
