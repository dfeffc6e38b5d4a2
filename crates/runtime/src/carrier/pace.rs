//! How long a fiber waits in a carrier's queue, as an estimate: how many wait there, by the time from one
//! switch to the next.
//!
//! Another carrier is woken, or asks for fibers, only where that takes longer than to wake a carrier and to
//! move fibers there. Two fibers that hand over to each other never wait for long; a hundred that compute
//! between their switches do. Fibers that do next to nothing between their switches have their turn sooner
//! than another carrier could fetch what they need; but where many of them are there for long, half of them
//! are better off elsewhere. A program that spawns a hundred short fibers and joins them, time and again,
//! never has many for long: each time the queue is short in between. And where two wait at every look for longer
//! still, as with a few pairs that hand over to each other, the work is enough for another carrier.

use std::cell::Cell;

use crate::carrier::policy::{BACKLOG, BUSY, CROWD, CROWDED, MOVE, PACED_AFRESH, ROUND};
use crate::protocol::sync::{AtomicBool, AtomicU32, Ordering, clock};

/// A carrier's pace. Its owner measures; others look.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds from one switch to the next, of late.
    mean: Cell<u64>,
    /// Rounds until it is measured again.
    rounds: Cell<u32>,
    /// Rounds after which many fibers waited, since few were seen to.
    crowded: Cell<u64>,
    /// Rounds in a row after which two or more did.
    busy: Cell<u64>,
    /// So many can wait without a backlog.
    limit: AtomicU32,
    /// Whether each of its fibers runs for so long that the next one should not wait.
    is_slow: AtomicBool,
}

/// A round that is being measured: when it began, and how many switches had been made.
#[derive(Clone, Copy)]
pub(crate) struct Begun(u64, u64);

/// The mean before anything was measured, in nanoseconds.
const SUPPOSED: u64 = 500;
/// Below this, a look at the clock in each round would cost more than a hundredth of it.
const FAST: u64 = 200;

impl Pace {
    pub(crate) fn new() -> Pace {
        let limit = AtomicU32::new((BACKLOG / (SUPPOSED - MOVE)) as u32);
        Pace {
            mean: Cell::new(SUPPOSED),
            rounds: Cell::new(0),
            crowded: Cell::new(0),
            busy: Cell::new(0),
            limit,
            is_slow: AtomicBool::new(false),
        }
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
        // A moving average, in which this round counts for a quarter.
        let mean = (3 * self.mean.get() + mean) / 4;
        self.mean.set(mean.max(1));
        self.rounds.set(if mean < FAST { PACED_AFRESH } else { 0 });
        self.set_limit();
    }

    fn set_limit(&self) {
        let round = self.mean.get() * u64::from(ROUND);
        let most = match () {
            // (Between two rounds one of the two may be running.)
            _ if self.busy.get() * round >= BUSY => 0,
            _ if self.crowded.get() * round >= CROWDED => CROWD,
            _ => u32::MAX,
        };
        let mean = self.mean.get();
        // Each fiber that moves makes up for its move by what it would wait longer here.
        let worth = mean.checked_sub(MOVE).map_or(u64::MAX, |gain| BACKLOG / gain.max(1));
        let limit = u32::try_from(worth.min(CROWDED / mean)).unwrap_or(u32::MAX);
        self.limit.store(limit.min(most), Ordering::Relaxed);
        self.is_slow.store(limit == 0, Ordering::Relaxed);
    }

    /// A round is over, after which so many fibers wait.
    #[inline]
    pub(crate) fn left(&self, waiting: usize) {
        if waiting > 1 {
            self.busy.set(self.busy.get() + 1);
            if self.busy.get() % 16 == 0 {
                self.set_limit();
            }
        }
        if self.is_crowd(waiting) {
            self.crowded.set(self.crowded.get() + 1);
            if self.crowded.get() % 16 == 0 {
                self.set_limit();
            }
        }
    }

    /// Whether so many fibers wait that they are a backlog where that lasts. If not, it did not last: for
    /// the owner, which sees so between two crowds.
    #[inline]
    pub(crate) fn is_crowd(&self, waiting: usize) -> bool {
        if waiting <= 1 && self.busy.replace(0) != 0 && self.limit.load(Ordering::Relaxed) == 0 {
            self.set_limit();
        }
        let many = waiting > CROWD as usize;
        if !many && self.crowded.replace(0) != 0 {
            self.set_limit();
        }
        many
    }

    /// Whether of so many fibers in the queue the last waits for long.
    #[inline]
    pub(crate) fn is_backlog(&self, waiting: usize) -> bool {
        waiting > self.limit.load(Ordering::Relaxed) as usize
    }

    /// Whether each of its fibers runs for long.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_mean(mean: u64) -> Pace {
        let pace = Pace::new();
        pace.mean.set(mean);
        pace.set_limit();
        pace
    }

    #[test]
    fn crowds_that_pass_are_no_backlog_and_one_that_lasts_is() {
        let pace = of_mean(40);
        for _ in 0..100 {
            (0..5).for_each(|_| pace.left(100));
            // The next crowd begins with one fiber.
            pace.is_crowd(1);
            assert!(!pace.is_backlog(100));
        }
        (0..50).for_each(|_| pace.left(100));
        assert!(pace.is_backlog(100) && !pace.is_backlog(CROWD as usize));
    }

    #[test]
    fn two_that_wait_for_long_are_a_backlog_and_one_is_not() {
        let pace = of_mean(300);
        (0..100).for_each(|_| pace.left(1));
        assert!(!pace.is_backlog(1));
        (0..100).for_each(|_| pace.left(2));
        assert!(pace.is_backlog(1) && !pace.is_slow());
        // One of them has gone elsewhere.
        pace.left(1);
        assert!(!pace.is_backlog(1));
        // Slower ones take fewer looks.
        let pace = of_mean(1_000);
        (0..7).for_each(|_| pace.left(2));
        pace.set_limit();
        assert!(pace.is_backlog(1));
        pace.left(1);
        assert!(!pace.is_backlog(1));
    }

    #[test]
    fn slower_fibers_are_a_backlog_sooner() {
        for (mean, some) in
            [(35, 1_142), (100, 400), (500, 11), (2_000, 2), (5_000, 0), (90_000, 0)]
        {
            let pace = of_mean(mean);
            assert!(pace.is_backlog(some + 1) && !pace.is_backlog(some), "{mean}");
            assert_eq!(pace.is_slow(), some == 0);
        }
    }
}
