//! What a carrier counts.

use crate::protocol::reason::Reason;
use crate::protocol::sync::{AtomicU64, Ordering};

/// Counts of one carrier: see `metrics`. The carrier alone writes them.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) spawned: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) switches: AtomicU64,
    /// Waits in which a fiber left its stack, by their reason's code.
    pub(crate) parks: [AtomicU64; Reason::COUNT],
    pub(crate) steals: AtomicU64,
    /// Of these, from a carrier that did not answer.
    pub(crate) forced: AtomicU64,
    /// Times it asked another carrier for fibers.
    pub(crate) requests: AtomicU64,
}

#[inline(always)]
pub(crate) fn count(counter: &AtomicU64) {
    // One writer, so no read-modify-write is needed.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}
