//! When the [monitor](super::monitor) looks.
//!
//! It sleeps while all carriers do, or are kept asleep (but not where it is to tell of those that are kept, for it tells
//! what they do at each look). Where they soon wake again, as in a server at a moderate rate, to be woken with them each
//! time would cost about as much as what they do. There it goes on looking, more and more seldom while it finds all of
//! them down, and sleeps after a look that finds no switch made since the one before.

use std::time::Duration;

use crate::carrier::policy::{LOOK, LOOK_CLOSELY, LOOK_NAPPING, LOOK_SELDOM, OFTEN};

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    Nothing,
    /// Fibers keep carriers, and no other waits.
    Kept,
    /// Others wait.
    Waiting,
}

/// When the monitor looks.
pub(super) struct Rhythm {
    /// Until the next look.
    pub(super) pause: Duration,
    /// Carriers wake so often that to look now and then costs less than to be woken each time.
    pub(super) often: bool,
    /// The switches of all carriers until the last look.
    switches: u64,
}

impl Rhythm {
    pub(super) fn new() -> Rhythm {
        Rhythm { pause: LOOK, often: false, switches: 0 }
    }

    /// All carriers slept for so many nanoseconds, and the monitor with them.
    pub(super) fn rested(&mut self, nanos: u64) {
        self.often = nanos < OFTEN;
    }

    /// A look is over; `first` says that it was the first one after a rest. `switches` counts those of all carriers
    /// since they began, and `all_down` says that no carrier was up.
    pub(super) fn looked(&mut self, first: bool, found: Found, switches: u64, all_down: bool) {
        // After a rest it is not known yet whether they go on like that, nor after a shorter time than they may sleep.
        self.often &= first || switches != self.switches || self.pause < LOOK_NAPPING;
        self.switches = switches;
        self.pause = match found {
            Found::Nothing if self.often && all_down => (2 * self.pause).min(LOOK_NAPPING),
            Found::Nothing => LOOK,
            Found::Kept => (2 * self.pause).min(LOOK_SELDOM),
            Found::Waiting => LOOK_CLOSELY,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the monitor's pauses are while carriers make a switch between any two looks.
    fn pauses(rhythm: &mut Rhythm, found: Found, all_down: bool) -> [Duration; 4] {
        std::array::from_fn(|_| {
            rhythm.looked(false, found, rhythm.switches + 1, all_down);
            rhythm.pause
        })
    }

    #[test]
    fn carriers_that_wake_often_are_looked_at_seldom_and_wake_nobody() {
        let mut rhythm = Rhythm::new();
        rhythm.rested(OFTEN - 1);
        rhythm.looked(true, Found::Nothing, 10, true);
        assert!(rhythm.often);
        assert_eq!(pauses(&mut rhythm, Found::Nothing, true)[3], LOOK_NAPPING);
        assert!(rhythm.often);
        // One is up: perhaps a fiber keeps it.
        assert_eq!(pauses(&mut rhythm, Found::Nothing, false), [LOOK; 4]);
        assert_eq!(pauses(&mut rhythm, Found::Waiting, false), [LOOK_CLOSELY; 4]);
    }

    #[test]
    fn a_look_that_finds_no_switch_lets_the_monitor_sleep() {
        let mut rhythm = Rhythm::new();
        rhythm.rested(OFTEN - 1);
        rhythm.looked(true, Found::Nothing, 10, true);
        let mut waited = Duration::ZERO;
        while rhythm.often {
            waited += rhythm.pause;
            rhythm.looked(false, Found::Nothing, 10, true);
        }
        assert!(waited >= LOOK_NAPPING && waited < 2 * LOOK_NAPPING, "{waited:?}");
    }

    /// Requests come a little more often than the carriers may sleep for the monitor to go on looking.
    #[test]
    fn carriers_that_wake_every_few_milliseconds_do_not_wake_the_monitor() {
        for period in 1..8 {
            let mut rhythm = Rhythm::new();
            rhythm.rested(period * 1_000_000);
            rhythm.looked(true, Found::Nothing, 0, true);
            let mut now = Duration::ZERO;
            while now < Duration::from_secs(1) {
                now += rhythm.pause;
                rhythm.looked(false, Found::Nothing, now.as_millis() as u64 / period, true);
                assert!(rhythm.often, "every {period} ms, after {now:?}");
            }
        }
    }

    #[test]
    fn carriers_that_wake_seldom_wake_the_monitor() {
        let mut rhythm = Rhythm::new();
        rhythm.rested(OFTEN);
        rhythm.looked(true, Found::Nothing, 10, true);
        assert!(!rhythm.often);
        assert_eq!(pauses(&mut rhythm, Found::Nothing, true), [LOOK; 4]);
        assert!(!rhythm.often);
    }
}
