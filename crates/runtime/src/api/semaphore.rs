//! A semaphore: a number of permits, to take, wait for and give back.

use std::fmt;

use crate::carrier::policy::UNPARKED;
use crate::protocol::episode::Outcome;
use crate::protocol::reason::Reason;
use crate::protocol::sync::{AtomicUsize, Ordering};
use crate::wait::cancel::Interrupted;
use crate::wait::limits;
use crate::wait::lot;
use crate::wait::park::{self, Until};

/// Limits how many fibers or threads do something at the same time.
///
/// A permit that is given back goes to the longest waiter, and no other can take it. Works between fibers
/// and plain threads.
///
/// ```
/// use carefree_runtime::Semaphore;
///
/// static DOOR: Semaphore = Semaphore::new(2);
/// let first = DOOR.acquire().unwrap();
/// let _second = DOOR.acquire().unwrap();
/// assert!(DOOR.try_acquire().is_none());
/// drop(first);
/// assert!(DOOR.try_acquire().is_some());
/// ```
pub struct Semaphore {
    /// Free permits, times [`ONE`], and [`WAITED_FOR`].
    ///
    /// A caller that finds no permit sets the flag when it enters the list of waiters, under the list's
    /// lock; the flag is cleared under the same lock when the list is empty. So the flag is set while any
    /// waits, and no permit is free while it is set: a permit that is given back then is handed over, under
    /// that lock.
    state: AtomicUsize,
}

/// In [`Semaphore::state`]: a fiber or thread may wait.
const WAITED_FOR: usize = 1;
const ONE: usize = 2;
const MAX: usize = usize::MAX / 4;
const FULL: &str = "a semaphore has at most usize::MAX / 4 permits";

impl Semaphore {
    /// A semaphore with `permits` free permits.
    ///
    /// # Panics
    /// If there are more than `usize::MAX / 4`.
    pub const fn new(permits: usize) -> Semaphore {
        assert!(permits <= MAX, "{}", FULL);
        Semaphore { state: AtomicUsize::new(permits * ONE) }
    }

    /// Takes a permit if one is free.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        let take = |state: usize| (state >= ONE).then(|| state - ONE);
        let taken = self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        // Not `then_some`, which would make a `Permit` in any case, and drop it.
        taken.is_ok().then(|| Permit { semaphore: self })
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// [`Interrupted`] when the fiber is cancelled, or a [`timeout`](crate::timeout) that it is within is
    /// over, while no permit is free.
    pub fn acquire(&self) -> Result<Permit<'_>, Interrupted> {
        match self.wait(Until::WOKEN, Reason::Semaphore) {
            Outcome::Cancelled => Err(Interrupted::Cancelled),
            Outcome::TimedOut => {
                limits::tell_timed_out();
                Err(Interrupted::TimedOut)
            }
            Outcome::Unparked | Outcome::Invalid => Ok(Permit { semaphore: self }),
        }
    }

    /// Waits for a permit and takes it, unless the outcome is `Cancelled` or `TimedOut`.
    pub(crate) fn wait(&self, until: Until, reason: Reason) -> Outcome {
        if let Some(permit) = self.try_acquire() {
            std::mem::forget(permit);
            return Outcome::Invalid;
        }
        // Called under the lock of the list of waiters: takes a permit that has become free, or sets the
        // flag.
        let validate = || {
            let take = |state: usize| if state >= ONE { state - ONE } else { state | WAITED_FOR };
            let found = self
                .state
                .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| Some(take(state)));
            found.is_ok_and(|state| state < ONE)
        };
        // A waiter that is unparked was handed a permit.
        park::park(self.key(), validate, reason, until)
    }

    /// Free permits at this moment.
    pub fn available(&self) -> usize {
        self.state.load(Ordering::Relaxed) / ONE
    }

    /// Adds `count` permits: gives back [forgotten](Permit::forget) ones, or raises the number.
    ///
    /// # Panics
    /// If there were more than `usize::MAX / 4` then.
    pub fn release(&self, count: usize) {
        assert!(count <= MAX, "{FULL}");
        let mut state = self.state.load(Ordering::Relaxed);
        while state & WAITED_FOR == 0 {
            assert!(state / ONE + count <= MAX, "{FULL}");
            let more = state + count * ONE;
            match self.state.compare_exchange_weak(
                state,
                more,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        self.hand_over(count);
    }

    #[cold]
    fn hand_over(&self, count: usize) {
        let mut fits = true;
        lot::unpark_then(self.key(), count, UNPARKED, |woken, others| {
            // Permits are left over only if none waits any more: the flag and free permits exclude each other.
            let flag = if others() { WAITED_FOR } else { 0 };
            let add = |state: usize| {
                // Others may have been released since the caller looked.
                let free = state / ONE + (count - woken);
                (free <= MAX).then_some((free * ONE) | flag)
            };
            fits = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, add).is_ok();
        });
        assert!(fits, "{FULL}");
    }

    fn key(&self) -> usize {
        (&raw const self.state) as usize
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Semaphore").field("available", &self.available()).finish()
    }
}

/// A permit of a [`Semaphore`], given back when it is dropped.
#[derive(Debug)]
#[must_use = "the permit is given back when this is dropped"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
}

impl Permit<'_> {
    /// Keeps the permit for ever, or until [`Semaphore::release`].
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.release(1);
    }
}
