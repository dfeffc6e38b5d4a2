//! Stacks that stay when their fibers have ended: a fiber's `pthread_t` is an address on its stack, so once
//! a program knows it, the stack is *pinned*, and stays with the fiber's header.

use std::ptr;

use crate::fiber::furnish::FiberStack;
use crate::fiber::header::{ALIVE, FINISHED, FiberRef, Kind, PINNED};
use crate::protocol::sync::Ordering;

/// Pins the stack of a fiber to which the caller has a counted reference: it stays as long as any such
/// reference. `None` if the fiber has FINISHED, and its stack was not pinned before.
pub(crate) fn pin(fiber: FiberRef) -> Option<*mut FiberStack> {
    let unfinished = |join: u32| (join & FINISHED == 0).then_some(join | PINNED);
    let pinned = fiber.join.fetch_update(Ordering::AcqRel, Ordering::Acquire, unfinished);
    match pinned {
        Err(join) if join & PINNED == 0 => None,
        // Pinned now, or before the fiber finished.
        _ => Some(fiber.stack.load(Ordering::Acquire)),
    }
}

/// Has `put` take back the stack of a fiber that has ended and left it for good, unless the stack is pinned:
/// then [`take`] returns it later. To be called before the fiber's own reference is given back.
///
/// The stack is not pinned meanwhile: FINISHED was set before.
#[inline(always)]
pub(crate) fn bury(fiber: FiberRef, put: impl FnOnce(*mut FiberStack)) {
    if fiber.join.load(Ordering::Relaxed) & PINNED == 0 {
        put(fiber.stack.load(Ordering::Relaxed));
        fiber.stack.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The pinned stack of a fiber to which no counted reference is left.
#[inline(always)]
pub(crate) fn take(fiber: FiberRef) -> Option<*mut FiberStack> {
    if fiber.kind.get() != Kind::Fiber {
        return None;
    }
    let stack = fiber.stack.load(Ordering::Relaxed);
    if stack.is_null() {
        return None;
    }
    fiber.stack.store(ptr::null_mut(), Ordering::Relaxed);
    Some(stack)
}

/// Takes a counted reference to a fiber that is pinned and has not finished, for a caller that has none: until
/// it is given back, the stack stays, and with it all that lies on it. False if the fiber is not such a one;
/// then `freed` is called if the caller happened to hold the last reference meanwhile.
///
/// # Proof
/// A count above 0 is raised here by one read-modify-write, and the header is cleared only by the party that
/// lowers the count to 0. So from a success until the reference is given back, the header is cleared by no
/// other party, and belongs to one fiber.
///
/// Which one? The success reads a count that a `begin` has written, or one that read-modify-writes have made
/// of it; it acquires what that `begin` has released, among it `join` without [`PINNED`]. So a `PINNED` that is
/// read afterwards was set for this fiber, by a release after what lies on the stack was written. The look
/// before only spares other fibers the read-modify-write: what it reads may be of a fiber that has ended since.
/// (A fiber that is pinned before it starts has no stack yet. Hosted threads, which this is for, have theirs from their
/// creation on.)
pub(crate) fn hold(fiber: FiberRef, freed: impl FnOnce(FiberRef)) -> bool {
    let is_pinned = || fiber.join.load(Ordering::Acquire) & (PINNED | FINISHED) == PINNED;
    if fiber.run.load(Ordering::Acquire) != ALIVE || !is_pinned() {
        return false;
    }
    let one_more = |count: u32| (count != 0).then(|| count + 1);
    if fiber.references.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_err() {
        return false;
    }
    if is_pinned() {
        return true;
    }
    if fiber.give_back() {
        freed(fiber);
    }
    false
}
