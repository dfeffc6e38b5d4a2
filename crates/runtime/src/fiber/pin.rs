//! Stacks that stay with the headers of fibers that have ended, for as long as the fibers' `pthread_t`
//! are known.

use std::ptr;

use crate::fiber::furnish::FiberStack;
use crate::fiber::header::{FINISHED, FiberRef, Kind, PINNED};
use crate::protocol::sync::Ordering;

/// The stack of a fiber to which the caller has a counted reference, and which has not FINISHED: the
/// fiber keeps it for as long as there is a reference.
pub(crate) fn pin(fiber: FiberRef) -> Option<*mut FiberStack> {
    let unfinished = |join: u32| (join & FINISHED == 0).then_some(join | PINNED);
    let pinned = fiber.join.fetch_update(Ordering::AcqRel, Ordering::Acquire, unfinished);
    match pinned {
        Err(join) if join & PINNED == 0 => None,
        // Pinned before it finished.
        _ => Some(fiber.stack.load(Ordering::Acquire)),
    }
}

/// Has `put` take back the stack of a fiber that has ended and left it for good; unless it is pinned, and
/// [`take`]'s. The fiber's own reference is given back afterwards.
///
/// Nothing is pinned any more: FINISHED, which this thread has seen set, came first.
#[inline(always)]
pub(crate) fn bury(fiber: FiberRef, put: impl FnOnce(*mut FiberStack)) {
    if fiber.join.load(Ordering::Relaxed) & PINNED == 0 {
        put(fiber.stack.load(Ordering::Relaxed));
        fiber.stack.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The stack of a fiber that was pinned, when no counted reference is left.
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
