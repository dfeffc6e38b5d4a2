//! Which process the table is of: the child of a `vfork` runs in its parent's memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_ground::kernel;

/// The process that the table is of.
static PROCESS: AtomicUsize = AtomicUsize::new(0);

fn process() -> usize {
    // SAFETY: takes nothing.
    unsafe { kernel::call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0)
}

/// The table is the calling process's from now on.
pub(super) fn adopt() {
    PROCESS.store(process(), Ordering::Relaxed);
}

/// Whether this is the child of a `vfork`, which runs in its parent's memory: what it closes is its own.
pub(crate) fn is_beside_parent() -> bool {
    process() != PROCESS.load(Ordering::Relaxed)
}
