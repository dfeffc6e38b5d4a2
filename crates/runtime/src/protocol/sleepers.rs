//! Which carriers look for work and which sleep, without a lost wake-up.
//!
//! A carrier is *running* a fiber, *searching* for one, or *sleeping*. What makes a fiber ready
//! calls [`notify`](Sleepers::notify), which wakes a sleeper if no carrier searches: more searchers would
//! only compete for the same fiber. The last searcher to find a fiber wakes the next sleeper
//! ([`found`](Sleepers::found)), so wake-ups spread as long as there is work.
//!
//! # Proof that no fiber waits while all carriers sleep
//!
//! Producer: `push; light; read searching, sleeping`.
//! Carrier that found nothing: `sleeping bit set; searching -= 1; heavy; look everywhere again`.
//!
//! Suppose that P pushes fiber F, and that every carrier sleeps afterwards. Take each carrier C when it
//! last lay down, and compare its heavy fence with P's light one; these order as `SeqCst` fences do.
//!
//! 1. C's fence comes first. Then P sees C's sleeping bit, or that it was cleared since. If P also
//!    sees `searching == 0`, it wakes a sleeper. If it sees a searcher S instead, then S had not lain
//!    down for the last time, for its `searching -= 1` comes before its fence. Either S does so later,
//!    and case 2 holds for it; or S finds other work and, as the last searcher, looks for a sleeper to
//!    wake after P's push.
//! 2. P's fence comes first. Then C's second look, after its own fence, sees F, and C does not sleep.
//!
//! A woken carrier counts as searching from when its bit is cleared. So between the decision to wake it
//! and its return from sleep, others see a searcher and wake no more. Both a waker and the sleeper itself
//! may clear the bit; the one that does is the one whose count stays. A waker that finds the bit cleared
//! has counted in vain. Until it counts back it looks like a searcher S of case 1, so it ends as S does:
//! the last one looks for a sleeper to wake.

use crate::protocol::sync::{AtomicU32, AtomicU64, Ordering, heavy, light};

/// Carriers a runtime can have: one bit each.
pub(crate) const CARRIERS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Sleepers {
    searching: AtomicU32,
    sleeping: AtomicU64,
}

impl Sleepers {
    /// None sleeps; `searching` carriers search.
    pub(crate) fn new(searching: u32) -> Self {
        Sleepers { searching: AtomicU32::new(searching), sleeping: AtomicU64::new(0) }
    }

    /// To be called after a fiber was put where searchers look. Returns the carrier that the
    /// caller must wake, if any.
    #[inline(always)]
    #[must_use]
    pub(crate) fn notify(&self) -> Option<usize> {
        light();
        if self.sleeping.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.notify_slow()
    }

    #[cold]
    fn notify_slow(&self) -> Option<usize> {
        if self.searching.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.claim()
    }

    /// Turns some sleeper into a searcher and returns it; the caller must wake it.
    pub(crate) fn claim(&self) -> Option<usize> {
        let mut sleeping = self.sleeping.load(Ordering::Relaxed);
        while sleeping != 0 {
            let carrier = sleeping.trailing_zeros() as usize;
            // Counted before the bit is cleared: otherwise a thread could see, in between, neither a
            // searcher nor a sleeper where there is one.
            self.searching.fetch_add(1, Ordering::SeqCst);
            let bit = 1 << carrier;
            let seen = self.sleeping.fetch_and(!bit, Ordering::SeqCst);
            if seen & bit != 0 {
                return Some(carrier);
            }
            // The carrier woke by itself. A producer may have taken this attempt for a search and have
            // woken no sleeper. So the attempt ends as a search does: the last one looks for a sleeper
            // to wake, which may be the same carrier again.
            sleeping = match self.searching.fetch_sub(1, Ordering::SeqCst) {
                1 => self.sleeping.load(Ordering::SeqCst),
                _ => seen & !bit,
            };
        }
        None
    }

    /// Turns a given carrier into a searcher if it sleeps; the caller must wake it then.
    #[must_use]
    pub(crate) fn claim_one(&self, carrier: usize) -> bool {
        light();
        if self.sleeping.load(Ordering::Relaxed) & 1 << carrier == 0 {
            return false;
        }
        self.wake_up(carrier)
    }

    /// A running carrier starts to search.
    pub(crate) fn search(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// A searching carrier has found a fiber and runs it. If it was the last searcher, this turns a
    /// sleeper into one and returns it; the caller must wake it.
    #[must_use]
    pub(crate) fn found(&self) -> Option<usize> {
        if self.searching.fetch_sub(1, Ordering::SeqCst) == 1
            && self.sleeping.load(Ordering::SeqCst) != 0
        {
            self.claim()
        } else {
            None
        }
    }

    /// A searching carrier has found nothing and is about to sleep: it must look everywhere once
    /// more, and may sleep then. In either case it calls [`wake_up`](Self::wake_up) afterwards.
    pub(crate) fn lie_down(&self, carrier: usize) {
        self.sleeping.fetch_or(1 << carrier, Ordering::SeqCst);
        self.searching.fetch_sub(1, Ordering::SeqCst);
        heavy();
    }

    /// Turns the carrier from a sleeper into a searcher, on behalf of itself or of a waker. False:
    /// another thread has done that.
    pub(crate) fn wake_up(&self, carrier: usize) -> bool {
        let bit = 1 << carrier;
        self.searching.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
            return true;
        }
        self.searching.fetch_sub(1, Ordering::SeqCst);
        false
    }

