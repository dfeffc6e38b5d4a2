//! An errand: an operation that a fiber wants cancelled by a carrier it has left.
//!
//! It lies in the operation's record, at the beginning, so that asking allocates nothing and the token
//! of the operation is the address of both.

use std::ptr::NonNull;

#[cfg(not(loom))]
use crate::protocol::injector::Linked;
use crate::protocol::sync::Cell;

/// The part of an operation's record by which it is in a carrier's list of errands.
pub(crate) struct Errand {
    next: Cell<Option<ErrandRef>>,
}

/// A reference to an errand. It is in a list only while the record stays, which is until the errand was run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrandRef(NonNull<Errand>);

// SAFETY: an errand is reached by the fiber that makes it, and then under the lock of the list.
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
        // SAFETY: it is in the list, so the record is there (`Carrier::send_errand`).
        unsafe { self.0.as_ref() }.next.get()
    }

    fn set_next(self, next: Option<Self>) {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.next.set(next);
    }
}
