//! Steps of work, counted in this crate's own tests: see `crowds`. In a program they are nothing.

#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
static STEPS: AtomicU64 = AtomicU64::new(0);

/// One more: a place in a list is looked at, a wait is ended or attempted to be.
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
