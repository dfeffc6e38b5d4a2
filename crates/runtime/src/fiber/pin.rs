//! Stacks that stay when their fibers have ended: a fiber's `pthread_t` is an address on its stack, so once
//! a program knows it, the stack is *pinned*, and stays with the fiber's header.

use std::ptr;

use crate::fiber::furnish::FiberStack;
use crate::fiber::header::{FINISHED, FiberRef, Kind, PINNED};
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
