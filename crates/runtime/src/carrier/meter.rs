//! Processor time of fibers, from when a program first asks for any.
//!
//! A carrier that measures enters each fiber from its own context, where it reads its thread's clock before and
//! after. (Carriers count the switches of a round; one that measures has rounds of none.) So fibers pay for this
//! only from then on, and switches have no test for it.
//!
//! How much of it the kernel ran for the fiber, in system calls and faults, only `getrusage` tells, in microseconds. That
//! is measured as well, for hosted threads, from when a program first asks for it.
//!
//! # Reading another fiber's
//!
//! It may be entered or left meanwhile. Its carrier counts the changes; a reader that finds another count
//! afterwards, or another carrier, begins anew.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

use carefree_ground::kernel;

use crate::fiber::furnish;
use crate::fiber::header::FiberRef;
use crate::fiber::split::Split;

/// Whether carriers measure.
static ON: AtomicBool = AtomicBool::new(false);

/// Whether they also measure how it is divided.
static DIVIDES: AtomicBool = AtomicBool::new(false);

/// Nanoseconds that the process's first thread has used, besides since it was last entered.
static MAIN: AtomicU64 = AtomicU64::new(0);
/// How these are divided.
static MAIN_SPLIT: Split = Split::new();

/// A carrier's. It alone writes it.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Counts the changes; odd amid one.
    pub(crate) changes: AtomicU64,
    /// The fiber that is measured, or null.
    pub(crate) fiber: AtomicPtr<u8>,
    /// What the carrier's thread had used when that fiber was entered.
    pub(crate) since: AtomicU64,
    /// How that was divided, where that is measured. The carrier's alone.
    since_split: Cell<Option<[u64; 2]>>,
}

#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

impl Meter {
    pub(crate) const fn new() -> Meter {
        Meter {
            changes: AtomicU64::new(0),
            fiber: AtomicPtr::new(ptr::null_mut()),
            since: AtomicU64::new(0),
            since_split: Cell::new(None),
        }
    }

    fn change(&self, change: impl FnOnce()) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes + 1, Ordering::Relaxed);
        // (Not Release alone: `change` may read a clock, which no other order keeps behind the store.)
        fence(Ordering::SeqCst);
        change();
        self.changes.store(changes + 2, Ordering::Release);
    }

    /// `fiber` runs from now on.
    pub(crate) fn begin(&self, fiber: FiberRef) {
        let now = used_by(libc::CLOCK_THREAD_CPUTIME_ID);
        self.since_split.set(DIVIDES.load(Ordering::Relaxed).then(divided));
        self.change(|| {
            self.since.store(now, Ordering::Relaxed);
            self.fiber.store(fiber.as_ptr(), Ordering::Relaxed);
        });
    }

    /// The fiber that was entered has left its stack, which is still its own.
    #[inline]
    pub(crate) fn left(&self) {
        if !self.fiber.load(Ordering::Relaxed).is_null() {
            self.end();
        }
    }

    #[cold]
    fn end(&self) {
        let split = self.split_spent();
        self.change(|| {
            // Amid the change: a reader that has read the clock later begins anew, and reports no more than this.
            let now = used_by(libc::CLOCK_THREAD_CPUTIME_ID);
            let fiber = self.fiber.load(Ordering::Relaxed);
            self.fiber.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: `begin` was given a fiber.
            let fiber = unsafe { FiberRef::from_ptr(fiber) };
            if let (Some(spent), Some(split)) = (split, split_of(fiber)) {
                split.add(spent);
            }
            let used = used(fiber);
            let spent = now.saturating_sub(self.since.load(Ordering::Relaxed));
            used.store(used.load(Ordering::Relaxed) + spent, Ordering::Relaxed);
        });
    }

    /// How what the fiber has used since it was entered is divided; `None` if that is not measured.
    pub(crate) fn split_spent(&self) -> Option<[u64; 2]> {
        let before = self.since_split.get()?;
        let now = divided();
        Some([0, 1].map(|part: usize| now[part].saturating_sub(before[part])))
    }
}

/// What a fiber has used, besides since it was last entered.
pub(crate) fn used(fiber: FiberRef) -> &'static AtomicU64 {
    let stack = fiber.stack.load(Ordering::Relaxed);
    if stack.is_null() {
        return &MAIN;
    }
    // SAFETY: the stack of a fiber that is measured, or asked for, is its own.
    unsafe { furnish::time_used(stack) }
}

/// How that is divided; `None` if the fiber is not a hosted thread.
pub(crate) fn split_of(fiber: FiberRef) -> Option<&'static Split> {
    let stack = fiber.stack.load(Ordering::Relaxed);
    if stack.is_null() {
        return Some(&MAIN_SPLIT);
    }
    // SAFETY: as in `used`; hosted threads are created with one there.
    unsafe { furnish::split_of(stack, fiber.as_ptr()) }
}

/// The nanoseconds of a clock of processor time.
pub(crate) fn used_by(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [clock as usize, (&raw mut time) as usize, 0, 0, 0, 0];
    // SAFETY: there is room for the answer.
    let _ = unsafe { kernel::call(libc::SYS_clock_gettime, arguments) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How what the calling thread has used is divided, in nanoseconds. (The kernel lets neither part fall.)
fn divided() -> [u64; 2] {
    // SAFETY: zeros are such a structure.
    let mut told = unsafe { std::mem::zeroed::<libc::rusage>() };
    let arguments = [libc::RUSAGE_THREAD as usize, (&raw mut told) as usize, 0, 0, 0, 0];
    // SAFETY: there is room for the answer.
    let _ = unsafe { kernel::call(libc::SYS_getrusage, arguments) };
    [told.ru_utime, told.ru_stime]
        .map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000)
}

/// Notes what the process's first thread, which calls this, has used before it became a fiber.
pub(crate) fn note_main() {
    MAIN.store(used_by(libc::CLOCK_THREAD_CPUTIME_ID), Ordering::Relaxed);
    MAIN_SPLIT.set(divided());
}

/// Has carriers measure soon, and from then on.
pub fn turn_on() {
    ON.store(true, Ordering::Relaxed);
}

/// Has carriers also measure, from soon on, how what their fibers use is divided.
pub(crate) fn divide() {
    DIVIDES.store(true, Ordering::Relaxed);
}
