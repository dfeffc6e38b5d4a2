//! Deadlines of waits: each carrier has a timing wheel, under a lock, for any carrier may take out the timer
//! of a wait that has ended, or fire the timers of a carrier that is busy.
//!
//! A runtime can have a thousand carriers, of which few have timers as a rule. These are in a [`Set`], so a
//! look for what is due costs as much as there are carriers with timers.
//!
//! # Proof that no carrier with a timer is missing from the set
//!
//! A carrier's place in the set changes under the lock of its wheel alone: an insertion puts it there
//! unless `listed` says that it is, and [`expire`](Shard::expire) takes it out where the wheel is empty. So
//! while the lock is free, a carrier whose wheel has a timer is in the set. (One whose last timer was taken
//! out stays there until the next look at it: a carrier that sets a timer for each of its waits, and takes
//! it out again, pays for the set once a look.)
//!
//! # Which carrier wakes for a timer
//!
//! The one whose it is, if it is down. For carriers that are up or in reserve, and may be kept by a fiber, one that
//! sleeps wakes when the timer is late by [`LATE`](crate::carrier::policy::LATE), and so does one that dozes,
//! unless another does already; carriers that run look at others' late timers now and then. For carriers that are
//! down, which may get up and be kept, it wakes [`STAGGER`](crate::carrier::policy::STAGGER) later.
//!
//! A thread that finds a carrier in the set finds `next` at least as recent: it is stored before the
//! place changes. A carrier that goes to sleep looks for the earliest timer after its heavy fence (the last one after
//! a plain one, where the others see it when they get up: see `protocol::sleepers`), and what
//! sets one looks for sleepers after its light fence, both stores before it: either the sleeper sees the
//! timer, or the other sees the sleeper (see `Shared::sooner`).

use carefree_ground::mapped::Mapped;
use carefree_reactor::clock::NEVER;
use carefree_reactor::{TimerKey, Wheel};

use crate::carrier::policy;
use crate::fiber::header::FiberRef;
use crate::protocol::episode::Ticket;
use crate::protocol::set::Set;
use crate::protocol::sync::{AtomicU64, Lock, Ordering};

/// The timers of one carrier.
#[derive(Debug)]
pub(crate) struct Shard {
    timers: Lock<Timers>,
    /// No timer here is due before this time. Written under the lock.
    next: AtomicU64,
    /// Its carrier's number.
    carrier: usize,
}

#[derive(Debug)]
struct Timers {
    wheel: Wheel<(FiberRef, Ticket)>,
    /// Whether the carrier is in the set of those that have timers.
    listed: bool,
}

impl Shard {
    /// Of this carrier, without a timer. `now` is the time on the clock that the deadlines are on.
    pub(crate) fn new(now: u64, carrier: usize) -> Self {
        let timers = Lock::new(Timers { wheel: Wheel::new(now), listed: false });
        Shard { timers, next: AtomicU64::new(NEVER), carrier }
    }

