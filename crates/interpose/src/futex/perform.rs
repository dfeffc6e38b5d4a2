//! The futex: what `std`, parking_lot and crossbeam wait on, through `syscall`.
//!
//! A fiber that would wait parks in the runtime's lot; its key is the word's address. A plain thread
//! waits in the kernel. So who wakes asks both: fibers first, and the kernel for what is left of the
//! count, always, for its waiters cannot be seen from here. That no wake-up is lost follows for each
//! side from its own rules: the lot's ([`carefree_runtime::lot`]) for a fiber, whose look at the word
//! is its `validate`; the kernel's for a thread. The waker has changed the word before either is
//! asked.
//!

use std::ffi::{c_int, c_long};

use crate::call::answer::answer;
use crate::call::fiber::on_fiber;
use crate::futex::call::{ANY, Call, Kernel, command};
use crate::futex::requeue::{requeue, wake_after_operation};
use crate::futex::wait::{Wrong, wait};
use crate::futex::wake::wake;

/// `futex(2)` by anybody, but for a plain `FUTEX_WAKE`, which is [`wake`].
///
/// # Safety
/// As for the system call; on a fiber, the words it is to look at are readable.
#[inline(never)]
pub(crate) unsafe fn futex<K: Kernel>(
    word: usize,
    operation: c_int,
    value: u32,
    fourth: usize,
    second_word: usize,
    third_value: u32,
) -> c_long {
    let mask = match command(operation) {
        libc::FUTEX_WAIT_BITSET => Some(third_value),
        libc::FUTEX_WAIT => Some(ANY),
        _ => None,
    };
    // SAFETY: the caller's promise, in each case.
    unsafe {
        match mask {
            Some(mask) if on_fiber() => match wait(word, operation, value, fourth, mask) {
                Ok(waited) => answer(waited) as c_long,
                // In the kernel's words, who may find something else wrong first. It does not wait.
                Err(Wrong) => {
                    Call { word, operation, value, fourth, second_word, third_value }.pass_on::<K>()
                }
            },
            _ => others::<K>(Call { word, operation, value, fourth, second_word, third_value }),
        }
    }
}

/// Whatever does not let a fiber wait.
///
/// # Safety
/// As for [`futex`].
#[inline(never)]
unsafe fn others<K: Kernel>(call: Call) -> c_long {
    // SAFETY: the caller's promise, in each case.
    unsafe {
        match call.command() {
            libc::FUTEX_WAKE_BITSET => {
                wake::<K>(call.word, call.operation, call.value, call.third_value)
            }
            libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => requeue::<K>(call),
            libc::FUTEX_WAKE_OP => wake_after_operation::<K>(call),
            _ => call.pass_on::<K>(),
        }
    }
}
