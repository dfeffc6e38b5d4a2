//! Time, which passes when a model says so.

use std::time::Duration;

pub(crate) use carefree_reactor::clock::NEVER;

use crate::protocol::sync::{AtomicU64, Ordering};

loom::lazy_static! {
    static ref NOW: AtomicU64 = AtomicU64::new(0);
}

pub(crate) fn now() -> u64 {
    NOW.load(Ordering::Acquire)
}

/// Later than any time that a model sets.
pub(crate) fn after(_duration: Duration) -> u64 {
    NEVER - 1
}

pub(crate) fn set(now: u64) {
    NOW.store(now, Ordering::Release);
}
