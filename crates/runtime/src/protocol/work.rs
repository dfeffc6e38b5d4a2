//! Steps of work, counted in this crate's own tests only: see `crowds`.

#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Counts a step: a look at an entry of a list, or an attempt to end a wait.
#[inline(always)]
pub(crate) fn step() {
    #[cfg(test)]
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// Steps since the start of the process.
#[cfg(all(test, not(loom)))]
pub(crate) fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}
