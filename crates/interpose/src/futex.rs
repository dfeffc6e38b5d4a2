//! The futex: what `std`, parking_lot and crossbeam wait on, through `syscall`.
//!
//! A fiber that would wait parks in the runtime's lot; its key is the word's address. A plain thread
//! waits in the kernel. So who wakes asks both: fibers first, and the kernel for what is left of the
//! count, always, for its waiters cannot be seen from here. That no wake-up is lost follows for each
//! side from its own rules: the lot's ([`carefree_runtime::lot`]) for a fiber, whose look at the word
//! is its `validate`; the kernel's for a thread. The waker has changed the word before either is
//! asked.
//!
//! # Fairness
//!
//! Fibers first, because that saves a system call. But threads must not wait for ever because
//! fibers come again and again: every [`TURNS`]th wake-up that finds fibers asks the kernel first.
//!
//! # Words shared with other processes
//!
//! Without `FUTEX_PRIVATE_FLAG` somebody in another process may wake, who cannot see a fiber. Such
//! a wait ends after [`RECHECK`] at the latest, as if for no reason, which the futex contract allows
//! at any time: the caller looks at the word again.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use carefree_ground::kernel;
use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::lot::{self, is_waited_after_change};
use carefree_runtime::parker;
use carefree_runtime::wait::{Until, park_tagged};
use carefree_runtime::{Outcome, Reason};

use crate::fiber::{answer, guarded, on_fiber, set_errno};
use crate::memory;
use crate::span;
use crate::syscall::syscall::original;
use crate::time::{Clock, absolute};

/// How often the kernel is asked before fibers are.
const TURNS: u32 = 128;
/// The longest wait for a word that others than this process may change, in nanoseconds.
const RECHECK: u64 = 5_000_000;

/// Matches every waiter.
pub(crate) const ANY: u32 = libc::FUTEX_BITSET_MATCH_ANY as u32;

/// The arguments of `futex(2)`, as they come.
#[derive(Clone, Copy)]
struct Call {
    word: usize,
    operation: c_int,
    value: u32,
    /// A `timespec`, or the second count.
    fourth: usize,
    second_word: usize,
    third_value: u32,
}

/// What is asked for, without the flags.
#[inline(always)]
pub(crate) fn command(operation: c_int) -> c_int {
    operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

#[inline(always)]
fn is_private(operation: c_int) -> bool {
    operation & libc::FUTEX_PRIVATE_FLAG != 0
}

/// What fibers wait for. A private and a shared wait for the same word are two things.
#[inline(always)]
fn key(word: usize, operation: c_int) -> usize {
    word | usize::from(!is_private(operation))
}

impl Call {
    fn command(&self) -> c_int {
        command(self.operation)
    }

    fn key(&self, word: usize) -> usize {
        key(word, self.operation)
    }

    /// libc's own call, with another command and other counts.
    ///
    /// # Safety
    /// As for the call as it came.
    unsafe fn ask_kernel(&self, command: c_int, value: u32, fourth: usize) -> c_long {
        let operation = self.operation & !libc::FUTEX_CMD_MASK | command;
        // SAFETY: the caller's promise.
        unsafe {
            original(
                libc::SYS_futex,
                self.word,
                operation as usize,
                value as usize,
                fourth,
                self.second_word,
                self.third_value as usize,
            )
        }
    }

    /// # Safety
    /// As for the call as it came.
    unsafe fn pass_on(&self) -> c_long {
        // SAFETY: the caller's promise.
        unsafe { self.ask_kernel(self.command(), self.value, self.fourth) }
    }
}

/// `futex(2)` by anybody, but for a plain `FUTEX_WAKE`, which is [`wake`].
///
/// # Safety
/// As for the system call; on a fiber, the words it is to look at are readable.
#[inline(never)]
pub(crate) unsafe fn futex(
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
                    Call { word, operation, value, fourth, second_word, third_value }.pass_on()
                }
            },
            _ => others(Call { word, operation, value, fourth, second_word, third_value }),
        }
    }
}

/// Whatever does not let a fiber wait.
///
/// # Safety
/// As for [`futex`].
#[inline(never)]
unsafe fn others(call: Call) -> c_long {
    // SAFETY: the caller's promise, in each case.
    unsafe {
        match call.command() {
            libc::FUTEX_WAKE_BITSET => {
                wake(call.word, call.operation, call.value, call.third_value)
            }
            libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => requeue(call),
            libc::FUTEX_WAKE_OP => wake_after_operation(call),
            _ => call.pass_on(),
        }
    }
}

/// Something is wrong with the arguments of a wait.
struct Wrong;

impl From<c_int> for Wrong {
    fn from(_: c_int) -> Wrong {
        Wrong
    }
}

