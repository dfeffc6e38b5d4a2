//! Polling: waiting for events that the kernel does not report.
//!
//! For a lock that another process holds on a file, for a child, for the other end of a FIFO
//! there are calls that block, and nothing else. If each were made by a thread, hundreds of fibers that
//! wait for one lock would keep as many threads of the pool, and the lock's owner might need one. So a
//! fiber tries without waiting, sleeps, and tries again; each sleep is longer, up to [`LONGEST_SLEEP`].
//! A call of this process that may end such a wait is seen, and ends the sleep at once
//! ([`notify`](Polled::notify)).
//!
//! *No such wake-up is missed.* The waiter registers (`waiting`), reads the count of events, tries, and
//! parks only if the count has not changed, which it checks when an unpark can reach it already. The
//! notifier makes its call, looks whether there are waiters, counts the event, and unparks. Both enter the
//! kernel, which handles the lock (or whatever it is) under a lock of its own, one after the other. If the
//! try comes second, it succeeds. If it comes first, the notifier sees all that the waiter has written
//! before it: it sees a waiter, so it changes the count or its unpark arrives.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use carefree_runtime::clock;
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Outcome, Reason, lot};

use crate::call::answer::check_cut;
use crate::call::host;
use crate::wait::file_lock;

/// The first sleep, in nanoseconds.
pub(crate) const SHORTEST_SLEEP: u64 = 200_000;
/// The longest a fiber sleeps before it asks again, in nanoseconds.
pub(crate) const LONGEST_SLEEP: u64 = 20_000_000;

/// An event that fibers wait for by polling.
#[derive(Debug)]
pub(crate) struct Polled {
    events: AtomicU32,
    waiting: AtomicUsize,
}

impl Polled {
    pub(crate) const fn new() -> Polled {
        Polled { events: AtomicU32::new(0), waiting: AtomicUsize::new(0) }
    }

    fn key(&'static self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Whether any fiber waits for it.
    #[inline]
    pub(crate) fn is_waited(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// The event may have happened: wakes its waiters.
    #[inline]
    pub(crate) fn notify(&'static self) {
        if self.is_waited() {
            self.note();
            lot::unpark(self.key(), usize::MAX);
        }
    }

    /// Counts the event, for callers that unpark by several keys: after a look whether any fiber waits, and
    /// before they unpark.
    pub(crate) fn note(&self) {
        self.events.fetch_add(1, Ordering::AcqRel);
    }

    /// Calls `attempt` until it returns something.
    ///
    /// # Errors
    /// When the fiber is interrupted, or `deadline` has passed (`late`).
    pub(crate) fn poll<T>(
        &'static self,
        reason: Reason,
        deadline: u64,
        late: c_int,
        attempt: impl FnMut() -> Option<T>,
    ) -> Result<T, c_int> {
        self.poll_by(self.key(), false, reason, deadline, late, attempt)
    }

    /// [`poll`](Polled::poll), woken by `key`, for a call that may be [steady](host::can_be_cut).
    pub(crate) fn poll_by<T>(
        &self,
        key: usize,
        steady: bool,
        reason: Reason,
        deadline: u64,
        late: c_int,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Result<T, c_int> {
        if let Some(done) = attempt() {
            return Ok(done);
        }
        let _counted = Waiting::new(self);
        let mut span = SHORTEST_SLEEP;
        loop {
            let seen = self.events.load(Ordering::Acquire);
            if let Some(done) = attempt() {
                return Ok(done);
            }
            let now = clock::now();
            if now >= deadline {
                return Err(late);
            }
            let cancellable = host::can_be_cut(steady);
            let until = Until { deadline: (now + span).min(deadline), cancellable };
            let same = || self.events.load(Ordering::Acquire) == seen;
            let outcome = wait::park(key, same, reason, until);
            file_lock::count(outcome);
            if outcome == Outcome::TimedOut {
                span = (span * 2).min(LONGEST_SLEEP);
            }
            check_cut(outcome, steady)?;
        }
    }
}

/// A registered waiter.
struct Waiting<'m>(&'m Polled);

impl<'m> Waiting<'m> {
    fn new(matter: &'m Polled) -> Waiting<'m> {
        matter.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(matter)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
