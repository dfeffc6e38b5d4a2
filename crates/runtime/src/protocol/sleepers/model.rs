//! The protocol of the sleepers, in all interleavings: producers that queue fibers, and carriers that lie down, doze,
//! retire and are recalled.

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
        self.wake(self.sleepers.notify(|| false));
    }

    fn found(&self) {
        self.found_beside(0);
    }

    /// The same where so many carriers seem to be kept.
    fn found_beside(&self, kept: u32) {
        self.wake(self.sleepers.found(self.kept(kept), || false));
    }

    fn kept(&self, about: u32) -> Kept<impl FnOnce() -> bool> {
        Kept { about, left_something: || self.ready.load(Ordering::Relaxed) > 0 }
    }

    fn wake(&self, carrier: Option<usize>) {
        if let Some(carrier) = carrier {
            self.tokens[carrier].fetch_add(1, Ordering::Release);
        }
    }

    fn take(&self) -> bool {
        self.ready.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// A searching carrier until it sleeps for good; before that, something other than a
    /// wake-up (a timer) gets it up `rouses` times. Returns the fibers it ran and how many
    /// tokens it was given, or will be, for sleeps that are over.
    fn carry(&self, me: usize, mut rouses: usize, dozes: bool) -> (usize, usize) {
        let (mut ran, mut used) = (0, 0);
        let mut has_dozed = !dozes;
        loop {
            if self.take() {
                self.found();
                ran += 1;
                self.sleepers.search();
                continue;
            }
            if !has_dozed {
                let rest = self.sleepers.doze(me);
                if !self.sleepers.wake_up(rest) {
                    used += 1;
                }
                has_dozed = true;
                continue;
            }
            let rest = self.sleepers.lie_down(me);
            let came = self.ready.load(Ordering::Relaxed) > 0;
            if !came && rouses == 0 {
                return (ran, used);
            }
            if !self.sleepers.wake_up(rest) {
                used += 1;
            }
            if !came {
                // Runs what the timer has made ready.
                rouses -= 1;
                self.found();
                self.sleepers.search();
            }
        }
    }
}

/// So many carriers are active, and so many of them search.
fn world_of(active: u32, searching: u32) -> Arc<World> {
    Arc::new(World {
        sleepers: Sleepers::new(active, searching),
        ready: AtomicUsize::new(0),
        tokens: [AtomicUsize::new(0), AtomicUsize::new(0)],
    })
}

fn world(carriers: u32) -> Arc<World> {
    // The producers are carriers that run.
    world_of(4, carriers)
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
            loom::thread::spawn(move || world.carry(0, 0, false))
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
            loom::thread::spawn(move || world.carry(me, 0, me == 0))
        });
        world.push();
        let used = carriers.map(|carrier| carrier.join().unwrap().1);
        check(&world, used[0] + used[1]);
    });
}

/// A push during a doze wakes nothing; it is found after the doze.
#[test]
fn a_push_during_a_doze_is_found_after_it() {
    bounded(3, || {
        let world = world(1);
        let carrier = {
            let world = world.clone();
            loom::thread::spawn(move || world.carry(0, 0, true))
        };
        world.push();
        let (ran, used) = carrier.join().unwrap();
        check(&world, used);
        assert!(ran <= 1);
    });
}

/// What another thread queues, with a full fence, wakes a carrier that dozes as well, for as long as
/// it likes.
#[test]
fn a_fenced_push_reaches_a_carrier_that_dozes() {
    bounded(3, || {
        let world = world(1);
        let carrier = {
            let world = world.clone();
            loom::thread::spawn(move || {
                if world.take() {
                    world.found();
                    return 0;
                }
                let rest = world.sleepers.doze(0);
                if world.ready.load(Ordering::Relaxed) > 0 {
                    return usize::from(!world.sleepers.wake_up(rest));
                }
                // Dozes until it is woken.
                usize::from(world.tokens[0].load(Ordering::Acquire) > 0)
            })
        };
        world.ready.fetch_add(1, Ordering::Relaxed);
        world.wake(world.sleepers.notify_fenced());
        let saw = carrier.join().unwrap();
        let woken = world.tokens[0].load(Ordering::Acquire);
        let waiting = world.ready.load(Ordering::Relaxed);
        let up = world.sleepers.down().all() == 0;
        assert!(waiting == 0 || up || woken > 0, "{waiting} waits, seen {saw}");
    });
}