/// Waits in the kernel for no time, which says whether it would wait for `word` at all: not where this
/// process can read it and no other one change it. Who wakes meanwhile may have woken this one.
fn ask_shared(word: usize, value: u32, mask: u32) -> Result<usize, c_int> {
    let long_ago = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let time = (&raw const long_ago) as usize;
    let operation = libc::FUTEX_WAIT_BITSET as usize;
    let arguments = [word, operation, value as usize, time, 0, mask as usize];
    // SAFETY: it looks at the word if that can be read, and does not wait.
    unsafe { kernel::call(libc::SYS_futex, arguments) }
}

/// A fiber waits.
///
/// # Safety
/// As for the system call.
#[inline(always)]
unsafe fn wait(
    word: usize,
    operation: c_int,
    value: u32,
    time: usize,
    mask: u32,
) -> Result<Result<usize, c_int>, Wrong> {
    let deadline = match time {
        0 => NEVER,
        _ => {
            check(time)?;
            // SAFETY: it can be read.
            let time = unsafe { (time as *const libc::timespec).read_unaligned() };
            end(operation, &time)?
        }
    };
    if mask == 0 || word % 4 != 0 {
        return Err(Wrong);
    }
    check(word)?;
    let look_again = match is_private(operation) {
        true => NEVER,
        false => {
            match ask_shared(word, value, mask) {
                Err(libc::EFAULT) => return Err(Wrong),
                Err(libc::ETIMEDOUT | libc::EINTR) => {}
                ended => return Ok(ended),
            }
            clock::now().saturating_add(RECHECK)
        }
    };
    let key = key(word, operation);
    let address = word;
    // SAFETY: aligned and readable. Every access to a futex's word is atomic.
    let word = unsafe { AtomicU32::from_ptr(word as *mut u32) };
    let until = Until { deadline: deadline.min(look_again), cancellable: false };
    let validate = || word.load(Ordering::SeqCst) == value;
    let reason = match value == parker::PARKED && parker::about_to_park(address) {
        true => Reason::StandardPark,
        false => Reason::Futex,
    };
    let outcome = guarded(|| park_tagged(key, mask, validate, reason, until));
    Ok(match outcome {
        Outcome::Unparked => Ok(0),
        Outcome::Invalid => Err(libc::EAGAIN),
        Outcome::TimedOut if look_again < deadline => Ok(0),
        Outcome::TimedOut => Err(libc::ETIMEDOUT),
        // It is not asked for.
        Outcome::Cancelled => Err(libc::EINTR),
    })
}

/// Whether there is memory at `place`: the kernel would say so, and we would end the program.
///
/// It is asked once for each page, as long as the page is remembered: to ask takes longer than a
/// hand-over between two fibers. So a page that is given back after a wait in it is taken to be there.
#[inline]
fn check(place: usize) -> Result<(), c_int> {
    const PAGE: usize = 4096;
    const PAGES: usize = 4096;
    static SEEN: [AtomicUsize; PAGES] = [const { AtomicUsize::new(0) }; PAGES];
    let page = place / PAGE;
    let seen = &SEEN[page % PAGES];
    if seen.load(Ordering::Relaxed) == page && page != 0 {
        return Ok(());
    }
    memory::check(place as *const u32, 1)?;
    seen.store(page, Ordering::Relaxed);
    Ok(())
}

/// When a wait ends.
#[inline(never)]
fn end(operation: c_int, time: &libc::timespec) -> Result<u64, c_int> {
    if command(operation) == libc::FUTEX_WAIT {
        return Ok(span::from_now(span::span(time)?));
    }
    if time.tv_sec < 0 {
        // libc's locks take it for one that is over.
        return Err(libc::EINVAL);
    }
    let clock = match operation & libc::FUTEX_CLOCK_REALTIME {
        0 => Clock::Monotonic,
        _ => Clock::Realtime,
    };
    absolute(time, clock)
}

/// How many the kernel would wake: at least one, whatever is asked for.
fn count(value: u32) -> usize {
    usize::try_from(value as i32).unwrap_or(0).max(1)
}

/// Somebody wakes.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn wake(word: usize, operation: c_int, value: u32, mask: u32) -> c_long {
    if !is_private(operation) {
        // What waits for a process-shared lock of libc's is a fiber of this process too.
        wake_fibers(word, count(value), ANY);
    }
    let key = key(word, operation);
    if mask == 0 || !is_waited_after_change(key) {
        // SAFETY: the caller's promise.
        return unsafe { wake_threads(word, operation, value, mask) };
    }
    let count = count(value);
    let matches = |waiting| waiting & mask != 0;
    if is_turn_of_threads() {
        // SAFETY: the caller's promise.
        let woken = unsafe { wake_threads(word, operation, value, mask) }.max(0);
        let left = count.saturating_sub(woken as usize);
        return woken + lot::unpark_matching(key, left, matches) as c_long;
    }
    let woken = lot::unpark_matching(key, count, matches);
    if woken == count {
        return woken as c_long;
    }
    // SAFETY: the caller's promise. Fewer are asked for than there were.
    let more = unsafe { wake_threads(word, operation, (count - woken) as u32, mask) };
    woken as c_long + more.max(0)
}

