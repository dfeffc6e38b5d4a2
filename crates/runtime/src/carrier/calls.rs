//! Calls for the stacks that carriers keep for their next fibers: see `process::shortage`.

use crate::protocol::sync::{AtomicU64, Ordering};

/// How often stacks have been called in.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// How often stacks have been called in. A carrier that has heard fewer calls gives its stacks back and
/// notes the number: see [`Carrier::calls_heard`](crate::carrier::carrier::Carrier::calls_heard).
#[inline]
pub(crate) fn made() -> u64 {
    CALLS.load(Ordering::SeqCst)
}

/// Calls stacks in; returns the call's number.
pub(crate) fn make() -> u64 {
    CALLS.fetch_add(1, Ordering::SeqCst) + 1
}
