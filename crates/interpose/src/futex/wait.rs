//! Waiting for a word, on a fiber.
//!
//! # Words shared with other processes
//!
//! Without `FUTEX_PRIVATE_FLAG` another process may wake waiters, and it cannot see fibers. So such a wait
//! ends after [`RECHECK`] at the latest, as a spurious wake-up, which the futex contract allows at any time:
//! the caller looks at the word again. Its next wait is the kernel's: see [`outside`]. Over epoll, and where no hosted
//! thread waits, it ends as the first one.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use carefree_context::arch::FloatControl;
use carefree_ground::kernel;
use carefree_ground::probe;
use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::parker;
use carefree_runtime::wait::{Until, park_tagged};
use carefree_runtime::{Outcome, Reason};

use crate::call::answer::{answer, set_errno};
use crate::call::fiber::guarded;
use crate::call::host;
use crate::call::user::User;
use crate::futex::call::{command, is_private, key};
use crate::futex::outside;
use crate::time::deadline::{Clock, absolute};
use crate::time::duration;
use crate::wait::starvation::Starving;

/// The longest wait for a word that other processes may change, in nanoseconds.
const RECHECK: u64 = 5_000_000;

/// Something is wrong with the arguments of a wait.
pub(crate) struct Wrong;

impl From<c_int> for Wrong {
    fn from(_: c_int) -> Wrong {
        Wrong
    }
}

/// Waits in the kernel for no time. That tells whether the kernel accepts the word for a shared wait: it
/// refuses memory that this process can only read and that no other process can write. A wake-up that comes
/// just then counts as this fiber's.
fn ask_shared(word: usize, value: u32, mask: u32) -> Result<usize, c_int> {
    let long_ago = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let time = (&raw const long_ago) as usize;
    let operation = libc::FUTEX_WAIT_BITSET as usize;
    let arguments = [word, operation, value as usize, time, 0, mask as usize];
    // SAFETY: it looks at the word if that can be read, and does not wait.
    unsafe { kernel::call(libc::SYS_futex, arguments) }
}

/// Whether the kernel refuses this clock for a `FUTEX_WAIT`. It does, but for Linux 4.5 to 5.12.
#[cold]
fn refuses_clock(word: usize, operation: c_int, value: u32) -> bool {
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let time = (&raw const no_time) as usize;
    let arguments = [word, operation as usize, value as usize, time, 0, 0];
    // SAFETY: it looks at the word if that can be read, and does not wait.
    unsafe { kernel::call(libc::SYS_futex, arguments) == Err(libc::ENOSYS) }
}

/// Whether a wait without a time is ended by nothing but a wake-up, nothing is wrong with it, and its caller runs
/// under the default floating-point control words: as do most waits of std's locks and channels.
#[inline(always)]
pub(crate) fn is_plain(word: User<u32>, operation: c_int, mask: u32) -> bool {
    // (The clock is of no account without a time, but the kernel refuses it for a `FUTEX_WAIT`.)
    operation & (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) == libc::FUTEX_PRIVATE_FLAG
        && mask != 0
        && word.address() % 4 == 0
        && is_seen(word.address())
        && host::get().is_none()
        && FloatControl::current().is_default()
}

/// [`wait`] of a fiber for a private word where that [is plain](is_plain).
#[inline(always)]
pub(crate) fn wait_plain(word: User<u32>, value: u32, mask: u32) -> c_long {
    let address = word.address();
    // SAFETY: aligned, and there, by `is_plain`; the program has given it to be read during this call. Every
    // access to a futex's word is atomic.
    let word = unsafe { AtomicU32::from_ptr(word.pointer()) };
    let validate = || word.load(Ordering::SeqCst) == value;
    let reason = reason(address, value);
    let _starving = starving(address, value);
    match park_tagged(address, mask, validate, reason, Until::WOKEN_ONLY) {
        Outcome::Invalid => answer(Err(libc::EAGAIN)) as c_long,
        // (Nothing but a wake-up ends it.)
        _ => 0,
    }
}

/// The calling fiber, if it starves for a lock. (Locks made of futexes have this value where others wait: std's, and
/// libc's. Writers of std's `RwLock` wait for a number that each wake-up changes, as those for a condition do.)
#[inline(always)]
fn starving(address: usize, value: u32) -> Option<Starving> {
    const CONTENDED: u32 = 2;
    if value == parker::PARKED {
        return None;
    }
    Starving::after_waits_for(address, value == CONTENDED)
}

/// What a fiber waits for by a word that has this value.
#[inline(always)]
fn reason(address: usize, value: u32) -> Reason {
    match value == parker::PARKED && parker::about_to_park(address) {
        true => Reason::StandardPark,
        false => Reason::Futex,
    }
}