/// Has the kernel wake. The mask is for `FUTEX_WAKE_BITSET`; the kernel looks at no further argument.
///
/// # Safety
/// As for the system call.
#[inline(never)]
unsafe fn wake_threads(word: usize, operation: c_int, value: u32, mask: u32) -> c_long {
    let (operation, value, mask) = (operation as usize, value as usize, mask as usize);
    // SAFETY: the caller's promise.
    unsafe { original(libc::SYS_futex, word, operation, value, 0, 0, mask) }
}

/// Whether threads are to be woken first this time.
fn is_turn_of_threads() -> bool {
    // Counted without a locked instruction: it does not matter if two count as one.
    static TURN: AtomicU32 = AtomicU32::new(0);
    let turn = TURN.load(Ordering::Relaxed).wrapping_add(1);
    TURN.store(turn, Ordering::Relaxed);
    turn % TURNS == 0
}

fn wake_fibers(key: usize, count: usize, mask: u32) -> c_long {
    if count == 0 || !is_waited_after_change(key) {
        return 0;
    }
    lot::unpark_matching(key, count, |waiting| waiting & mask != 0) as c_long
}

/// Somebody wakes some and lets others wait for a second word.
///
/// # Safety
/// As for the system call.
unsafe fn requeue(call: Call) -> c_long {
    let key = call.key(call.word);
    if !is_waited_after_change(key) {
        // SAFETY: the caller's promise.
        return unsafe { call.pass_on() };
    }
    let compares = call.command() == libc::FUTEX_CMP_REQUEUE;
    let [to_wake, to_move] =
        [call.value, call.fourth as u32].map(|n| usize::try_from(n as i32).unwrap_or(0));
    if call.word % 4 != 0
        || call.second_word % 4 != 0
        || memory::check(call.word as *const u32, 1).is_err()
    {
        // The kernel says what is wrong.
        // SAFETY: the caller's promise.
        return unsafe { call.pass_on() };
    }
    // SAFETY: it can be read; a futex's accesses are atomic.
    let word = unsafe { AtomicU32::from_ptr(call.word as *mut u32) };
    let holds = || !compares || word.load(Ordering::SeqCst) == call.third_value;
    let Some((woken, moved)) =
        lot::requeue(key, call.key(call.second_word), to_wake, to_move, holds)
    else {
        set_errno(libc::EAGAIN);
        return -1;
    };
    let here = (woken + if compares { moved } else { 0 }) as c_long;
    let (left_to_wake, left_to_move) = (to_wake - woken, to_move - moved);
    if left_to_wake == 0 && left_to_move == 0 {
        return here;
    }
    // SAFETY: the caller's promise. If the word has changed meanwhile, then after fibers were served.
    here + unsafe { call.ask_kernel(call.command(), left_to_wake as u32, left_to_move) }.max(0)
}

/// Somebody changes a second word, wakes waiters of the first, and if the second word was such as
/// asked for, waiters of that too.
///
/// # Safety
/// As for the system call.
unsafe fn wake_after_operation(call: Call) -> c_long {
    let [first, second] = [call.word, call.second_word].map(|word| call.key(word));
    if call.second_word % 4 != 0 || memory::check(call.second_word as *const u32, 1).is_err() {
        // The kernel says what is wrong.
        // SAFETY: the caller's promise.
        return unsafe { call.pass_on() };
    }
    if !is_waited_after_change(first) && !is_waited_after_change(second) {
        // A fiber that comes now finds its word unchanged or is woken by who changes it: this call
        // changes the second only, and a fiber that waits for that may sleep on until the kernel
        // says what became of it, as if the change came after.
        // SAFETY: the caller's promise.
        let woken = unsafe { call.pass_on() };
        if woken >= 0 && is_waited_after_change(second) {
            // Whether the condition held cannot be told any more; to wake in vain is allowed.
            return woken + wake_fibers(second, count(call.fourth as u32), ANY);
        }
        return woken;
    }
    let encoded = call.third_value;
    let operand = ((encoded >> 12) & 0xfff) as i32;
    let operand =
        if encoded >> 31 != 0 { 1i32.wrapping_shl(operand as u32) } else { sign(operand) };
    let compared = sign((encoded & 0xfff) as i32);
    // SAFETY: the system call changes the word, so it is writable.
    let word = unsafe { AtomicU32::from_ptr(call.second_word as *mut u32) };
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
    let wake_one = |word, value| {
        // SAFETY: waking only compares addresses.
        unsafe { wake(word, libc::FUTEX_WAKE | private, value, ANY) }.max(0)
    };
    let mut woken = wake_one(call.word, call.value);
    if holds {
        woken += wake_one(call.second_word, call.fourth as u32);
    }
    woken
}

/// The twelve bits of an argument as a signed number.
fn sign(bits: i32) -> i32 {
    bits << 20 >> 20
}
