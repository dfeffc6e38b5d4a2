//! Robust mutexes that a fiber holds as it ends, and what else the kernel was told about a thread.
//!
//! A thread keeps a list of the robust mutexes it holds, and has told the kernel where: when the
//! thread dies, the kernel marks them as "owner died" and wakes a waiter. libc keeps such a list
//! for a fiber too, in the fiber's block, but the kernel looks at the carrier's. So a fiber does it
//! for itself. It must: were the list left as it is, the next fiber on the block would link its
//! own mutexes to one that may have been freed.
//!
//! The list's shape and the mutex word's bits are the kernel's interface with libc
//! (`linux/futex.h`).

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::layout::Layout;

/// The kernel's `struct robust_list_head`. Entries are linked by their first word, whose lowest
/// bit marks a mutex with priority inheritance.
#[repr(C)]
struct Head {
    first: *mut c_void,
    /// From an entry to the mutex word.
    futex_offset: isize,
    /// A mutex that is just being locked or unlocked.
    pending: *mut c_void,
}

/// How many entries the kernel follows at most, in case the list is damaged.
const LIMIT: usize = 2048;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const OWNER: u32 = 0x3fff_ffff;

impl Layout {
    /// Does for the calling fiber's robust mutexes what the kernel does when a thread dies.
    ///
    /// # Safety
    /// The caller runs on the block of this layout whose lowest address is `low`.
    pub(super) unsafe fn release_robust_mutexes(&self, low: *mut u8) {
        let Some(position) = self.robust else { return };
        let head = low.wrapping_add(position).cast::<Head>();
        // SAFETY: the head lies in the block.
        let (mut entry, offset) = unsafe { ((*head).first, (*head).futex_offset) };
        if entry == head.cast() {
            return;
        }
        // SAFETY: as above.
        let owner = unsafe { low.add(self.tid).cast::<u32>().read() } & OWNER;
        for _ in 0..LIMIT {
            let (address, inherits) = (entry.map_addr(|a| a & !1), entry as usize & 1 != 0);
            if address == head.cast() {
                break;
            }
            // SAFETY: libc linked it, so it is an entry of a mutex that has not been destroyed.
            let next = unsafe { address.cast::<*mut c_void>().read() };
            if !inherits {
                // SAFETY: as above; every access to a mutex word is atomic.
                let word = unsafe {
                    AtomicU32::from_ptr(address.cast::<u8>().wrapping_offset(offset).cast())
                };
                mark_dead(word, owner);
            }
            entry = next;
        }
        // Empty, as on a new thread: the head's link back lies before it.
        // SAFETY: both words lie in the block.
        unsafe {
            (*head).first = head.cast();
            head.cast::<*mut c_void>().sub(1).write(head.cast());
        }
    }
}

fn mark_dead(word: &AtomicU32, owner: u32) {
    let marked = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |value| {
        (value & OWNER == owner).then_some(value & WAITERS | OWNER_DIED)
    });
    if marked.is_ok_and(|value| value & WAITERS != 0) {
        // Robust mutexes are waited for with shared futexes always, hence not FUTEX_PRIVATE_FLAG.
        // SAFETY: wakes one waiter; the word is valid.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    }
}

/// The thread pointer of the kernel's thread that the caller runs on: the carrier's, on a fiber.
///
/// The kernel has been told where the thread's robust mutexes are listed, and the list's head has
/// a fixed place in its `struct pthread`. Safe to call from a signal handler. Null if the kernel
/// does not say.
pub(super) fn kernel_thread_pointer(layout: &Layout) -> *mut u8 {
    let Some(position) = layout.robust else { return ptr::null_mut() };
    let mut head: *mut u8 = ptr::null_mut();
    let mut length = 0_usize;
    // SAFETY: the kernel writes the two variables; 0 is the calling thread.
    let failed =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) != 0 };
    if failed || head.is_null() {
        return ptr::null_mut();
    }
    head.wrapping_sub(position).wrapping_add(layout.tp)
}
