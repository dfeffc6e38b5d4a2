//! How long a fiber waits in a carrier's queue, as an estimate: how many wait there, by the time from one
//! switch to the next.
//!
//! Another carrier is woken, or asks for fibers, only where that takes longer than to wake a carrier
//! and to move a fiber there. Two fibers that hand over to each other never wait for long; a hundred
//! that compute between their switches do. Fibers that do next to nothing between their switches have
//! their turn soon, but where many of them are there for long, half of them are better off elsewhere.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_reactor::clock;

use crate::carrier::policy::{BACKLOG, CROWD, CROWDED, PACED_AFRESH, ROUND};

/// A carrier's pace. Its owner measures; others look.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds from one switch to the next, of late.
    mean: Cell<u64>,
    /// Rounds until it is measured again.
    rounds: Cell<u32>,
    /// Rounds in a row after which many fibers waited.
    crowded: Cell<u64>,
    /// So many can wait without a backlog.
    limit: AtomicU32,
}

/// A round that is being measured: when it began, and how many switches had been made.
#[derive(Clone, Copy)]
pub(crate) struct Begun(u64, u64);

/// What is supposed before anything was measured, in nanoseconds.
const SUPPOSED: u64 = 500;
/// Below this, a look at the clock in each round would cost more than a hundredth of it.
const FAST: u64 = 200;

impl Pace {
    pub(crate) fn new() -> Pace {
        let limit = AtomicU32::new((BACKLOG / SUPPOSED) as u32);
        Pace { mean: Cell::new(SUPPOSED), rounds: Cell::new(0), crowded: Cell::new(0), limit }
    }

    /// A round of fibers begins, after so many switches.
    #[inline]
    pub(crate) fn begin(&self, switches: u64) -> Option<Begun> {
        match self.rounds.get() {
            0 => Some(Begun(clock::now(), switches)),
            rounds => {
                self.rounds.set(rounds - 1);
                None
            }
        }
    }

    /// It is over.
    pub(crate) fn end(&self, begun: Begun, switches: u64) {
        let Begun(time, before) = begun;
        let switches = (switches - before).max(1);
        let mean = (clock::now() - time) / switches;
        // Of late: a quarter is this round's.
        let mean = (3 * self.mean.get() + mean) / 4;
        self.mean.set(mean.max(1));
        self.rounds.set(if mean < FAST { PACED_AFRESH } else { 0 });
        self.set_limit();
    }

    fn set_limit(&self) {
        let round = self.mean.get() * u64::from(ROUND);
        let most = if self.crowded.get() * round < CROWDED { u32::MAX } else { CROWD };
        let limit = u32::try_from(BACKLOG / self.mean.get()).unwrap_or(u32::MAX);
        self.limit.store(limit.min(most), Ordering::Relaxed);
    }

    /// A round is over, after which so many fibers wait.
    #[inline]
    pub(crate) fn left(&self, waiting: usize) {
        if waiting <= CROWD as usize {
            if self.crowded.replace(0) != 0 {
                self.set_limit();
            }
            return;
        }
        self.crowded.set(self.crowded.get() + 1);
        if self.crowded.get() % 16 == 0 {
            self.set_limit();
        }
    }

    /// Whether of so many fibers in the queue the last waits for long.
    #[inline]
    pub(crate) fn is_backlog(&self, waiting: usize) -> bool {
        waiting > self.limit.load(Ordering::Relaxed) as usize
    }

    /// Whether each of its fibers runs for long.
    pub(crate) fn is_slow(&self) -> bool {
        self.limit.load(Ordering::Relaxed) == 0
    }
}
