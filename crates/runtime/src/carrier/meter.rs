//! Processor time of fibers, from when a program first asks for any.
//!
//! A carrier that measures enters each fiber from its own context, where it reads its thread's clock before and
//! after. (Carriers count the switches of a round; one that measures has rounds of none.) So fibers pay for this
//! only from then on, and switches have no test for it.
//!
//! # Reading another fiber's
//!
//! It may be entered or left meanwhile. Its carrier counts the changes; a reader that finds another count
//! afterwards, or another carrier, begins anew.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

use carefree_ground::kernel;

use crate::fiber::furnish;
use crate::fiber::header::FiberRef;

/// Whether carriers measure.
static ON: AtomicBool = AtomicBool::new(false);

/// Nanoseconds that the process's first thread has used, besides since it was last entered.
static MAIN: AtomicU64 = AtomicU64::new(0);

/// A carrier's. It alone writes it.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Counts the changes; odd amid one.
    pub(crate) changes: AtomicU64,
    /// The fiber that is measured, or null.
    pub(crate) fiber: AtomicPtr<u8>,
    /// What the carrier's thread had used when that fiber was entered.
    pub(crate) since: AtomicU64,
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
        }
    }

    fn change(&self, change: impl FnOnce()) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        self.changes.store(changes + 2, Ordering::Release);
    }

    /// `fiber` runs from now on.
    pub(crate) fn begin(&self, fiber: FiberRef) {
        let now = used_by(libc::CLOCK_THREAD_CPUTIME_ID);
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
        let now = used_by(libc::CLOCK_THREAD_CPUTIME_ID);
        self.change(|| {
            let fiber = self.fiber.load(Ordering::Relaxed);
            self.fiber.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: `begin` was given a fiber.
            let used = used(unsafe { FiberRef::from_ptr(fiber) });
            let spent = now.saturating_sub(self.since.load(Ordering::Relaxed));
            used.store(used.load(Ordering::Relaxed) + spent, Ordering::Relaxed);
        });
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

/// The nanoseconds of a clock of processor time.
pub(crate) fn used_by(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [clock as usize, (&raw mut time) as usize, 0, 0, 0, 0];
    // SAFETY: there is room for the answer.
    let _ = unsafe { kernel::call(libc::SYS_clock_gettime, arguments) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Notes what the process's first thread, which calls this, has used before it became a fiber.
pub(crate) fn note_main() {
    MAIN.store(used_by(libc::CLOCK_THREAD_CPUTIME_ID), Ordering::Relaxed);
}

/// Has carriers measure soon, and from then on.
pub fn turn_on() {
    ON.store(true, Ordering::Relaxed);
}
