//! A futex word.

use super::raw::syscall;
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
    /// `CLOCK_MONOTONIC`, `None` to wait for ever. May return at any time besides.
    ///
    /// The kernel compares the word and lies down in one step with respect to `wake`: a change of
    /// the word followed by `wake` is either seen by the comparison or ends the sleep.
    pub(crate) fn wait(&self, expected: u32, deadline: Option<u64>) {
        let timeout = deadline.map(|deadline| libc::timespec {
            tv_sec: (deadline / 1_000_000_000) as libc::time_t,
            tv_nsec: (deadline % 1_000_000_000) as libc::c_long,
        });
        // FUTEX_WAIT takes its timeout from now; only the bitset form takes a moment, and a
        // carrier that is preempted on its way into the kernel must not sleep that much longer.
        let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the timeout live until the call returns, and the kernel only reads
        // both. Without a timeout the pointer is null, which it takes for "no limit".
        let result = unsafe {
            syscall(
                libc::SYS_futex,
                [
                    self.0.as_ptr() as usize,
                    operation as usize,
                    expected as usize,
                    timeout.as_ref().map_or(0, |time| &raw const *time as usize),
                    0,
                    libc::FUTEX_BITSET_MATCH_ANY as u32 as usize,
                ],
            )
        };
        match result {
            Ok(_) | Err(libc::ETIMEDOUT | libc::EAGAIN | libc::EINTR) => {}
            Err(errno) => panic!(
                "the kernel refused FUTEX_WAIT_BITSET with errno {errno}: \
                 is a seccomp filter in force that does not know it?"
            ),
        }
    }

    /// Ends the sleep of one thread, if one sleeps here.
    pub(crate) fn wake(&self) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: FUTEX_WAKE uses the word's address as a name and does not touch memory.
        let _ = unsafe {
            syscall(libc::SYS_futex, [self.0.as_ptr() as usize, operation as usize, 1, 0, 0, 0])
        };
    }
}
