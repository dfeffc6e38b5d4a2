//! An errand: the request to cancel an operation, from a fiber that has moved, to the carrier on which it
//! submitted the operation.
//!
//! It is the first field of the operation's record: sending it allocates nothing, and its address is the
//! operation's token.

use std::ptr::NonNull;

#[cfg(not(loom))]
use crate::protocol::injector::Linked;
use crate::protocol::sync::Cell;

/// The link of an operation's record in a carrier's list of errands.
pub(crate) struct Errand {
    next: Cell<Option<ErrandRef>>,
}

/// A reference to an errand. Valid until the errand was run: the record stays as long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrandRef(NonNull<Errand>);

// SAFETY: an errand is accessed by the fiber that sends it, then under the lock of the list.
unsafe impl Send for ErrandRef {}

impl Errand {
    pub(crate) fn new() -> Errand {
        Errand { next: Cell::new(None) }
    }
}

impl ErrandRef {
    pub(crate) fn new(errand: &Errand) -> ErrandRef {
        ErrandRef(NonNull::from(errand))
    }

    /// The token of its operation.
    pub(crate) fn token(self) -> u64 {
        self.0.as_ptr() as u64
    }
}

#[cfg(not(loom))]
impl Linked for ErrandRef {
    fn next(self) -> Option<Self> {
        // SAFETY: the errand is in the list, so it was not run, and its record is there.
        unsafe { self.0.as_ref() }.next.get()
    }

    fn set_next(self, next: Option<Self>) {
        // SAFETY: as in `next`; or it is being sent, by the fiber on whose stack the record lies.
        unsafe { self.0.as_ref() }.next.set(next);
    }
}