    /// Sets a timer that ends the wait `ticket` of `fiber`; `timed` are the carriers that have timers. Also
    /// returns whether it is due before all others here.
    pub(crate) fn insert(
        &self,
        deadline: u64,
        fiber: FiberRef,
        ticket: Ticket,
        timed: &Set,
    ) -> (TimerKey, bool) {
        let mut timers = self.timers.lock();
        let key = timers.wheel.insert(deadline, (fiber, ticket));
        let next = timers.wheel.next_deadline().unwrap_or(NEVER);
        let first = next < self.next.load(Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        if !timers.listed {
            timers.listed = true;
            timed.insert(self.carrier);
        }
        (key, first)
    }

    /// Takes a timer out, if it has not fired yet.
    pub(crate) fn remove(&self, key: TimerKey) {
        let mut timers = self.timers.lock();
        timers.wheel.remove(key);
        if timers.wheel.is_empty() {
            self.next.store(NEVER, Ordering::Relaxed);
            timers.wheel.shrink(policy::KEPT_TIMERS);
        }
    }

    /// No timer here is due before this time.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Moves the waits whose deadlines have passed to `due`, for the caller to end them: that is done
    /// without the lock. Where there is no timer any more, takes the carrier out of `timed`.
    pub(crate) fn expire(&self, now: u64, due: &mut Mapped<(FiberRef, Ticket)>, timed: &Set) {
        let next = self.next();
        if next > now && next != NEVER {
            return;
        }
        let mut timers = self.timers.lock();
        timers.wheel.expire(now, |wait| due.push_or_abort(wait));
        self.next.store(timers.wheel.next_deadline().unwrap_or(NEVER), Ordering::Relaxed);
        if timers.listed && timers.wheel.is_empty() {
            timers.listed = false;
            timed.remove(self.carrier);
            timers.wheel.shrink(policy::KEPT_TIMERS);
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::model::{World, bounded};
    use crate::protocol::sync::{AtomicBool, heavy, light};
    use loom::sync::Arc;

    struct Shared {
        shard: Shard,
        timed: Set,
        sleeps: AtomicBool,
    }

    /// A timer is set while one carrier goes to sleep and another takes this one out of the set.
    #[test]
    fn a_timer_is_seen_by_a_carrier_that_goes_to_sleep_unless_that_is_seen() {
        bounded(3, || {
            let world = World::default();
            let fiber = world.fiber();
            let (shard, timed) = (Shard::new(0, 5), Set::new());
            // It has had a timer, and is listed still.
            let ticket = fiber.episode.begin(0);
            shard.remove(shard.insert(3, fiber, ticket, &timed).0);
            let shared = Arc::new(Shared { shard, timed, sleeps: AtomicBool::new(false) });
            let going_to_sleep = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.sleeps.store(true, Ordering::Relaxed);
                    heavy();
                    shared.timed.contains(5) && shared.shard.next() == 7
                })
            };
            let looking = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.shard.expire(4, &mut Mapped::new(), &shared.timed);
                })
            };
            shared.shard.insert(7, fiber, ticket, &shared.timed);
            light();
            let sees_sleeper = shared.sleeps.load(Ordering::Relaxed);
            let sees_timer = going_to_sleep.join().unwrap();
            assert!(sees_sleeper || sees_timer);
            looking.join().unwrap();
            assert!(shared.timed.contains(5));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::carrier::carrier::Shared as Runtime;
    use crate::fiber::header::Header;

    /// The number of carriers that are looked at, not the time that it takes, which is the machine's.
    #[test]
    fn only_carriers_with_timers_are_looked_at() {
        // (No thread runs them.)
        let runtime = Runtime::new("timers", 200, None);
        let listed = || runtime.carriers_with_timers().map(|c| c.index()).collect::<Vec<_>>();
        let set = |carrier: usize, deadline| {
            let fiber = FiberRef::new(Box::leak(Box::new(Header::new())));
            let shard = &runtime.carriers[carrier].shard;
            shard.insert(deadline, fiber, fiber.episode.begin(0), &runtime.timed).0
        };
        let look = |now| {
            let mut due = Mapped::new();
            let look = |c: &crate::carrier::carrier::Carrier| {
                c.shard.expire(now, &mut due, &runtime.timed);
            };
            runtime.carriers_with_timers().for_each(look);
            due.len()
        };
        assert_eq!((listed(), runtime.next_timer()), (vec![], NEVER));
        let start = carefree_reactor::clock::now();
        let (soon, late) = (start + 1_000_000_000, start + 9_000_000_000);
        let key = set(130, late);
        set(7, soon);
        set(7, late);
        assert_eq!((listed(), runtime.next_timer()), (vec![7, 130], soon));
        // Taken out: the next look forgets the carrier.
        runtime.carriers[130].shard.remove(key);
        assert_eq!(look(start), 0);
        assert_eq!(listed(), [7]);
        assert_eq!(look(soon), 1);
        assert_eq!((listed(), runtime.next_timer()), (vec![7], late));
        assert_eq!(look(late), 1);
        assert_eq!((listed(), runtime.next_timer()), (vec![], NEVER));
        // And once more.
        set(7, late);
        assert_eq!(listed(), [7]);
    }
}
