//! Calls for the stacks that carriers keep at hand: see `shortage`.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often stacks have been called in.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// How often stacks have been called in: a carrier that has not heard as many calls gives back what
/// it keeps at hand, and says so by [`Carrier::calls_heard`](crate::carrier::carrier::Carrier::calls_heard).
#[inline]
pub(crate) fn made() -> u64 {
    CALLS.load(Ordering::SeqCst)
}

/// Calls stacks in; returns the call's number.
pub(crate) fn make() -> u64 {
    CALLS.fetch_add(1, Ordering::SeqCst) + 1
}
