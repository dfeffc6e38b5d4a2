//! Models of the parking lot.

use loom::sync::Arc;
use loom::thread;

use super::world::fire;
use super::{World, as_fiber, bounded};
use crate::carrier::bucket;
use crate::carrier::clock;
use crate::fiber::bed;
use crate::fiber::header::FiberRef;
use crate::protocol::episode::{Claim, Outcome, Ticket};
use crate::protocol::reason::Reason;
use crate::protocol::sync::{AtomicBool, Ordering, UnsafeCell};
use crate::wait::cancel::cancel;
use crate::wait::lot;
use crate::wait::park::{self, Until};

/// Keys by the bucket they are in.
const KEYS: [usize; 2] = [16, 80];
/// Another one of the first bucket.
const NEIGHBOUR: usize = 32;

/// Ends some time or other.
const TIMED: Until = Until { deadline: 1, cancellable: false };

/// What is waited for: a door, and what was written before it was opened.
struct Door {
    key: usize,
    open: AtomicBool,
    behind: UnsafeCell<u32>,
}

// SAFETY: loom checks the accesses to the cell.
unsafe impl Sync for Door {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for Door {}

impl Door {
    fn new(key: usize) -> Arc<Door> {
        Arc::new(Door { key, open: AtomicBool::new(false), behind: UnsafeCell::new(0) })
    }

    /// Opens it for good, and wakes its waiters if there seem to be any. Returns how many.
    fn open(&self) -> usize {
        // SAFETY: loom looks whether it is.
        self.behind.with_mut(|behind| unsafe { *behind = 1 });
        self.open.store(true, Ordering::Release);
        match lot::is_waited_after_change(self.key) {
            true => lot::unpark(self.key, usize::MAX),
            false => 0,
        }
    }

    fn wait(&self, until: Until) -> Outcome {
        let shut = || !self.open.load(Ordering::Acquire);
        park::park(self.key, shut, Reason::Other, until)
    }

