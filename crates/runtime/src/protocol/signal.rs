//! A bit that is sent to a fiber or thread that may be about to wait.
//!
//! The sender sets the bit, then ends the receiver's wait if there is one. The receiver begins a wait,
//! then looks at the bit. Both access the bit by read-modify-writes, of which one comes first, and the
//! second sees what was done before the first. So either the receiver finds the bit, or the sender finds
//! the wait. (By plain loads and stores each could miss the other.)

use crate::protocol::sync::{AtomicU8, Ordering};

#[derive(Debug)]
pub(crate) struct Signal(AtomicU8);

impl Signal {
    pub(crate) fn new() -> Self {
        Signal(AtomicU8::new(0))
    }

    /// Clears the bit, before another thread can send it.
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
