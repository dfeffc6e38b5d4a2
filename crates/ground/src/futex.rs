//! Sleeping on a word.

use std::sync::atomic::AtomicU32;

use crate::kernel;

/// Sleeps while `word` holds `value`; wakes for a [`wake`], and sometimes for nothing.
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the kernel only reads the word; every failure (it has changed, a signal) is a wake-up
    // for nothing.
    let _ = unsafe {
        kernel::call(libc::SYS_futex, [word.as_ptr() as usize, operation, value as usize, 0, 0, 0])
    };
}

/// Wakes one thread that sleeps on `word`, which need not exist any more.
pub(crate) fn wake(word: *const AtomicU32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the kernel only compares the address; where nothing is, it says so.
    let _ = unsafe { kernel::call(libc::SYS_futex, [word as usize, operation, 1, 0, 0, 0]) };
}
