//! The arguments of `futex(2)`.

use std::ffi::{c_int, c_long};

use crate::call::sys::Word;
use crate::call::user::User;

/// Matches every waiter.
pub(crate) const ANY: u32 = libc::FUTEX_BITSET_MATCH_ANY as u32;

/// libc's own `syscall(2)` with the number of `futex(2)`: it makes threads wait, and wakes them.
///
/// It is passed as a type, because our `syscall` calls this module and so stands above it.
pub(crate) trait Kernel {
    fn futex(arguments: [Word<'_>; 6]) -> c_long;
}

/// The arguments of `futex(2)`, as they come.
#[derive(Clone, Copy)]
pub(crate) struct Call<'u> {
    pub(crate) word: User<'u, u32>,
    pub(crate) operation: c_int,
    pub(crate) value: u32,
    /// A `timespec`, or the second count.
    pub(crate) fourth: User<'u>,
    pub(crate) second_word: User<'u, u32>,
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
pub(crate) fn key(word: User<u32>, operation: c_int) -> usize {
    word.address() | usize::from(!is_private(operation))
}

impl Call<'_> {
    pub(crate) fn command(&self) -> c_int {
        command(self.operation)
    }

    pub(crate) fn key(&self, word: User<u32>) -> usize {
        key(word, self.operation)
    }

    /// Makes libc's own call, with another command and other counts.
    pub(crate) fn ask_kernel<K: Kernel>(
        &self,
        command: c_int,
        value: u32,
        fourth: Word<'_>,
    ) -> c_long {
        let operation = self.operation & !libc::FUTEX_CMD_MASK | command;
        K::futex([
            self.word.into(),
            operation.into(),
            value.into(),
            fourth,
            self.second_word.into(),
            self.third_value.into(),
        ])
    }

    /// Makes libc's own call, as it came.
    pub(crate) fn pass_on<K: Kernel>(&self) -> c_long {
        self.ask_kernel::<K>(self.command(), self.value, self.fourth.into())
    }
}
