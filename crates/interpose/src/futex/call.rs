//! The arguments of `futex(2)`.

use std::ffi::{c_int, c_long};

/// Matches every waiter.
pub(crate) const ANY: u32 = libc::FUTEX_BITSET_MATCH_ANY as u32;

/// libc's own `syscall(2)` with the number of `futex(2)`: it makes threads wait, and wakes them.
///
/// It is passed as a type, because our `syscall` calls this module and so stands above it.
pub(crate) trait Kernel {
    /// # Safety
    /// As for the system call.
    unsafe fn futex(arguments: [usize; 6]) -> c_long;
}

/// The arguments of `futex(2)`, as they come.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) word: usize,
    pub(crate) operation: c_int,
    pub(crate) value: u32,
    /// A `timespec`, or the second count.
    pub(crate) fourth: usize,
    pub(crate) second_word: usize,
    pub(crate) third_value: u32,
}

/// The operation without its flags.
#[inline(always)]
pub(crate) fn command(operation: c_int) -> c_int {
    operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

#[inline(always)]
pub(crate) fn is_private(operation: c_int) -> bool {
    operation & libc::FUTEX_PRIVATE_FLAG != 0
}

/// The key that fibers wait by. A private and a shared wait for the same word have different ones.
#[inline(always)]
pub(crate) fn key(word: usize, operation: c_int) -> usize {
    word | usize::from(!is_private(operation))
}

impl Call {
    pub(crate) fn command(&self) -> c_int {
        command(self.operation)
    }

    pub(crate) fn key(&self, word: usize) -> usize {
        key(word, self.operation)
    }

    /// Makes libc's own call, with another command and other counts.
    ///
    /// # Safety
    /// As for the call as it came.
    pub(crate) unsafe fn ask_kernel<K: Kernel>(
        &self,
        command: c_int,
        value: u32,
        fourth: usize,
    ) -> c_long {
        let operation = self.operation & !libc::FUTEX_CMD_MASK | command;
        // SAFETY: the caller's promise.
        unsafe {
            K::futex([
                self.word,
                operation as usize,
                value as usize,
                fourth,
                self.second_word,
                self.third_value as usize,
            ])
        }
    }

    /// # Safety
    /// As for the call as it came.
    pub(crate) unsafe fn pass_on<K: Kernel>(&self) -> c_long {
        // SAFETY: the caller's promise.
        unsafe { self.ask_kernel::<K>(self.command(), self.value, self.fourth) }
    }
}
