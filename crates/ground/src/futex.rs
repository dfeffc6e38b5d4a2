//! Sleeping on a word.

use std::sync::atomic::AtomicU32;

use crate::kernel;

/// Sleeps while `word` holds `value`, until a [`wake`]. May also return spuriously.
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    // Every failure (the word has changed, a signal) is a spurious return.
    // SAFETY: the kernel only reads the word.
    let _ = unsafe {
        kernel::call(libc::SYS_futex, [word.as_ptr() as usize, operation, value as usize, 0, 0, 0])
    };
}

/// Wakes one thread that sleeps on `word`, whose memory may have been freed.
pub(crate) fn wake(word: *const AtomicU32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the kernel only compares the address; if nothing is mapped there it returns an error.
    let _ = unsafe { kernel::call(libc::SYS_futex, [word as usize, operation, 1, 0, 0, 0]) };
}
