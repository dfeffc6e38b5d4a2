//! Models of a fiber's end and of its handle: join, wait, detach, and what is given back.

use loom::sync::Arc;
use loom::thread;

use super::world::fire;
use super::{World, as_fiber, bounded, run};
use crate::carrier::carrier;
use crate::fiber::header::FiberRef;
use crate::fiber::pin;
use crate::handle::join::{self, JoinHandle};
use crate::protocol::episode::Outcome;
use crate::protocol::sync::UnsafeCell;
use crate::wait::park::Until;

/// What a fiber's function returns: says how often it was dropped.
struct Value<const WORDS: usize> {
    dropped: Arc<Dropped>,
    _words: [usize; WORDS],
}

struct Dropped {
    written: UnsafeCell<u32>,
    dropped: UnsafeCell<u32>,
}

// SAFETY: loom checks the accesses to the cells.
unsafe impl Sync for Dropped {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for Dropped {}

impl Dropped {
    fn new() -> Arc<Dropped> {
        Arc::new(Dropped { written: UnsafeCell::new(0), dropped: UnsafeCell::new(0) })
    }

    fn times(&self) -> u32 {
        // SAFETY: loom looks whether it is.
        self.dropped.with(|dropped| unsafe { *dropped })
    }
}

impl<const WORDS: usize> Value<WORDS> {
    /// Made by its fiber.
    fn new(dropped: Arc<Dropped>) -> Self {
        // SAFETY: loom looks whether it is.
        dropped.written.with_mut(|written| unsafe { *written = 1 });
        Value { dropped, _words: [0; WORDS] }
    }
}

impl<const WORDS: usize> Drop for Value<WORDS> {
    fn drop(&mut self) {
        // SAFETY: loom looks whether it is.
        self.dropped.written.with(|written| assert_eq!(unsafe { *written }, 1));
        // SAFETY: loom checks whether anything else accesses the cell.
        self.dropped.dropped.with_mut(|dropped| unsafe { *dropped += 1 });
    }
}

/// When all is quiet.
fn all_is_given_back(world: &World, fiber: FiberRef) {
    assert_eq!(world.stack_of(fiber).times_given_back(), 1, "of its stack");
    assert_eq!(crate::carrier::carrier::of(fiber).times_freed(), 1, "of its header");
}

/// A fiber, and how often its value was dropped.
fn start<const WORDS: usize>(
    world: &World,
) -> (FiberRef, JoinHandle<Value<WORDS>>, Arc<Dropped>, thread::JoinHandle<()>) {
    let fiber = world.fiber();
    let dropped = Dropped::new();
    let theirs = dropped.clone();
    let thread = run(fiber, move || Value::<WORDS>::new(theirs));
    (fiber, JoinHandle::from_counted(fiber), dropped, thread)
}

/// In the header itself, and in a box.
const SMALL: usize = 0;
const LARGE: usize = 3;

fn a_thread_joins<const WORDS: usize>() {
    let world = World::default();
    let (fiber, handle, dropped, thread) = start::<WORDS>(&world);
    let me = world.be_a_thread();
    let value = handle.join().unwrap();
    assert_eq!(dropped.times(), 0);
    drop(value);
    assert_eq!(dropped.times(), 1);
    thread.join().unwrap();
    all_is_given_back(&world, fiber);
    carrier::release(me);
}

#[test]
fn a_thread_joins_and_has_the_value() {
    bounded(3, a_thread_joins::<SMALL>);
}

#[test]
fn a_thread_joins_and_has_a_large_value() {
    bounded(3, a_thread_joins::<LARGE>);
}

/// A value that is left in the header without a bit of its own.
#[test]
fn a_fiber_joins_and_has_a_plain_value() {
    bounded(3, || {
        let world = World::default();
        let fiber = world.fiber();
        let thread = run(fiber, || 42_usize);
        let handle = JoinHandle::<usize>::from_counted(fiber);
        let joiner = as_fiber(world.fiber(), move || handle.join().unwrap());
        assert_eq!(joiner.join().unwrap(), 42);
        thread.join().unwrap();
        all_is_given_back(&world, fiber);
    });
}

#[test]
fn a_fiber_joins_and_has_the_value() {
    bounded(3, || {
        let world = World::default();
        let (fiber, handle, dropped, thread) = start::<SMALL>(&world);
        let joiner = as_fiber(world.fiber(), move || drop(handle.join_uncancellable().unwrap()));
        joiner.join().unwrap();
        assert_eq!(dropped.times(), 1);
        thread.join().unwrap();
        all_is_given_back(&world, fiber);
    });
}

#[test]
fn a_handle_that_sees_the_end_has_the_value() {
    bounded(3, || {
        let world = World::default();
        let (fiber, handle, dropped, thread) = start::<SMALL>(&world);
        if handle.is_finished() {
            // Without a wait: there is no header to wait with.
            drop(handle.join().unwrap());
        } else {
            drop(handle);
        }
        thread.join().unwrap();
        assert_eq!(dropped.times(), 1);
        all_is_given_back(&world, fiber);
    });
}

fn detached<const WORDS: usize>() {
    let world = World::default();
    let (fiber, handle, dropped, thread) = start::<WORDS>(&world);
    drop(handle);
    thread.join().unwrap();
    assert_eq!(dropped.times(), 1);
    all_is_given_back(&world, fiber);
}

/// The value is dropped once, by the fiber or by the handle.
#[test]
fn a_value_that_nothing_asks_for_is_dropped_once() {
    loom::model(detached::<SMALL>);
}

#[test]
fn a_large_value_that_nothing_asks_for_is_dropped_once() {
    loom::model(detached::<LARGE>);
}

#[test]
fn a_plain_value_that_nothing_asks_for_is_let_be() {
    loom::model(|| {
        let world = World::default();
        let fiber = world.fiber();
        let thread = run(fiber, || 42_usize);
        drop(JoinHandle::<usize>::from_counted(fiber));
        thread.join().unwrap();
        all_is_given_back(&world, fiber);
    });
}

/// A wait for the end that a deadline or a cancellation cuts short; then the handle is dropped.
fn cut_short(cut: fn(FiberRef), until: Until) {
    let world = World::default();
    let (fiber, handle, dropped, thread) = start::<SMALL>(&world);
    let me = world.fiber();
    let joiner = as_fiber(me, move || {
        let outcome = join::await_end(fiber, until);
        match outcome {
            Outcome::Unparked | Outcome::Invalid => drop(handle.join().unwrap()),
            _ => drop(handle),
        }
    });
    cut(me);
    joiner.join().unwrap();
    thread.join().unwrap();
    assert_eq!(dropped.times(), 1);
    all_is_given_back(&world, fiber);
}

#[test]
fn a_wait_for_the_end_has_a_deadline() {
    bounded(2, || cut_short(fire, Until { deadline: 1, cancellable: false }));
}

#[test]
fn a_wait_for_the_end_can_be_cancelled() {
    bounded(2, || cut_short(crate::wait::cancel::cancel, Until::WOKEN));
}

/// A join that is cancelled just as the fiber ends has the value, or leaves it to be dropped.
#[test]
fn a_join_that_is_cancelled_has_the_value_or_detaches() {
    bounded(2, || {
        let world = World::default();
        let (fiber, handle, dropped, thread) = start::<SMALL>(&world);
        let me = world.fiber();
        let joiner = as_fiber(me, move || match handle.join() {
            Ok(value) => drop(value),
            Err(why) => assert!(why.is::<crate::wait::cancel::Cancelled>()),
        });
        crate::wait::cancel::cancel(me);
        joiner.join().unwrap();
        thread.join().unwrap();
        assert_eq!(dropped.times(), 1);
        all_is_given_back(&world, fiber);
    });
}

/// Two wait for one fiber's end: `pthread_join` of a fiber beside a handle's `wait`, and a scope.
#[test]
fn all_waiters_for_the_end_are_woken() {
    bounded(1, || {
        let world = World::default();
        let (fiber, handle, dropped, thread) = start::<SMALL>(&world);
        let other = as_fiber(world.fiber(), move || join::await_end(fiber, Until::WOKEN_ONLY));
        let joiner = as_fiber(world.fiber(), move || handle.wait().map(|()| handle));
        other.join().unwrap();
        let handle = joiner.join().unwrap().unwrap();
        drop(handle);
        thread.join().unwrap();
        assert_eq!(dropped.times(), 1);
        all_is_given_back(&world, fiber);
    });
}

/// Other references than the handle's: the last one gives the header back.
#[test]
fn the_last_reference_gives_the_header_back() {
    bounded(3, || {
        let world = World::default();
        let (fiber, handle, dropped, thread) = start::<SMALL>(&world);
        let own = handle.thread().clone();
        let other = thread::spawn(move || drop(own));
        let another = handle.thread().clone();
        drop(handle);
        drop(another);
        other.join().unwrap();
        thread.join().unwrap();
        assert_eq!(dropped.times(), 1);
        all_is_given_back(&world, fiber);
    });
}

/// A fiber's `pthread_t` is an address on its stack: good while the handle is there.
#[test]
fn a_pinned_stack_stays_with_the_header() {
    bounded(3, || {
        let world = World::default();
        let (fiber, handle, dropped, thread) = start::<SMALL>(&world);
        if let Some(stack) = pin::pin(fiber) {
            assert!(!stack.is_null());
            // SAFETY: the world keeps the record.
            let stack = unsafe { &*stack };
            stack.touch();
            // Again, perhaps after the end.
            assert!(pin::pin(fiber).is_some());
            stack.touch();
        }
        drop(handle);
        thread.join().unwrap();
        assert_eq!(dropped.times(), 1);
        all_is_given_back(&world, fiber);
    });
}
