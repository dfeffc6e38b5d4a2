//! Which process this is, by the number of forks that led to it.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the forks between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A number that differs in the child of a fork from the parent's.
#[inline]
pub(crate) fn current() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this is the child of a fork.
#[inline]
pub(crate) fn is_child() -> bool {
    current() > 0
}

/// Called once in the child of a fork.
pub(crate) fn enter_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Ends the process as the end of its last thread does. By libc's `exit`, for std's takes a lock that a
/// thread of the parent's may have held during the fork.
pub(crate) fn end() -> ! {
    // SAFETY: `exit` may not be called by two threads, nor by its own handlers. The caller is the only
    // thread, and in the function of a fiber or an offloaded call.
    unsafe { libc::exit(0) }
}