    /// Waits, and goes in.
    fn pass(&self, until: Until) -> Outcome {
        let outcome = self.wait(until);
        if matches!(outcome, Outcome::Unparked | Outcome::Invalid) {
            // SAFETY: loom looks whether it is.
            self.behind.with(|behind| assert_eq!(unsafe { *behind }, 1));
        }
        outcome
    }
}

#[test]
fn keys_are_where_the_models_want_them() {
    assert_ne!(bucket::index(KEYS[0]), bucket::index(KEYS[1]));
    assert_eq!(bucket::index(KEYS[0]), bucket::index(NEIGHBOUR));
}

fn a_door_and_one_fiber(until: Until) {
    let world = World::default();
    let door = Door::new(KEYS[0]);
    let theirs = door.clone();
    let fiber = as_fiber(world.fiber(), move || theirs.pass(until));
    door.open();
    let outcome = fiber.join().unwrap();
    assert!(matches!(outcome, Outcome::Unparked | Outcome::Invalid));
}

/// A wait that only an unpark ends: the bucket stays locked while the fiber leaves its stack.
#[test]
fn an_unpark_is_not_missed_by_a_wait_for_it_alone() {
    loom::model(|| a_door_and_one_fiber(Until::WOKEN_ONLY));
}

#[test]
fn an_unpark_is_not_missed_by_a_wait_that_may_be_cancelled() {
    loom::model(|| a_door_and_one_fiber(Until::WOKEN));
}

#[test]
fn an_unpark_is_not_missed_by_a_thread() {
    loom::model(|| {
        let world = World::default();
        let door = Door::new(KEYS[0]);
        let theirs = door.clone();
        let opener = thread::spawn(move || theirs.open());
        world.be_a_thread();
        door.pass(Until::WOKEN_ONLY);
        opener.join().unwrap();
    });
}

/// As a mutex's: two doors in one bucket, each with its own opener; the word of the bucket tells of both.
#[test]
fn neighbours_in_a_bucket_do_not_hide_each_other() {
    bounded(2, || {
        let world = World::default();
        let doors = [KEYS[0], NEIGHBOUR].map(Door::new);
        let fibers = [0, 1].map(|n| {
            let door = doors[n].clone();
            as_fiber(world.fiber(), move || door.pass(Until::WOKEN_ONLY))
        });
        doors[0].open();
        doors[1].open();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    });
}

/// Begins to wait on behalf of a fiber that does not run.
fn enter(fiber: FiberRef, key: usize) -> Ticket {
    let begin = || {
        fiber.key.store(key, Ordering::Relaxed);
        fiber.episode.begin(0)
    };
    lot::enter(key, 0, fiber, || true, begin).expect("the condition holds")
}

/// An unpark of one meets a wait that a deadline ends: it is spent on that one or on the next.
#[test]
fn an_unpark_is_not_spent_on_a_waiter_that_has_timed_out() {
    bounded(2, || {
        let world = World::default();
        let door = Door::new(KEYS[0]);
        let (first, second) = (world.fiber(), world.fiber());
        // The first in the list is about to leave its stack.
        let ticket = enter(first, door.key);
        let theirs = door.clone();
        let other = as_fiber(second, move || theirs.wait(Until::WOKEN_ONLY));
        let timer = thread::spawn(move || crate::carrier::wake::wake_timed_out(first, ticket));
        let woken = lot::unpark(door.key, 1);
        timer.join().unwrap();
        let woken = woken + door.open();
        let first = usize::from(first.episode.outcome() == Outcome::Unparked);
        let second = usize::from(other.join().unwrap() == Outcome::Unparked);
        assert_eq!(woken, first + second);
    });
}

/// A fiber whose wait is ended by its deadline waits again, for another key. The waker that finds it in the
/// list for the first must not end the second wait.
fn waits_twice(again: usize, until: Until) {
    let world = World::default();
    let (first, second) = (Door::new(KEYS[0]), Door::new(again));
    let me = world.fiber();
    let ticket = enter(me, first.key);
    let theirs = second.clone();
    let fiber = as_fiber(me, move || (park::go_on_parking(me, ticket), theirs.pass(until)));
    let timer = thread::spawn(move || crate::carrier::wake::wake_timed_out(me, ticket));
    let woken = lot::unpark(first.key, 1);
    second.open();
    timer.join().unwrap();
    let (first, second) = fiber.join().unwrap();
    assert_eq!(woken == 1, first == Outcome::Unparked);
    assert!(matches!(second, Outcome::Unparked | Outcome::Invalid));
}

#[test]
fn a_later_wait_in_another_bucket_is_not_ended_by_an_unpark_of_the_first() {
    bounded(2, || waits_twice(KEYS[1], Until::WOKEN_ONLY));
}

#[test]
fn a_later_wait_in_the_same_bucket_is_not_ended_by_an_unpark_of_the_first() {
    bounded(2, || waits_twice(NEIGHBOUR, Until::WOKEN_ONLY));
}

#[test]
fn a_later_wait_that_may_be_cancelled_is_not_ended_by_an_unpark_of_the_first() {
    bounded(2, || waits_twice(KEYS[1], Until::WOKEN));
}

#[test]
fn a_cancellation_ends_a_wait_that_may_be_cancelled() {
    bounded(2, || {
        let world = World::default();
        let door = Door::new(KEYS[0]);
        let me = world.fiber();
        let theirs = door.clone();
        let fiber = as_fiber(me, move || theirs.pass(Until::WOKEN));
        let other = door.clone();
        let opener = thread::spawn(move || other.open());
        cancel(me);
        opener.join().unwrap();
        fiber.join().unwrap();
    });
}

#[test]
fn a_cancellation_alone_is_enough() {
    loom::model(|| {
        let world = World::default();
        let door = Door::new(KEYS[0]);
        let me = world.fiber();
        let fiber = as_fiber(me, move || door.wait(Until::WOKEN));
        cancel(me);
        assert_eq!(fiber.join().unwrap(), Outcome::Cancelled);
    });
}

/// A cancellation, and the late timer of an earlier wait, leave a wait for a lock alone.
#[test]
fn nothing_but_an_unpark_ends_a_wait_for_it_alone() {
    bounded(3, || {
        let world = World::default();
        let door = Door::new(KEYS[0]);
        let me = world.fiber();
        let theirs = door.clone();
        let fiber = as_fiber(me, move || {
            let over = me.episode.begin(0);
            assert_ne!(me.episode.claim(over, Outcome::Unparked), Claim::Lost);
            me.episode.finish();
            let late = thread::spawn(move || crate::carrier::wake::wake_timed_out(me, over));
            let outcome = theirs.pass(Until::WOKEN_ONLY);
            late.join().unwrap();
            outcome
        });
        cancel(me);
        door.open();
        let outcome = fiber.join().unwrap();
        assert!(matches!(outcome, Outcome::Unparked | Outcome::Invalid));
    });
}

/// One that waits is moved to another key while its deadline passes.
fn moved(to: usize) {
    let world = World::default();
    let from = KEYS[0];
    let me = world.fiber();
    let ticket = enter(me, from);
    let fiber = as_fiber(me, move || park::go_on_parking(me, ticket));
    let timer = thread::spawn(move || crate::carrier::wake::wake_timed_out(me, ticket));
    let (_, moved) = lot::requeue(from, to, 0, 1, || true).expect("the condition holds");
    let woken = lot::unpark(to, 1);
    timer.join().unwrap();
    let outcome = fiber.join().unwrap();
    assert!(woken <= moved);
    assert_eq!(woken == 1, outcome == Outcome::Unparked);
    assert!(!lot::is_waited(from) && !lot::is_waited(to), "it is in a list still");
}

#[test]
fn one_that_is_moved_to_another_bucket_is_found_there() {
    bounded(2, || moved(KEYS[1]));
}

#[test]
fn one_that_is_moved_within_its_bucket_is_found() {
    bounded(2, || moved(NEIGHBOUR));
}

/// Two that move waiters in opposite directions do not wait for each other.
#[test]
fn two_buckets_are_locked_in_order() {
    loom::model(|| {
        let [one, other] = KEYS;
        let theirs = thread::spawn(move || lot::requeue(one, other, 1, 1, || true));
        assert_eq!(lot::requeue(other, one, 1, 1, || true), Some((0, 0)));
        assert_eq!(theirs.join().unwrap(), Some((0, 0)));
    });
}

/// As a condition variable: the mutex is unlocked when the wait has begun.
#[test]
fn unlocking_after_the_wait_has_begun_misses_no_unpark() {
    bounded(3, || {
        let world = World::default();
        let lock = Arc::new(loom::sync::Mutex::new(false));
        let theirs = lock.clone();
        let fiber = as_fiber(world.fiber(), move || {
            let mut told = theirs.lock().unwrap();
            while !*told {
                let mut guard = Some(told);
                let unlock = || guard.take().is_some();
                // SAFETY: `unlock` does not park.
                let outcome =
                    unsafe { park::park_after(KEYS[0], unlock, Reason::Condition, Until::WOKEN) };
                assert_eq!(outcome, Outcome::Unparked);
                told = theirs.lock().unwrap();
            }
        });
        *lock.lock().unwrap() = true;
        lot::unpark(KEYS[0], 1);
        fiber.join().unwrap();
    });
}

/// One that begins to wait and then finds that it need not passes an unpark on that has reached it.
#[test]
fn an_unpark_of_one_that_gives_up_reaches_the_next() {
    loom::model(|| {
        let world = World::default();
        let (quitter, next) = (world.fiber(), world.fiber());
        let quits = as_fiber(quitter, move || {
            let mut waker = None;
            let quit = || {
                enter(next, KEYS[0]);
                waker = Some(thread::spawn(|| lot::unpark(KEYS[0], 1)));
                false
            };
            // SAFETY: `quit` does not park this fiber.
            let outcome =
                unsafe { park::park_after(KEYS[0], quit, Reason::Condition, Until::WOKEN) };
            assert_eq!(outcome, Outcome::Invalid);
            assert_eq!(waker.unwrap().join().unwrap(), 1);
        });
        quits.join().unwrap();
        assert!(next.episode.is_woken(), "an unpark was lost");
    });
}

/// A cancellation is seen by a wait beside an unpark or by the next. (A park may return once more than it was
/// unparked: the unparker that has left a token may find the next wait.)
#[test]
fn an_unpark_hides_no_cancellation() {
    bounded(3, || {
        let world = World::default();
        let me = world.fiber();
        let fiber = as_fiber(me, move || {
            let mut unparked = 0;
            while park::park_self(Until::WOKEN) == Outcome::Unparked {
                unparked += 1;
            }
            assert!(unparked <= 2);
        });
        let unparker = thread::spawn(move || park::unpark(me));
        cancel(me);
        unparker.join().unwrap();
        fiber.join().unwrap();
    });
}

#[test]
fn what_the_unparker_wrote_is_seen() {
    loom::model(|| {
        let world = World::default();
        let me = world.fiber();
        let written = Door::new(KEYS[0]);
        let theirs = written.clone();
        let fiber = as_fiber(me, move || {
            assert_eq!(park::park_self(Until::WOKEN), Outcome::Unparked);
            // SAFETY: loom looks whether it is.
            theirs.behind.with(|behind| assert_eq!(unsafe { *behind }, 1));
        });
        // SAFETY: loom looks whether it is.
        written.behind.with_mut(|behind| unsafe { *behind = 1 });
        park::unpark(me);
        fiber.join().unwrap();
    });
}

#[test]
fn every_unpark_lets_a_park_through() {
    bounded(3, || {
        let world = World::default();
        let me = world.fiber();
        let fiber = as_fiber(me, move || park::park_self(Until::WOKEN));
        let other = thread::spawn(move || park::unpark(me));
        park::unpark(me);
        other.join().unwrap();
        assert_eq!(fiber.join().unwrap(), Outcome::Unparked);
    });
}

/// A wait that is cut short by its deadline on the way out.
#[test]
fn a_deadline_ends_a_wait_once() {
    bounded(3, || {
        let world = World::default();
        let me = world.fiber();
        let fiber = as_fiber(me, move || park::park_self(Until { deadline: 1, cancellable: true }));
        let timer = thread::spawn(move || fire(me));
        park::unpark(me);
        timer.join().unwrap();
        let outcome = fiber.join().unwrap();
        assert!(matches!(outcome, Outcome::Unparked | Outcome::TimedOut));
        // The timer has fired or is taken out.
        fire(me);
    });
}

/// Whether its deadline or an unpark ends the wait of a thread: it is counted once, and out of the list.
#[test]
fn a_thread_has_a_deadline() {
    bounded(2, || {
        let world = World::default();
        let me = world.be_a_thread();
        let opener = thread::spawn(move || lot::unpark(KEYS[0], 1));
        let timer = thread::spawn(move || {
            clock::set(1);
            bed::of(me).idle.pass();
        });
        let outcome = park::park(KEYS[0], || true, Reason::Other, TIMED);
        let woken = opener.join().unwrap();
        timer.join().unwrap();
        assert_eq!(woken == 1, outcome == Outcome::Unparked);
        assert!(!lot::is_waited(KEYS[0]), "it is in the list still");
    });
}