/// Two fibers that never end, the second pushed when one carrier searches already: that one runs
/// the first for ever, and must have seen to it that the other carrier is awake.
#[test]
fn the_last_searcher_hands_the_search_on() {
    hands_the_search_on(0);
}

/// The same where the one that queues them seems to be kept.
#[test]
fn the_last_searcher_hands_on_what_a_kept_carrier_has_left_to_it() {
    hands_the_search_on(4);
}

fn hands_the_search_on(kept: u32) {
    bounded(3, move || {
        let world = world(1);
        // The second one sleeps.
        world.sleepers.search();
        let _asleep = world.sleepers.lie_down(1);
        let carrier = {
            let world = world.clone();
            loom::thread::spawn(move || {
                if world.take() {
                    world.found_beside(kept);
                    return;
                }
                let rest = world.sleepers.lie_down(0);
                if world.ready.load(Ordering::Relaxed) > 0 {
                    let by_itself = world.sleepers.wake_up(rest);
                    assert!(world.take());
                    world.found_beside(kept);
                    if !by_itself {
                        // The token was for this.
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

/// One producer finds the carrier asleep and comes too late to wake it; the other must not take
/// the first one's attempt for a search.
#[test]
fn a_failed_claim_hides_no_sleeper() {
    bounded(3, || {
        let world = world(1);
        let carrier = {
            let world = world.clone();
            loom::thread::spawn(move || world.carry(0, 1, false))
        };
        let rival = {
            let world = world.clone();
            loom::thread::spawn(move || world.wake(world.sleepers.notify(|| false)))
        };
        world.push();
        rival.join().unwrap();
        let (_, used) = carrier.join().unwrap();
        check(&world, used);
    });
}

/// A thread comes too late to wake one given carrier, and a producer must not take that attempt for a search.
#[test]
fn a_failed_claim_of_one_hides_no_sleeper() {
    bounded(3, || {
        let world = world(1);
        let asleep = world.sleepers.lie_down(0);
        let carrier = {
            let world = world.clone();
            // A timer gets it up.
            loom::thread::spawn(move || {
                let claimed = !world.sleepers.wake_up(asleep);
                let (_, used) = world.carry(0, 0, false);
                used + usize::from(claimed)
            })
        };
        let rival = {
            let world = world.clone();
            loom::thread::spawn(move || world.wake(world.sleepers.claim_one(0)))
        };
        let used = carrier.join().unwrap();
        world.push();
        rival.join().unwrap();
        check(&world, used);
    });
}

/// A carrier gets up from a doze by itself while another thread claims it, and queues a fiber: it must not
/// leave that to one that dozes, for it is none itself any more.
#[test]
fn a_carrier_that_is_up_does_not_count_on_its_own_doze() {
    bounded(3, || {
        let world = world_of(2, 1);
        world.sleepers.search();
        let _asleep = world.sleepers.lie_down(1);
        let waker = {
            let world = world.clone();
            // (What it has queued, the carrier runs.)
            loom::thread::spawn(move || world.wake(world.sleepers.notify_fenced()))
        };
        let rest = world.sleepers.doze(0);
        world.sleepers.wake_up(rest);
        world.found();
        // The fiber that it runs queues another one, and never ends.
        world.push();
        waker.join().unwrap();
        assert!(world.tokens[1].load(Ordering::Acquire) > 0, "a fiber waits beside a sleeper");
    });
}

/// A producer gets up from its own sleep when another carrier lies down as the last one; neither makes a heavy fence,
/// and the producer makes no light one either, which would be one in a model.
#[test]
fn the_last_to_lie_down_is_seen_by_what_gets_up() {
    bounded(3, || {
        let world = world_of(2, 2);
        let asleep = world.sleepers.lie_down(1);
        let producer = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.sleepers.wake_up(asleep);
                world.found();
                world.ready.fetch_add(1, Ordering::Relaxed);
                world.wake(world.sleepers.notify_without_fence(|| false));
            })
        };
        let rest = world.sleepers.lie_down(0);
        let came = world.ready.load(Ordering::Relaxed) > 0;
        producer.join().unwrap();
        let woken = world.tokens[0].load(Ordering::Acquire) > 0;
        // (Else there is a heavy fence, and the producer's light one is needed.)
        assert!(!rest.is_last || came || woken, "a fiber waits beside a sleeper");
    });
}

/// The same with a producer that is recalled from the reserve, and another that retires.
#[test]
fn the_last_to_lie_down_is_seen_by_what_is_recalled() {
    bounded(3, || {
        let world = world_of(3, 3);
        assert!(world.sleepers.retire(2, 1, world.kept(0), || false).0);
        let retiring = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.wake(world.sleepers.retire(1, 1, world.kept(0), || false).1)
            })
        };
        let producer = {
            let world = world.clone();
            loom::thread::spawn(move || {
                // (Either of the two.)
                if world.sleepers.recall().is_some() {
                    world.found();
                    world.ready.fetch_add(1, Ordering::Relaxed);
                    world.wake(world.sleepers.notify_without_fence(|| false));
                }
            })
        };
        let rest = world.sleepers.lie_down(0);
        let came = world.ready.load(Ordering::Relaxed) > 0;
        producer.join().unwrap();
        retiring.join().unwrap();
        let woken = world.tokens[0].load(Ordering::Acquire) > 0;
        let waiting = world.ready.load(Ordering::Relaxed) > 0;
        assert!(!rest.is_last || !waiting || came || woken, "a fiber waits beside a sleeper");
    });
}

/// While a carrier lies down, another is recalled and lies down as well. The one that runs must not be taken for it.
#[test]
fn one_that_runs_is_not_taken_for_one_that_joins_and_lies_down() {
    bounded(3, || {
        let world = world_of(3, 3);
        assert!(world.sleepers.retire(1, 1, world.kept(0), || false).0);
        // The third one runs.
        world.found();
        let joining = {
            let world = world.clone();
            loom::thread::spawn(move || {
                // (Its own operation has got it up.)
                if world.sleepers.is_in_reserve(1) {
                    return false;
                }
                let _rest = world.sleepers.lie_down(1);
                world.ready.load(Ordering::Relaxed) > 0
            })
        };
        let recalling = {
            let world = world.clone();
            loom::thread::spawn(move || world.sleepers.recall())
        };
        let producer = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.ready.fetch_add(1, Ordering::Relaxed);
                world.wake(world.sleepers.notify_without_fence(|| false));
            })
        };
        let rest = world.sleepers.lie_down(0);
        let came = world.ready.load(Ordering::Relaxed) > 0;
        producer.join().unwrap();
        let came = joining.join().unwrap() || came;
        recalling.join().unwrap();
        let woken = world.tokens.iter().any(|token| token.load(Ordering::Acquire) > 0);
        // (If it has not lain down, it will search.)
        let searches = world.sleepers.some_search();
        assert!(!rest.is_last || came || woken || searches, "a fiber waits beside a sleeper");
    });
}

