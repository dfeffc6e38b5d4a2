//! Processor time of threads: their clocks, and `getrusage`.
//!
//! A hosted thread has used what carriers have while they ran it. That is measured from when the program first
//! asks for the time of some thread.

use std::ffi::{c_int, c_long};

use carefree_interpose::host::TimeUsed;
use carefree_runtime::hosted::{self, Held, HostedThread};
use libc::{clockid_t, pthread_t, rusage, timespec, timeval};

use crate::place;
use crate::thread::record;

/// What tells a clock of one thread from others, in the lowest bits of its number; the others are those of the
/// thread's, inverted (`linux/posix-timers.h`).
const KIND: c_int = 7;
const THREADS: c_int = 4 | 2;
/// Bits of a thread's number that fit into that of a clock.
const BITS: c_int = (1 << 28) - 1;

/// The number of a hosted thread's clock.
fn clock_of(thread: HostedThread) -> clockid_t {
    !(thread.number() & BITS) << 3 | THREADS
}

/// The hosted thread whose clock it is, by another number than the caller's; `None` if it is none's.
fn find(clock: clockid_t) -> Option<Held> {
    if clock >= 0 || clock & KIND != THREADS {
        return None;
    }
    // (Threads of the kernel's have numbers that are far smaller than those of all fibers.)
    hosted::find_where(|thread| clock_of(thread) == clock)
}

/// What a clock shows the calling hosted thread; `None` if it is not that of a hosted thread.
pub(crate) fn shown(clock: clockid_t) -> Option<TimeUsed> {
    let (me, _) = record::current()?;
    if clock == libc::CLOCK_THREAD_CPUTIME_ID || clock == clock_of(me) {
        return Some(TimeUsed { nanos: me.time_used(), by_caller: true });
    }
    Some(TimeUsed { nanos: find(clock)?.time_used(), by_caller: false })
}

/// The number of the hosted thread whose clock it is.
pub(crate) fn owner(clock: clockid_t) -> Option<c_int> {
    match record::current() {
        Some((me, _)) if clock == libc::CLOCK_THREAD_CPUTIME_ID => Some(me.number()),
        _ => find(clock).map(|thread| thread.number()),
    }
}

/// Writes what a clock shows; `None` if it is not that of a hosted thread.
///
/// # Safety
/// As for `clock_gettime`.
unsafe fn write(clock: clockid_t, time: *mut timespec) -> Option<c_int> {
    let nanos = shown(clock).filter(|_| !time.is_null())?.nanos;
    let shown =
        timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
    // SAFETY: as this function demands.
    match unsafe { place::write(time, shown) } {
        Ok(()) => Some(0),
        Err(errno) => {
            record::set_errno(errno);
            Some(-1)
        }
    }
}

/// Completes what the kernel has told of a carrier: the time is that of the calling hosted thread.
///
/// # Safety
/// What `getrusage` has written.
unsafe fn complete(told: *mut rusage) {
    if let Some((me, _)) = record::current() {
        let [user, system] = me.time_split().map(|nanos| timeval {
            tv_sec: (nanos / 1_000_000_000) as _,
            tv_usec: (nanos / 1_000 % 1_000_000) as _,
        });
        // SAFETY: as this function demands.
        unsafe {
            (*told).ru_utime = user;
            (*told).ru_stime = system;
        }
    }
}

/// `clock_gettime`, `clock_getres` and `getrusage` by number; `None` for all else.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn by_number(number: c_long, arguments: [usize; 6]) -> Option<c_int> {
    let [a, b, ..] = arguments;
    // SAFETY: as this function demands.
    unsafe {
        match number {
            libc::SYS_clock_gettime => write(a as clockid_t, b as *mut timespec),
            libc::SYS_clock_getres => Some(clock_getres(a as clockid_t, b as *mut timespec)),
            libc::SYS_getrusage => Some(getrusage(a as c_int, b as *mut rusage)),
            _ => None,
        }
    }
}

stand_in! {
    /// `pthread_getcpuclockid(3)`.
    fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let Some((thread, _)) = record::find(thread) else { return next(thread, clock) };
            if thread.has_ended() {
                return libc::ESRCH;
            }
            // A program that asks for a thread's clock will ask it for the time.
            hosted::measure_time();
            clock.write(clock_of(thread));
        }
        0
    }

    /// `clock_getres(2)`.
    fn clock_getres(clock: clockid_t, resolution: *mut timespec) -> c_int {
        // (All clocks of threads are alike, and of fibers the kernel knows none.)
        let is_threads = clock < 0 && clock & KIND == THREADS && record::current().is_some();
        let clock = if is_threads { libc::CLOCK_THREAD_CPUTIME_ID } else { clock };
        // SAFETY: the caller's arguments.
        unsafe { next(clock, resolution) }
    }

    /// `clock_settime(2)`: a thread's clock cannot be set.
    fn clock_settime(clock: clockid_t, time: *const timespec) -> c_int {
        if find(clock).is_some() {
            record::set_errno(libc::EPERM);
            return -1;
        }
        // SAFETY: the caller's arguments.
        unsafe { next(clock, time) }
    }

    /// `getrusage(2)`.
    fn getrusage(of: c_int, told: *mut rusage) -> c_int {
        // SAFETY: the caller's arguments.
        let done = unsafe { next(of, told) };
        if done == 0 && of == libc::RUSAGE_THREAD {
            // SAFETY: the call has written there.
            unsafe { complete(told) };
        }
        done
    }
}
