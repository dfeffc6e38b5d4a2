//! A counter of permits to wait for.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cancel::Interrupted;
use crate::episode::Outcome;
use crate::lot;
use crate::reason::Reason;
use crate::wait::{self, Until};

/// Lets a limited number in at once.
///
/// Who waits longest is served first. Works between fibers and plain threads.
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
    /// Free permits, times two; the lowest bit says that somebody may wait.
    state: AtomicUsize,
}

const WAITED_FOR: usize = 1;
const ONE: usize = 2;

impl Semaphore {
    /// A semaphore with `permits` free permits.
    ///
    /// # Panics
    /// If there are more than `usize::MAX / 4`.
    pub const fn new(permits: usize) -> Semaphore {
        assert!(permits <= usize::MAX / 4, "a semaphore has at most usize::MAX / 4 permits");
        Semaphore { state: AtomicUsize::new(permits * ONE) }
    }

    /// Takes a permit if one is free.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        let take = |state: usize| (state >= ONE).then(|| state - ONE);
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, take)
            .is_ok()
            .then_some(Permit { semaphore: self })
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// [`Interrupted`] when the fiber is cancelled, or a [`timeout`](crate::timeout) it is in ends,
    /// while no permit is free.
    pub fn acquire(&self) -> Result<Permit<'_>, Interrupted> {
        match self.wait(Until::WOKEN, Reason::Semaphore) {
            Outcome::Cancelled => Err(Interrupted::Cancelled),
            Outcome::TimedOut => Err(Interrupted::TimedOut),
            Outcome::Unparked | Outcome::Invalid => Ok(Permit { semaphore: self }),
        }
    }

    /// Takes a permit, waiting as `until` says. Any outcome but `Cancelled` and `TimedOut` means
    /// that one was taken.
    pub(crate) fn wait(&self, until: Until, reason: Reason) -> Outcome {
        loop {
            if let Some(permit) = self.try_acquire() {
                std::mem::forget(permit);
                return Outcome::Invalid;
            }
            // Under the lock of the list of waiters: says that somebody waits, unless a permit has
            // become free.
            let validate = || {
                let wait = |state: usize| (state < ONE).then_some(state | WAITED_FOR);
                self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, wait).is_ok()
            };
            match wait::park(self.key(), validate, reason, until) {
                // Woken: a permit was free just now, and may be somebody else's already.
                Outcome::Unparked | Outcome::Invalid => {}
                outcome => return outcome,
            }
        }
    }

    /// Free permits at this moment.
    pub fn available(&self) -> usize {
        self.state.load(Ordering::Relaxed) / ONE
    }

    /// Adds `count` permits, for those that were [forgotten](Permit::forget) or to raise the
    /// number.
    ///
    /// # Panics
    /// If there were more than `usize::MAX / 4` then.
    pub fn release(&self, count: usize) {
        let before = self.state.fetch_add(count.saturating_mul(ONE), Ordering::Release);
        assert!(
            count <= usize::MAX / 4 && before / ONE + count <= usize::MAX / 4,
            "a semaphore has at most usize::MAX / 4 permits"
        );
        if before & WAITED_FOR != 0 {
            // Cleared before they are woken: who has to wait again sets it again.
            self.state.fetch_and(!WAITED_FOR, Ordering::Relaxed);
            if lot::unpark(self.key(), count) == count {
                // There may be more of them.
                self.state.fetch_or(WAITED_FOR, Ordering::Relaxed);
            }
        }
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

/// A permit of a [`Semaphore`]; dropping it gives it back.
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
