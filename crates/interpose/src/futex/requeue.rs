//! Waking by a second word: `FUTEX_REQUEUE`, `FUTEX_WAKE_OP`.

use std::ffi::c_long;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_runtime::lot::{self, is_waited_after_change};

use crate::call::answer::set_errno;
use crate::futex::call::{ANY, Call, Kernel};
use crate::futex::wake::{count, wake, wake_fibers};

/// Wakes some waiters, and moves others to a second word.
pub(crate) fn requeue<K: Kernel>(call: Call) -> c_long {
    let key = call.key(call.word);
    if !is_waited_after_change(key) {
        return call.pass_on::<K>();
    }
    let compares = call.command() == libc::FUTEX_CMP_REQUEUE;
    // (Negative counts are refused.)
    let [Ok(to_wake), Ok(to_move)] =
        [call.value, call.fourth.address() as u32].map(|count| usize::try_from(count as i32))
    else {
        return call.pass_on::<K>();
    };
    if call.word.address() % 4 != 0
        || call.second_word.address() % 4 != 0
        || call.word.check(1).is_err()
    {
        // The kernel reports what is wrong.
        return call.pass_on::<K>();
    }
    // SAFETY: aligned and found readable just above, and the program has given it to be read during this call.
    // All accesses to a futex's word are atomic.
    let word = unsafe { AtomicU32::from_ptr(call.word.pointer()) };
    let holds = || !compares || word.load(Ordering::SeqCst) == call.third_value;
    let Some((woken, moved)) =
        lot::requeue(key, call.key(call.second_word), to_wake, to_move, holds)
    else {
        set_errno(libc::EAGAIN);
        return -1;
    };
    // The kernel counts those that it has moved, whatever its manual says of `FUTEX_REQUEUE`.
    let here = (woken + moved) as c_long;
    let (left_to_wake, left_to_move) = (to_wake - woken, to_move - moved);
    if left_to_wake == 0 && left_to_move == 0 {
        return here;
    }
    // If the word has changed meanwhile, then after fibers were served.
    here + call.ask_kernel::<K>(call.command(), left_to_wake as u32, left_to_move.into()).max(0)
}

/// Changes a second word, wakes waiters of the first, and if the second word's old value meets the condition,
/// wakes waiters of that too.
pub(crate) fn wake_after_operation<K: Kernel>(call: Call) -> c_long {
    let [first, second] = [call.word, call.second_word].map(|word| call.key(word));
    if call.second_word.address() % 4 != 0 || call.second_word.check(1).is_err() {
        // The kernel reports what is wrong.
        return call.pass_on::<K>();
    }
    if !is_waited_after_change(first) && !is_waited_after_change(second) {
        // A fiber that begins to wait for the first word now is woken by the thread that changes that word:
        // this call changes only the second. One that begins to wait for the second may sleep until the kernel
        // has answered, as if the change came after that.
        let woken = call.pass_on::<K>();
        if woken >= 0 && is_waited_after_change(second) {
            // Whether the condition held is not known any more. A needless wake-up is allowed.
            return woken + wake_fibers(second, count(call.fourth.address() as u32), ANY);
        }
        return woken;
    }
    let encoded = call.third_value;
    let operand = ((encoded >> 12) & 0xfff) as i32;
    let operand =
        if encoded >> 31 != 0 { 1i32.wrapping_shl(operand as u32) } else { sign(operand) };
    let compared = sign((encoded & 0xfff) as i32);
    // SAFETY: aligned and found to be there just above, and the program has given it to be changed by this call.
    // All accesses to a futex's word are atomic.
    let word = unsafe { AtomicU32::from_ptr(call.second_word.pointer()) };
    let change = |old: u32| {
        let (old, operand) = (old as i32, operand);
        let new = match (encoded >> 28) & 7 {
            0 => operand,
            1 => old.wrapping_add(operand),
            2 => old | operand,
            3 => old & !operand,
            4 => old ^ operand,
            _ => return None,
        };
        Some(new as u32)
    };
    let Ok(old) = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change) else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    let old = old as i32;
    let holds = match (encoded >> 24) & 0xf {
        0 => old == compared,
        1 => old != compared,
        2 => old < compared,
        3 => old <= compared,
        4 => old > compared,
        5 => old >= compared,
        _ => {
            set_errno(libc::ENOSYS);
            return -1;
        }
    };
    let private = call.operation & libc::FUTEX_PRIVATE_FLAG;
    let wake_one = |word, value| wake::<K>(word, libc::FUTEX_WAKE | private, value, ANY).max(0);
    let mut woken = wake_one(call.word, call.value);
    if holds {
        woken += wake_one(call.second_word, call.fourth.address() as u32);
    }
    woken
}

/// Twelve bits of the argument as a signed number.
fn sign(bits: i32) -> i32 {
    bits << 20 >> 20
}
