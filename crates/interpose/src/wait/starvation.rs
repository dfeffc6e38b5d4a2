//! Fibers that wait for a lock and lose it again and again.
//!
//! A fiber that is woken for a lock has to wait for a carrier. The fiber that has unlocked runs on: if it locks again
//! at once and waits with the lock, as a loop around a sleep does, the woken one finds the lock taken whenever it
//! looks. The kernel would let a thread that it wakes run before the one that wakes it, now and then. So a fiber that
//! has lost [`LOSSES`] times *starves* until it is woken again and has run, and while one does, each unlock that has
//! woken a fiber yields to it.
//!
//! Nothing else changes: the first that comes still gets a lock. An unlock that wakes a fiber while none starves costs
//! one more load.

use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_runtime::wait::on_fiber;

use crate::call::fiber::guarded;

/// How often a fiber loses a lock before it starves.
const LOSSES: usize = 16;

/// How many fibers starve. (The child of a fork may have some counted that it has not: its unlocks yield then.)
static STARVING: AtomicUsize = AtomicUsize::new(0);

/// A fiber that starves, until this is dropped.
#[derive(Debug)]
pub(crate) struct Starving(());

impl Starving {
    fn new() -> Starving {
        STARVING.fetch_add(1, Ordering::Relaxed);
        Starving(())
    }

    /// The calling fiber, if it has just lost a lock so many times in one call, or so many times more.
    #[inline]
    pub(crate) fn after(losses: usize) -> Option<Starving> {
        (losses != 0 && losses % LOSSES == 0).then(Starving::new)
    }

    /// The calling fiber, if it is the one of so many that waits for the lock at `address`. It may have lost it before,
    /// or not: then it starves for one wait.
    #[inline]
    pub(crate) fn after_waits_for(address: usize) -> Option<Starving> {
        const GOLDEN: usize = 0x9e37_79b9_7f4a_7c15;
        let place = address.wrapping_mul(GOLDEN) >> (usize::BITS - PLACES.ilog2());
        // Counted without a locked instruction: a lost count does not matter.
        let known = WAITS[place].load(Ordering::Relaxed);
        let waits = if known >> COUNT_BITS == address { (known & COUNT) + 1 } else { 0 };
        WAITS[place].store((address << COUNT_BITS) | (waits % LOSSES), Ordering::Relaxed);
        Starving::after(waits)
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        STARVING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many waits there were for locks, by their addresses: the lock that was waited for last of those that have a place,
/// and the waits. (Addresses of user memory leave the upper bits.)
static WAITS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

const PLACES: usize = 64;
const COUNT_BITS: u32 = 8;
const COUNT: usize = (1 << COUNT_BITS) - 1;

/// To be called by a fiber that has unlocked, and woken another for that: lets the latter run first, if one starves.
#[inline]
pub(crate) fn let_woken_run() {
    if STARVING.load(Ordering::Relaxed) != 0 && on_fiber() {
        // Twice: those that were just woken get only so many turns in a row, and the caller may have the one between.
        guarded(|| (0..2).for_each(|_| carefree_runtime::yield_now()));
    }
}
