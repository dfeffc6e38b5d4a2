//! Robust mutexes: those that a fiber holds when it ends, and where the kernel looks for a thread's.
//!
//! A thread keeps a list of the robust mutexes that it holds, and has told the kernel where: when
//! the thread dies, the kernel marks them as "owner died" and wakes a waiter. libc keeps such a
//! list for a fiber too, in the fiber's block, but the kernel looks at the carrier's. So a fiber
//! does the same for itself when it ends. If it left the list as it is, the next fiber on the block
//! would link its own mutexes to one that may have been freed.
//!
//! The list's shape and the mutex word's bits are the kernel's interface with libc
//! (`linux/futex.h`).

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel's `struct robust_list_head`. Entries are linked by their first word, whose lowest
/// bit marks a mutex with priority inheritance.
#[repr(C)]
struct Head {
    first: *mut c_void,
    /// From an entry to the mutex word.
    futex_offset: isize,
    /// A mutex that is being locked or unlocked.
    pending: *mut c_void,
}

/// How many entries the kernel follows at most, in case the list is damaged.
const LIMIT: usize = 2048;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const OWNER: u32 = 0x3fff_ffff;

/// Does for the robust mutexes in the list at `head` what the kernel does when their owner, the thread
/// with the id `owner`, dies.
///
/// # Safety
/// `head` is the list head in the calling fiber's block, whose id is `owner`.
pub(super) unsafe fn release(head: *mut u8, owner: u32) {
    let head = head.cast::<Head>();
    // SAFETY: the head lies in the fiber's block, and libc has initialised it.
    let (mut entry, offset) = unsafe { ((*head).first, (*head).futex_offset) };
    if entry == head.cast() {
        return;
    }
    for _ in 0..LIMIT {
        let (address, inherits) = (entry.map_addr(|a| a & !1), entry as usize & 1 != 0);
        if address == head.cast() {
            break;
        }
        // SAFETY: libc has linked the entry, so it belongs to a mutex that was not destroyed.
        let next = unsafe { address.cast::<*mut c_void>().read() };
        let word = address.cast::<u8>().wrapping_offset(offset).cast();
        // SAFETY: the mutex of this entry has its word there, which is only accessed atomically.
        mark_dead(unsafe { AtomicU32::from_ptr(word) }, owner & OWNER, inherits);
        entry = next;
    }
    // As on a new thread: empty, with the link back right before the head.
    // SAFETY: both words lie in the block.
    unsafe {
        (*head).first = head.cast();
        head.cast::<*mut c_void>().sub(1).write(head.cast());
    }
}

fn mark_dead(word: &AtomicU32, owner: u32, inherits: bool) {
    let marked = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |value| {
        (value & OWNER == owner).then_some(value & WAITERS | OWNER_DIED)
    });
    // For a mutex with priority inheritance no thread waits in the kernel, which knows no thread that owns it.
    if !inherits && marked.is_ok_and(|value| value & WAITERS != 0) {
        // Not FUTEX_PRIVATE_FLAG: waiters for robust mutexes always use shared futexes.
        // SAFETY: wakes one waiter; the kernel does not access the word.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    }
}

/// The list head that the kernel was told of for the kernel thread that the caller runs on (the
/// carrier's, on a fiber) and the length of the structure; `None` if the kernel does not say.
/// Async-signal-safe.
pub(super) fn kernel_head() -> Option<(*mut u8, usize)> {
    let mut head: *mut u8 = ptr::null_mut();
    let mut length = 0_usize;
    // SAFETY: the kernel writes the two variables; 0 means the calling thread.
    let failed =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) != 0 };
    (!failed && !head.is_null()).then_some((head, length))
}
