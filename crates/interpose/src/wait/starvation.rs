//! Fibers that wait for a lock and lose it again and again.
//!
//! A fiber that is woken for a lock has to wait for a carrier. The fiber that has unlocked runs on: if it locks again
//! at once and waits with the lock, as a loop around a sleep does, the woken one finds the lock taken whenever it
//! looks. The kernel would let a thread that it wakes run before the one that wakes it, now and then. So a fiber that
//! has lost often *starves* until it is woken again and has run, and while one does, each unlock of its lock that has
//! woken a fiber yields to it.
//!
//! Nothing else changes: the first that comes still gets a lock. An unlock that wakes a fiber while none starves costs
//! one more load.

use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_runtime::wait::on_fiber;

use crate::call::fiber::guarded;

/// How often a fiber loses a lock before it starves.
const LOSSES: usize = 16;

/// How often fibers wait for a word that may be a lock's or a condition's before one is taken to starve.
const UNSURE_LOSSES: usize = 64;

/// How many fibers starve, by the places of their locks. (The child of a fork may have some counted that it has not: its
/// unlocks there yield then.)
static STARVING: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// How many waits there were for words, by their places: the word that was waited for last of those that have a place,
/// and the waits. (Addresses of user memory leave the upper bits.)
static WAITS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

const PLACES: usize = 64;
const COUNT_BITS: u32 = 8;
const COUNT: usize = (1 << COUNT_BITS) - 1;

/// The place of a lock in the tables. Several may have one: then unlocks yield in vain, and counts begin anew.
#[inline(always)]
fn place(address: usize) -> usize {
    const GOLDEN: usize = 0x9e37_79b9_7f4a_7c15_u64 as usize;
    address.wrapping_mul(GOLDEN) >> (usize::BITS - PLACES.ilog2())
}

/// A fiber that starves, until this is dropped.
#[derive(Debug)]
pub(crate) struct Starving(&'static AtomicUsize);

impl Starving {
    fn at(place: usize) -> Starving {
        STARVING[place].fetch_add(1, Ordering::Relaxed);
        Starving(&STARVING[place])
    }

    /// The calling fiber, if it has just lost the lock at `address` so many times in one call, or so many times more.
    #[inline]
    pub(crate) fn after(address: usize, losses: usize) -> Option<Starving> {
        (losses != 0 && losses % LOSSES == 0).then(|| Starving::at(place(address)))
    }

    /// The calling fiber, if it is the one of so many that waits for the word at `address`. It may have lost that before,
    /// or not: then it starves for one wait. `sure`: whether the word is that of a lock. It may be that of a condition,
    /// which fibers wait for without losing anything.
    #[inline]
    pub(crate) fn after_waits_for(address: usize, sure: bool) -> Option<Starving> {
        let place = place(address);
        // Counted without a locked instruction: a lost count does not matter.
        let known = WAITS[place].load(Ordering::Relaxed);
        let waits = if known >> COUNT_BITS == address { (known & COUNT) + 1 } else { 0 };
        let losses = waits % if sure { LOSSES } else { UNSURE_LOSSES };
        WAITS[place].store((address << COUNT_BITS) | losses, Ordering::Relaxed);
        (waits != 0 && losses == 0).then(|| Starving::at(place))
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// To be called by a fiber that has unlocked, and woken another for the lock at `address`: lets the latter run first, if
/// one starves.
#[inline]
pub(crate) fn let_woken_run(address: usize) {
    if STARVING[place(address)].load(Ordering::Relaxed) != 0 && on_fiber() {
        // Twice: those that were just woken get only so many turns in a row, and the caller may have the one between.
        guarded(|| (0..2).for_each(|_| carefree_runtime::yield_now()));
    }
}