    /// Whether a carrier sleeps, or is just lying down or getting up.
    pub(crate) fn is_sleeping(&self, carrier: usize) -> bool {
        self.sleeping.load(Ordering::SeqCst) & 1 << carrier != 0
    }

    /// Carriers asleep.
    pub(crate) fn sleeping(&self) -> u32 {
        self.sleeping.load(Ordering::SeqCst).count_ones()
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::protocol::sync::AtomicUsize;
    use loom::sync::Arc;

    struct World {
        sleepers: Sleepers,
        /// Fibers that wait, all queues as one.
        ready: AtomicUsize,
        /// What woke carriers get.
        tokens: [AtomicUsize; 2],
    }

    impl World {
        fn push(&self) {
            self.ready.fetch_add(1, Ordering::Relaxed);
            self.wake(self.sleepers.notify());
        }

        fn wake(&self, carrier: Option<usize>) {
            if let Some(carrier) = carrier {
                self.tokens[carrier].fetch_add(1, Ordering::Release);
            }
        }

        fn take(&self) -> bool {
            self.ready
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok()
        }

        /// A searching carrier until it sleeps for good; before that, something other than a
        /// wake-up (a timer) gets it up `rouses` times. Returns the fibers it ran and how many
        /// tokens it was given, or will be, for sleeps that are over.
        fn carry(&self, me: usize, mut rouses: usize) -> (usize, usize) {
            let (mut ran, mut used) = (0, 0);
            loop {
                if self.take() {
                    self.wake(self.sleepers.found());
                    ran += 1;
                    self.sleepers.search();
                    continue;
                }
                self.sleepers.lie_down(me);
                let came = self.ready.load(Ordering::Relaxed) > 0;
                if !came && rouses == 0 {
                    return (ran, used);
                }
                if !self.sleepers.wake_up(me) {
                    used += 1;
                }
                if !came {
                    // Runs what the timer has made ready.
                    rouses -= 1;
                    self.wake(self.sleepers.found());
                    self.sleepers.search();
                }
            }
        }
    }

    fn world(carriers: u32) -> Arc<World> {
        Arc::new(World {
            sleepers: Sleepers::new(carriers),
            ready: AtomicUsize::new(0),
            tokens: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }

    /// After all is quiet: either nothing waits, or a carrier was told to wake.
    fn check(world: &World, used: usize) {
        let woken = world.tokens.iter().map(|t| t.load(Ordering::Acquire)).sum::<usize>();
        let waiting = world.ready.load(Ordering::Relaxed);
        assert!(woken >= used, "a carrier waits for a token that was not sent");
        assert!(waiting == 0 || woken > used, "{waiting} fibers wait and no carrier was woken");
    }

    /// Without a bound on preemptions, three threads keep loom busy for hours.
    fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    #[test]
    fn a_push_is_seen_by_the_last_one_to_sleep() {
        loom::model(|| {
            let world = world(1);
            let carrier = {
                let world = world.clone();
                loom::thread::spawn(move || world.carry(0, 0))
            };
            world.push();
            let (ran, used) = carrier.join().unwrap();
            check(&world, used);
            assert!(ran <= 1);
        });
    }

    #[test]
    fn two_carriers_and_a_producer() {
        bounded(3, || {
            let world = world(2);
            let carriers = [0, 1].map(|me| {
                let world = world.clone();
                loom::thread::spawn(move || world.carry(me, 0))
            });
            world.push();
            let used = carriers.map(|carrier| carrier.join().unwrap().1);
            check(&world, used[0] + used[1]);
        });
    }

    /// Two fibers that never end. The second is pushed while a carrier searches, which will run the
    /// first for ever: it must have woken the other carrier.
    #[test]
    fn a_searcher_that_finds_a_fiber_hands_the_search_on() {
        bounded(3, || {
            let world = world(1);
            // The second one sleeps.
            world.sleepers.search();
            world.sleepers.lie_down(1);
            let carrier = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    if world.take() {
                        world.wake(world.sleepers.found());
                        return;
                    }
                    world.sleepers.lie_down(0);
                    if world.ready.load(Ordering::Relaxed) > 0 {
                        let by_itself = world.sleepers.wake_up(0);
                        assert!(world.take());
                        world.wake(world.sleepers.found());
                        if !by_itself {
                            // It has used its token.
                            return;
                        }
                    }
                })
            };
            world.push();
            world.push();
            carrier.join().unwrap();
            let [first, second] = [0, 1].map(|me| world.tokens[me].load(Ordering::Acquire));
            let waiting = world.ready.load(Ordering::Relaxed);
            // The first is busy or was woken; either way the second is needed for the rest.
            assert!(waiting == 0 || second > 0 || (waiting == 2 && first > 0));
        });
    }

    /// A waker finds the carrier asleep and comes too late to wake it. The producer that takes this
    /// attempt for a search must not leave its fiber without a carrier.
    #[test]
    fn a_failed_claim_hides_no_sleeper() {
        bounded(3, || {
            let world = world(1);
            let carrier = {
                let world = world.clone();
                loom::thread::spawn(move || world.carry(0, 1))
            };
            let rival = {
                let world = world.clone();
                loom::thread::spawn(move || world.wake(world.sleepers.notify()))
            };
            world.push();
            rival.join().unwrap();
            let (_, used) = carrier.join().unwrap();
            check(&world, used);
        });
    }
}
