//! Headers, which go back with their last counted reference.

use crate::carrier;
use crate::fiber::{FREE, FiberRef};
use crate::furnish;
use crate::join;
use crate::sync::Ordering;

pub(crate) fn release(fiber: FiberRef) {
    if fiber.give_back() {
        fiber.run.store(FREE, Ordering::Relaxed);
        if let Some(stack) = join::take_pinned(fiber) {
            furnish::put(stack);
        }
        carrier::of(fiber).header_is_free();
    }
}

/// Visits the headers that `carrier` knows of.
pub(crate) fn for_each_alive(visit: impl FnMut(FiberRef)) {
    carrier::for_each_alive(visit);
}
