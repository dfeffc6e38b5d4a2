//! The parking lot: who waits for which key.
//!
//! A key is any number that the waiting and the waking side agree on, an address as a rule. Keys
//! are spread over a fixed number of buckets, each a list of waiters under a lock; a waiter is a
//! fiber or a plain thread.
//!
//! # No lost wake-up
//!
//! A waiter enters the list and asks `validate` under the bucket's lock; who wakes changes the
//! condition first, then takes the lock. So either `validate` sees the change, or the waker sees
//! the waiter.
//!
//! A waiter whose wait was ended by something else (deadline, cancellation) is still in the list.
//! It takes itself out when it goes on. A waker that meets it meanwhile cannot claim it, takes it
//! out, and looks further: a wake-up is never spent on somebody who is awake.

use std::sync::atomic::Ordering;

use carefree_context::lock::Lock;

use crate::episode::{Claim, Outcome};
use crate::fiber::FiberRef;
use crate::queue::Place;
use crate::wait;

const BUCKETS: usize = 4096;

struct Bucket {
    first: Option<FiberRef>,
    last: Option<FiberRef>,
}

static LOT: [Lock<Bucket>; BUCKETS] =
    [const { Lock::new(Bucket { first: None, last: None }) }; BUCKETS];

fn bucket(key: usize) -> &'static Lock<Bucket> {
    // Fibonacci hashing: the high bits of the product depend on all bits of the key.
    let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &LOT[(hash >> (64 - BUCKETS.trailing_zeros())) as usize]
}

impl Bucket {
    fn append(&mut self, fiber: FiberRef) {
        fiber.next.set(None);
        fiber.previous.set(self.last);
        fiber.linked.set(true);
        match self.last {
            Some(last) => last.next.set(Some(fiber)),
            None => self.first = Some(fiber),
        }
        self.last = Some(fiber);
    }

    fn remove(&mut self, fiber: FiberRef) {
        let (previous, next) = (fiber.previous.get(), fiber.next.get());
        match previous {
            Some(previous) => previous.next.set(next),
            None => self.first = next,
        }
        match next {
            Some(next) => next.previous.set(previous),
            None => self.last = previous,
        }
        fiber.linked.set(false);
    }

    fn has(&self, key: usize) -> bool {
        let mut cursor = self.first;
        while let Some(fiber) = cursor {
            if fiber.key.load(Ordering::Relaxed) == key {
                return true;
            }
            cursor = fiber.next.get();
        }
        false
    }
}

/// Enters `fiber`, whose wait `begin` starts, into the list for `key`, if `validate` says that
/// there is something to wait for.
pub(crate) fn enter<R>(
    key: usize,
    fiber: FiberRef,
    validate: impl FnOnce() -> bool,
    begin: impl FnOnce() -> R,
) -> Option<R> {
    let mut bucket = bucket(key).lock();
    if !validate() {
        return None;
    }
    let begun = begin();
    bucket.append(fiber);
    Some(begun)
}

/// Takes `fiber` out of the list for `key` after its wait has ended, if it is still there.
pub(crate) fn leave(key: usize, fiber: FiberRef) {
    let mut bucket = bucket(key).lock();
    if fiber.linked.get() {
        bucket.remove(fiber);
    }
}

/// Wakes up to `count` of those that wait for `key`, the longest waiting first. Returns how many.
///
/// What the caller wrote before, they see after.
pub fn unpark(key: usize, count: usize) -> usize {
    unpark_to(key, count, Place::Next)
}

/// [`unpark`] with a say in when those woken run.
pub(crate) fn unpark_to(key: usize, count: usize, place: Place) -> usize {
    unpark_then(key, count, place, |_, _| ())
}

/// [`unpark_to`]; then, while nobody can begin to wait for `key`, calls `then` with the number of
/// those woken and a function that says whether others are left. `then` must not park, panic or
/// unpark.
pub(crate) fn unpark_then(
    key: usize,
    count: usize,
    place: Place,
    then: impl FnOnce(usize, &dyn Fn() -> bool),
) -> usize {
    let mut woken = 0;
    // Those to make ready once the lock is free, chained through `next`: they are off their stacks
    // and out of the list, so the link is ours.
    let (mut first, mut last): (Option<FiberRef>, Option<FiberRef>) = (None, None);
    {
        let mut bucket = bucket(key).lock();
        let mut cursor = bucket.first;
        while let (Some(fiber), true) = (cursor, woken < count) {
            cursor = fiber.next.get();
            if fiber.key.load(Ordering::Relaxed) != key {
                continue;
            }
            bucket.remove(fiber);
            match fiber.episode.claim_by(u64::MAX, Outcome::Unparked) {
                Claim::Lost => continue,
                Claim::Early => {}
                Claim::Thread { counted } => wait::wake_thread(fiber, counted),
                Claim::Ready => {
                    fiber.next.set(None);
                    match last {
                        Some(last) => last.next.set(Some(fiber)),
                        None => first = Some(fiber),
                    }
                    last = Some(fiber);
                }
            }
            woken += 1;
        }
        then(woken, &|| bucket.has(key));
    }
    while let Some(fiber) = first {
        first = fiber.next.get();
        wait::make_ready(fiber, place);
    }
    woken
}
