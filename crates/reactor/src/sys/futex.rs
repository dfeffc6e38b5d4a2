//! A futex word.

use carefree_ground::{fatal, host};

use super::raw;
use crate::clock::timespec;
use std::sync::atomic::AtomicU32;

/// A word that threads can sleep on.
#[derive(Debug)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    pub(crate) const fn new(value: u32) -> Self {
        Futex(AtomicU32::new(value))
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps while the word is `expected`, until [`Futex::wake`] or `deadline`: nanoseconds on
    /// `CLOCK_MONOTONIC`, `None` to wait for ever. May also return spuriously.
    ///
    /// With respect to `wake`, the kernel compares the word and goes to sleep in one step: a change of
    /// the word followed by `wake` is either seen by the comparison or ends the sleep.
    pub(crate) fn wait(&self, expected: u32, deadline: Option<u64>) {
        let timeout = deadline.map(timespec);
        // FUTEX_WAIT takes a duration; only the bitset form takes a time, and a carrier that is
        // preempted on its way into the kernel must not sleep longer for it.
        let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the kernel only reads the word and the timeout, which live until the call returns. A
        // null pointer means no timeout.
        let result = unsafe {
            futex([
                self.0.as_ptr() as usize,
                operation as usize,
                expected as usize,
                timeout.as_ref().map_or(0, |time| &raw const *time as usize),
                0,
                libc::FUTEX_BITSET_MATCH_ANY as u32 as usize,
            ])
        };
        match result {
            Ok(_) | Err(libc::ETIMEDOUT | libc::EAGAIN | libc::EINTR) => {}
            Err(errno) => fatal::abort(format_args!(
                "the kernel refused FUTEX_WAIT_BITSET with errno {errno}: \
                 is a seccomp filter in force that does not know it?"
            )),
        }
    }

    /// Wakes one thread that sleeps here, if there is one.
    pub(crate) fn wake(&self) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: FUTEX_WAKE only uses the word's address, and accesses no memory.
        let _ = unsafe { futex([self.0.as_ptr() as usize, operation as usize, 1, 0, 0, 0]) };
    }
}

/// The system call `futex`.
///
/// # Safety
/// As for the system call.
unsafe fn futex(arguments: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: as this function demands.
    unsafe {
        match host::futex(arguments) {
            Some(result) => result,
            None => raw::syscall(libc::SYS_futex, arguments),
        }
    }
}