/// What was left to a searcher that retires is seen to by a carrier that it wakes.
#[test]
fn a_searcher_that_retires_hands_on() {
    a_retired_searcher_hands_on(0);
}

/// The same where the one that leaves it seems to be kept.
#[test]
fn a_searcher_that_retires_hands_on_what_a_kept_carrier_has_left_to_it() {
    a_retired_searcher_hands_on(4);
}

fn a_retired_searcher_hands_on(kept: u32) {
    bounded(3, move || {
        let world = world(1);
        // The second one sleeps.
        world.sleepers.search();
        let _asleep = world.sleepers.lie_down(1);
        let carrier = {
            let world = world.clone();
            loom::thread::spawn(move || {
                if world.take() {
                    world.found_beside(kept);
                    return false;
                }
                let (retired, sleeper) = world.sleepers.retire(0, 1, world.kept(kept), || false);
                world.wake(sleeper);
                retired
            })
        };
        world.push();
        let retired = carrier.join().unwrap();
        let woken = world.tokens[1].load(Ordering::Acquire);
        let waiting = world.ready.load(Ordering::Relaxed);
        assert!(waiting == 0 || woken > 0, "{waiting} waits, and retired: {retired}");
        assert_eq!(world.sleepers.is_in_reserve(0), retired);
    });
}

/// A carrier is recalled once, or ends; it is never lost between the two.
#[test]
fn a_carrier_is_recalled_or_discharged() {
    bounded(3, || {
        let world = world(1);
        assert!(world.sleepers.retire(0, 1, world.kept(0), || false).0);
        let recalling = {
            let world = world.clone();
            loom::thread::spawn(move || world.sleepers.recall())
        };
        let discharged = world.sleepers.discharge(0);
        let recalled = recalling.join().unwrap().is_some();
        assert!(discharged != recalled);
        assert_eq!(world.sleepers.some_search(), recalled);
        assert_eq!(world.sleepers.active(), 3 + u32::from(recalled));
    });
}
