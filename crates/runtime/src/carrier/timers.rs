//! Deadlines of waits: each carrier has a timing wheel, under a lock, for any carrier may take out the timer
//! of a wait that has ended, or fire the timers of a carrier that is busy.

use carefree_reactor::clock::NEVER;
use carefree_reactor::{TimerKey, Wheel};

use crate::fiber::header::FiberRef;
use crate::protocol::episode::Ticket;
use crate::protocol::sync::{AtomicU64, Lock, Ordering};

/// The timers of one carrier.
#[derive(Debug)]
pub(crate) struct Shard {
    wheel: Lock<Wheel<(FiberRef, Ticket)>>,
    /// No timer here is due before this time. Written under the lock.
    next: AtomicU64,
}

impl Shard {
    /// Without a timer. `now` is the time on the clock that the deadlines are on.
    pub(crate) fn new(now: u64) -> Self {
        Shard { wheel: Lock::new(Wheel::new(now)), next: AtomicU64::new(NEVER) }
    }

    /// Sets a timer that ends the wait `ticket` of `fiber`. Also returns whether it is due before all
    /// others here.
    pub(crate) fn insert(
        &self,
        deadline: u64,
        fiber: FiberRef,
        ticket: Ticket,
    ) -> (TimerKey, bool) {
        let mut wheel = self.wheel.lock();
        let key = wheel.insert(deadline, (fiber, ticket));
        let next = wheel.next_deadline().unwrap_or(NEVER);
        let first = next < self.next.load(Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        (key, first)
    }

    /// Takes a timer out, if it has not fired yet.
    pub(crate) fn remove(&self, key: TimerKey) {
        let mut wheel = self.wheel.lock();
        wheel.remove(key);
        if wheel.is_empty() {
            self.next.store(NEVER, Ordering::Relaxed);
        }
    }

    /// No timer here is due before this time.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Moves the waits whose deadlines have passed to `due`, for the caller to end them: that is done
    /// without the lock.
    pub(crate) fn expire(&self, now: u64, due: &mut Vec<(FiberRef, Ticket)>) {
        if self.next() > now {
            return;
        }
        let mut wheel = self.wheel.lock();
        wheel.expire(now, |wait| due.push(wait));
        self.next.store(wheel.next_deadline().unwrap_or(NEVER), Ordering::Relaxed);
    }
}
