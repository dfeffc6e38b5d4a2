//! The futex: what `std`, parking_lot and crossbeam wait on, through `syscall`.
//!
//! A fiber that would wait parks in the runtime's lot, by the word's address (or has the ring wait for a word that
//! another process changes: [`outside`](crate::futex::outside)). A plain thread waits in the
//! kernel. So a waker wakes in both: fibers first, and then the kernel for the rest of the count, always,
//! because the kernel's waiters cannot be seen from here. No wake-up is lost, by the rules of each side: the
//! lot's ([`carefree_runtime::lot`]) for a fiber, which looks at the word as its `validate`; the kernel's for a
//! thread. The waker has changed the word before it calls either.

use std::ffi::{c_int, c_long};

use crate::call::answer::answer;
use crate::call::fiber::on_fiber;
use crate::call::user::User;
use crate::futex::call::{ANY, Call, Kernel, command};
use crate::futex::requeue::{requeue, wake_after_operation};
use crate::futex::wait::{Wrong, is_plain, wait, wait_plain};
use crate::futex::wake::wake;

/// `futex(2)` on a fiber or a thread, except a plain `FUTEX_WAKE`, which is [`wake`].
///
/// What std's locks and channels ask for needs few instructions and a small frame, so all else is in functions of
/// its own.
#[inline(never)]
pub(crate) fn futex<K: Kernel>(
    word: User<u32>,
    operation: c_int,
    value: u32,
    fourth: User,
    second_word: User<u32>,
    third_value: u32,
) -> c_long {
    let mask = match command(operation) {
        libc::FUTEX_WAIT_BITSET => third_value,
        libc::FUTEX_WAIT => ANY,
        _ => return others::<K>(word, operation, value, fourth, second_word, third_value),
    };
    match on_fiber() {
        true if fourth.is_null() && is_plain(word, operation, mask) => {
            wait_plain(word, value, mask)
        }
        true => wait_otherwise::<K>(word, operation, value, fourth, second_word, third_value),
        false => others::<K>(word, operation, value, fourth, second_word, third_value),
    }
}

/// A wait of a fiber that is not [plain](is_plain).
#[inline(never)]
fn wait_otherwise<K: Kernel>(
    word: User<u32>,
    operation: c_int,
    value: u32,
    fourth: User,
    second_word: User<u32>,
    third_value: u32,
) -> c_long {
    let mask = if command(operation) == libc::FUTEX_WAIT { ANY } else { third_value };
    match wait(word, operation, value, fourth.cast(), mask) {
        Ok(waited) => answer(waited) as c_long,
        // The kernel reports what is wrong, which may be something else. It does not wait.
        Err(Wrong) => {
            Call { word, operation, value, fourth, second_word, third_value }.pass_on::<K>()
        }
    }
}

/// All calls but those that make a fiber wait.
#[inline(never)]
fn others<K: Kernel>(
    word: User<u32>,
    operation: c_int,
    value: u32,
    fourth: User,
    second_word: User<u32>,
    third_value: u32,
) -> c_long {
    let call = Call { word, operation, value, fourth, second_word, third_value };
    match call.command() {
        // The kernel refuses it for all of these.
        _ if operation & libc::FUTEX_CLOCK_REALTIME != 0 => call.pass_on::<K>(),
        libc::FUTEX_WAKE_BITSET => wake::<K>(word, operation, value, third_value),
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => requeue::<K>(call),
        libc::FUTEX_WAKE_OP => wake_after_operation::<K>(call),
        _ => call.pass_on::<K>(),
    }
}
