//! Lanes that begin together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A barrier for lanes that begin together, so that they collide.
#[derive(Clone, Debug)]
pub(super) struct Start {
    missing: Arc<AtomicU32>,
}

impl Start {
    pub(super) fn of(lanes: impl Into<u32>) -> Start {
        Start { missing: Arc::new(AtomicU32::new(lanes.into())) }
    }

    /// Waits until all have come here.
    pub(super) fn wait(&self) {
        self.missing.fetch_sub(1, Ordering::Relaxed);
        while self.missing.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }
}
