//! Children of `vfork`, in their parent's memory.
//!
//! To this library such a child looks like its parent's thread. But what it blocks is its own: the kernel's mask,
//! which it begins with as its carrier's. And what has come for the thread is the parent's to handle.

use std::sync::atomic::{AtomicU32, Ordering};

use carefree_runtime::hosted;

use crate::signal::set::change_kernels;
use crate::thread::record::Record;

/// The process whose threads are hosted.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// The last such child that has its mask in force in the kernel.
static ENTERED: AtomicU32 = AtomicU32::new(0);

/// The calling process is the parent from now on.
pub(super) fn note_parent() {
    PARENT.store(std::process::id(), Ordering::Relaxed);
}

/// Whether the calling process is such a child, of one that has hosted threads.
pub(super) fn is_one() -> bool {
    std::process::id() != PARENT.load(Ordering::Relaxed)
}

/// Whether the calling process is such a child; for one that may have no hosted threads yet.
pub(crate) fn is_child() -> bool {
    hosted::is_hosting() && is_one()
}

/// What the calling child blocks, which is the thread of `record`. From now on the kernel knows it.
pub(super) fn mask(record: &Record) -> u64 {
    let own = std::process::id();
    if ENTERED.swap(own, Ordering::Relaxed) != own {
        change_kernels(libc::SIG_SETMASK, Some(record.mask.load(Ordering::SeqCst)));
    }
    change_kernels(libc::SIG_BLOCK, None)
}
