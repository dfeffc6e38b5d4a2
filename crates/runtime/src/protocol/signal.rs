//! A bit that is sent to a fiber or thread that may be about to wait.
//!
//! The sender sets it and then looks for a wait to end; the receiver begins a wait and then looks at
//! the bit. Both touch the bit by read-modify-writes, which are ordered, each seeing what was written
//! before the one it follows: either the receiver finds the bit, or the sender comes after and finds
//! the wait. (With plain loads and stores each could miss the other.)

use crate::protocol::sync::{AtomicU8, Ordering};

#[derive(Debug)]
pub(crate) struct Signal(AtomicU8);

impl Signal {
    pub(crate) fn new() -> Self {
        Signal(AtomicU8::new(0))
    }

    /// Takes the bit back before any other thread knows of it.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Sets the bit. The sender then ends the receiver's wait.
    #[inline]
    pub(crate) fn send(&self) {
        self.0.swap(1, Ordering::AcqRel);
    }

    /// For the receiver, whose wait has begun: whether the bit was set. Clears it.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) != 0
    }

    /// For the receiver, whose wait has begun: whether the bit is set. Leaves it.
    #[inline]
    pub(crate) fn is_sent(&self) -> bool {
        self.0.fetch_or(0, Ordering::AcqRel) != 0
    }

    /// Whether the bit is set, for a caller that is not about to wait.
    #[inline]
    pub(crate) fn peek(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}
