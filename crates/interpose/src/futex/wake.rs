//! Waking waiters of a word.
//!
//! # Fairness
//!
//! Fibers are woken first, which saves a system call. But then threads could wait for ever while fibers come
//! again and again. So every [`TURNS`]th wake-up that finds fibers asks the kernel first.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_runtime::lot::{self, is_waited_after_change};

use crate::call::user::User;
use crate::futex::call::{ANY, Kernel, is_private, key};
use crate::futex::outside;
use crate::wait::starvation::let_woken_run;

/// One in so many wake-ups asks the kernel before it wakes fibers.
const TURNS: u32 = 128;

/// How many the kernel would wake: at least one, whatever is asked for.
pub(crate) fn count(value: u32) -> usize {
    usize::try_from(value as i32).unwrap_or(0).max(1)
}

/// Wakes waiters, fibers and threads.
pub(crate) fn wake<K: Kernel>(word: User<u32>, operation: c_int, value: u32, mask: u32) -> c_long {
    if !is_private(operation) {
        // A fiber of this process may wait for a process-shared lock of libc's.
        wake_fibers(word.address(), count(value), ANY);
    }
    let key = key(word, operation);
    if mask == 0 || !is_waited_after_change(key) {
        return wake_threads::<K>(word, operation, value, mask);
    }
    if is_turn_of_threads() {
        return wake_threads_first::<K>(word, operation, value, mask);
    }
    let count = count(value);
    let woken = lot::unpark_matching(key, count, move |waiting| waiting & mask != 0);
    if woken == count {
        let_woken_run(word.address());
        return woken as c_long;
    }
    // Fewer are asked for than there were.
    let more = wake_threads::<K>(word, operation, (count - woken) as u32, mask);
    woken as c_long + more.max(0)
}

/// Wakes threads, and then fibers.
#[cold]
#[inline(never)]
fn wake_threads_first<K: Kernel>(
    word: User<u32>,
    operation: c_int,
    value: u32,
    mask: u32,
) -> c_long {
    let woken = wake_threads::<K>(word, operation, value, mask).max(0);
    let left = count(value).saturating_sub(woken as usize);
    woken + unpark(key(word, operation), left, mask)
}

/// Has the kernel wake threads. The mask is for `FUTEX_WAKE_BITSET`; the kernel ignores the other arguments.
#[inline(never)]
fn wake_threads<K: Kernel>(word: User<u32>, operation: c_int, value: u32, mask: u32) -> c_long {
    let none = 0usize.into();
    let woken = K::futex([word.into(), operation.into(), value.into(), none, none, mask.into()]);
    if woken > 0 && !is_private(operation) {
        outside::woken_from_here(word.address());
    }
    woken
}

/// Whether threads are woken first this time.
fn is_turn_of_threads() -> bool {
    // Counted without a locked instruction: a lost count does not matter.
    static TURN: AtomicU32 = AtomicU32::new(0);
    let turn = TURN.load(Ordering::Relaxed).wrapping_add(1);
    TURN.store(turn, Ordering::Relaxed);
    turn % TURNS == 0
}

#[inline(never)]
pub(crate) fn wake_fibers(key: usize, count: usize, mask: u32) -> c_long {
    match is_waited_after_change(key) {
        true => unpark(key, count, mask),
        false => 0,
    }
}

fn unpark(key: usize, count: usize, mask: u32) -> c_long {
    lot::unpark_matching(key, count, move |waiting| waiting & mask != 0) as c_long
}