/// Parks the calling fiber until it is woken.
pub(crate) fn wait(
    word: User<u32>,
    operation: c_int,
    value: u32,
    time: User<libc::timespec>,
    mask: u32,
) -> Result<Result<usize, c_int>, Wrong> {
    let deadline = checked(word, operation, value, time, mask)?;
    let look_again = match is_private(operation) {
        true => NEVER,
        false => {
            match ask_shared(word.address(), value, mask) {
                Err(libc::EFAULT) => return Err(Wrong),
                Err(libc::ETIMEDOUT | libc::EINTR) => {}
                ended => return Ok(ended),
            }
            let goes_on = || may_go_on(time);
            let reason = reason(word.address(), value);
            if let Some(ended) = outside::wait(word, (value, mask), deadline, reason, goes_on) {
                return Ok(ended);
            }
            clock::now().saturating_add(RECHECK)
        }
    };
    let key = key(word, operation);
    let address = word.address();
    // SAFETY: aligned, and `check` has found memory there; the program has given it to be read during this call.
    // Every access to a futex's word is atomic.
    let word = unsafe { AtomicU32::from_ptr(word.pointer()) };
    let cancellable = host::is_interruptible();
    let until = Until { deadline: deadline.min(look_again), cancellable };
    let validate = || word.load(Ordering::SeqCst) == value;
    let reason = reason(address, value);
    let outcome = loop {
        let outcome = guarded(|| {
            // (Dropped before signals are handled: a handler may leave the call without dropping anything.)
            let _starving = starving(address, value);
            park_tagged(key, mask, validate, reason, until)
        });
        if outcome != Outcome::Cancelled || !may_go_on(time) {
            break outcome;
        }
    };
    Ok(match outcome {
        Outcome::Unparked => Ok(0),
        Outcome::Invalid => Err(libc::EAGAIN),
        Outcome::TimedOut if look_again < deadline => {
            outside::note(address);
            Ok(0)
        }
        Outcome::TimedOut => Err(libc::ETIMEDOUT),
        Outcome::Cancelled => Err(libc::EINTR),
    })
}

/// The deadline of a wait with these arguments.
///
/// # Errors
/// When the kernel would refuse one of them.
#[inline]
fn checked(
    word: User<u32>,
    operation: c_int,
    value: u32,
    time: User<libc::timespec>,
    mask: u32,
) -> Result<u64, Wrong> {
    let deadline = if time.is_null() {
        NEVER
    } else {
        check(time.address())?;
        // SAFETY: `check` has found memory there, now or at an earlier wait.
        let time = unsafe { time.read_seen() };
        end(operation, &time)?
    };
    let may_be_refused =
        command(operation) == libc::FUTEX_WAIT && operation & libc::FUTEX_CLOCK_REALTIME != 0;
    if may_be_refused && refuses_clock(word.address(), operation, value) {
        return Err(Wrong);
    }
    if mask == 0 || word.address() % 4 != 0 {
        return Err(Wrong);
    }
    check(word.address())?;
    Ok(deadline)
}

/// A signal has come for a hosted thread that waits. The kernel begins a wait without a time limit again, if the handler
/// asks for that.
fn may_go_on(time: User<libc::timespec>) -> bool {
    host::waits_on() || handles_and_goes_on() && time.is_null()
}

/// Handles the signals that have interrupted a wait; whether that may be begun again.
fn handles_and_goes_on() -> bool {
    set_errno(libc::EINTR);
    guarded(|| host::again_steady(&-1))
}

/// Whether there is memory at `place`: the kernel's call would fail if not, but reading it here would crash.
///
/// The kernel is asked once for each page, as long as the page is remembered, because asking takes longer
/// than a hand-over between two fibers. So a page that is unmapped after a wait in it is taken to be there.
fn check(place: usize) -> Result<(), c_int> {
    if !is_seen(place) {
        probe::check(place as *const u32, 1)?;
        let page = place / PAGE;
        SEEN[page % PAGES].store(page, Ordering::Relaxed);
    }
    Ok(())
}

const PAGE: usize = 4096;
/// How many pages are remembered.
const PAGES: usize = 4096;
/// Pages that were found to be there, each in the place that its number has.
static SEEN: [AtomicUsize; PAGES] = [const { AtomicUsize::new(0) }; PAGES];

/// Whether `place` is on a page that is remembered.
#[inline(always)]
fn is_seen(place: usize) -> bool {
    let page = place / PAGE;
    SEEN[page % PAGES].load(Ordering::Relaxed) == page && page != 0
}

/// The deadline of a wait.
#[inline(never)]
fn end(operation: c_int, time: &libc::timespec) -> Result<u64, c_int> {
    if command(operation) == libc::FUTEX_WAIT {
        return Ok(duration::from_now(duration::span(time)?));
    }
    if time.tv_sec < 0 {
        // libc's locks take this to mean that the time is over.
        return Err(libc::EINVAL);
    }
    let clock = match operation & libc::FUTEX_CLOCK_REALTIME {
        0 => Clock::Monotonic,
        _ => Clock::Realtime,
    };
    absolute(time, clock)
}
