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

impl Stats {
    /// Fibers that were spawned here, have ended, or have begun a wait: a carrier that counts none of these has only run
    /// fibers that yield.
    pub(crate) fn events(&self) -> u64 {
        let counts = [&self.spawned, &self.ended].into_iter().chain(&self.parks);
        counts.map(|count| count.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

#[inline(always)]
pub(crate) fn count(counter: &AtomicU64) {
    // One writer, so no read-modify-write is needed.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}
