//! Waiting for what the kernel does not tell of: asking again and again.
//!
//! A lock of another process's on a file, a System V semaphore, the other end of a FIFO: there are
//! calls that wait for them and nothing else that does. On a thread for each, hundreds of fibers that
//! wait for one lock would keep as many threads, those too that the owner of the lock may need. So
//! a fiber tries without waiting, sleeps, and tries again, sleeping longer each time up to
//! [`LONGEST_SLEEP`]. Calls of this process's own that may end such a wait are seen, and wake it at once
//! ([`notify`](Polled::notify)).
//!
//! *No such wake-up is missed.* Who waits says so (`waiting`), reads the count of events, tries,
//! and parks only if the count is still the same, which is looked at when it can be unparked already.
//! Who lets it happen does so, looks whether somebody waits, then counts, then unparks. Both enter the
//! kernel, which deals with the lock (or whatever it is) under a lock of its own, in one order or the
//! other. If the try comes after the happening, it succeeds. If it comes before, all that the waiter
//! has written before it is seen by who comes after: that it waits, and so there is a count that has
//! changed or an unpark.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use carefree_runtime::clock;
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Outcome, Reason, lot};

use crate::call::answer::interruption;
use crate::wait::file_lock;

const SHORTEST_SLEEP: u64 = 200_000;
/// The longest a fiber sleeps before it asks again, in nanoseconds.
pub(crate) const LONGEST_SLEEP: u64 = 20_000_000;

/// What some fibers are waiting for in this way.
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

    /// Something may have become possible that fibers wait for.
    #[inline]
    pub(crate) fn notify(&'static self) {
        if self.is_waited() {
            self.note();
            lot::unpark(self.key(), usize::MAX);
        }
    }

    /// Counts a happening, after a look whether any fiber waits and before those are unparked that may go
    /// on: for a matter whose waiters have several keys.
    pub(crate) fn note(&self) {
        self.events.fetch_add(1, Ordering::AcqRel);
    }

    /// Calls `attempt` until it does not say `None`.
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
        self.poll_by(self.key(), reason, deadline, late, attempt)
    }

    /// [`poll`](Polled::poll), woken by `key`.
    pub(crate) fn poll_by<T>(
        &self,
        key: usize,
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
            let until = Until { deadline: (now + span).min(deadline), cancellable: true };
            let same = || self.events.load(Ordering::Acquire) == seen;
            let outcome = wait::park(key, same, reason, until);
            file_lock::count(outcome);
            if outcome == Outcome::TimedOut {
                span = (span * 2).min(LONGEST_SLEEP);
            }
            carefree_runtime::interrupted().map_err(interruption)?;
        }
    }
}

/// One that waits for a matter.
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
