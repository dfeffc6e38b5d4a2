//! Fibers that wait for a lock and lose it again and again.
//!
//! A fiber that is woken for a lock has to wait for a carrier. The fiber that has unlocked runs on: if it locks again
//! at once and waits with the lock, as a loop around a sleep does, the woken one finds the lock taken whenever it
//! looks. The kernel would let a thread that it wakes run before the one that wakes it, now and then. So a fiber that
//! has lost often *starves* until it is woken again and has run, and while one does, each unlock of its lock that has
//! woken a fiber yields to it. A thread that unlocks naps instead: the fiber's carrier may first have to wake up, which
//! takes longer than the thread is without the lock. (A carrier that unlocks goes on, for it may be the one to run the
//! fiber.)
//!
//! Nothing else changes: the first that comes still gets a lock. An unlock that wakes a fiber while none starves costs
//! one more load.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree_ground::nap;
use carefree_runtime::wait::{on_fiber, on_plain_thread};

use crate::call::fiber::guarded;

/// How often a fiber loses a lock before it starves.
const LOSSES: usize = 16;

/// How often fibers wait for a word that may be a lock's or a condition's before one is taken to starve.
const UNSURE_LOSSES: usize = 64;

/// How long a thread gives way to a fiber that starves: long enough for an idle processor to wake up and run it. Several may
/// starve there, so the thread naps only so often.
const NAP: Duration = Duration::from_micros(50);
const NAPS: usize = 3;

/// How many fibers starve, by the places of their locks: those of which that is [`CERTAIN`] and, in the upper half, those
/// that only [`MAY`](MAY_STARVE). (The child of a fork may have some counted that it has not: its
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

/// Has lost its lock in one call, again and again.
const CERTAIN: usize = 1;
/// Waits for a word that was waited for often: it may have had the lock in between.
const MAY_STARVE: usize = 1 << (usize::BITS / 2);

/// A fiber that starves, until this is dropped.
#[derive(Debug)]
pub(crate) struct Starving {
    of: &'static AtomicUsize,
    as_one_that: usize,
}

impl Starving {
    fn at(place: usize, as_one_that: usize) -> Starving {
        let of = &STARVING[place];
        of.fetch_add(as_one_that, Ordering::Relaxed);
        Starving { of, as_one_that }
    }

    /// The calling fiber, if it has just lost the lock at `address` so many times in one call, or so many times more. (In
    /// between, others go on at full speed: where a hundred fibers on two carriers want a lock for a moment each, it changes
    /// hands more often so.)
    #[inline]
    pub(crate) fn after(address: usize, losses: usize) -> Option<Starving> {
        (losses != 0 && losses % LOSSES == 0).then(|| Starving::at(place(address), CERTAIN))
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
        (waits != 0 && losses == 0).then(|| Starving::at(place, MAY_STARVE))
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        self.of.fetch_sub(self.as_one_that, Ordering::Relaxed);
    }
}

/// To be called by a fiber or a thread that has unlocked, and woken a fiber for the lock at `address`: lets the latter run
/// first, if one starves.
#[inline]
pub(crate) fn let_woken_run(address: usize) {
    let starving = &STARVING[place(address)];
    if starving.load(Ordering::Relaxed) != 0 {
        give_way(starving);
    }
}

#[cold]
#[inline(never)]
fn give_way(starving: &AtomicUsize) {
    if on_fiber() {
        // Twice: those that were just woken get only so many turns in a row, and the caller may have the one between.
        guarded(|| (0..2).for_each(|_| carefree_runtime::yield_now()));
    } else if on_plain_thread() {
        // (A nap costs too much for one that may starve: words of conditions are among those.)
        let is_certain = || starving.load(Ordering::Relaxed) % MAY_STARVE != 0;
        (0..NAPS).take_while(|_| is_certain()).for_each(|_| nap::sleep(NAP));
    }
}
