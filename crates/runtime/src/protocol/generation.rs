//! Which process this is: the first one, or the child of a fork.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the forks between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Which process this is: changes in the child of a fork.
#[inline]
pub(crate) fn current() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this is the child of a fork.
#[inline]
pub(crate) fn is_child() -> bool {
    current() > 0
}

/// Notes that this is the child of the process that it was.
pub(crate) fn enter_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Ends the process, as the end of its last thread does: by libc alone. (What std does at the end of
/// a process takes a lock that a thread of the parent's may have held: see `launch`.)
pub(crate) fn end() -> ! {
    // SAFETY: runs what was registered for the end of the process, on a thread of its own.
    unsafe { libc::exit(0) }
}
