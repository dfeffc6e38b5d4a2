//! How much work is done, on how many cores, and by which clock.

use crate::machine;
use std::time::Instant;

/// The flag for [`Scale::all_cores`].
pub const ALL_CORES: &str = "--all-cores";

/// How much work is done, on how many cores, and the clock that times it.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Smaller crowds and fewer rounds.
    pub quick: bool,
    /// Count this process's processor time, not the time that passed: see the README.
    pub cpu: bool,
    /// Each peer has all cores, as many workers as it starts with by default, instead of one.
    pub all_cores: bool,
}

impl Scale {
    /// The scale that these arguments ask for, which are taken out of them.
    pub fn take(arguments: &mut Vec<String>) -> Scale {
        let mut has = |flag: &str| {
            let before = arguments.len();
            arguments.retain(|argument| argument != flag);
            arguments.len() < before
        };
        let scale = Scale { quick: has("--quick"), cpu: has("--cpu"), all_cores: has(ALL_CORES) };
        machine::use_cores(scale.all_cores);
        scale
    }

    /// The arguments that ask for this scale.
    pub fn flags(self) -> impl Iterator<Item = &'static str> {
        let flags = [(self.quick, "--quick"), (self.cpu, "--cpu"), (self.all_cores, ALL_CORES)];
        flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag)
    }

    /// Yields of each of two units.
    pub fn yields(self) -> u64 {
        if self.quick { 100_000 } else { 1_000_000 }
    }

    /// Times that a ball goes there and back.
    pub fn hand_overs(self) -> u64 {
        if self.quick { 10_000 } else { 100_000 }
    }

    /// Units of a crowd.
    pub fn crowd(self) -> u64 {
        if self.quick { 2_000 } else { 10_000 }
    }

    /// Units that sleep at a time.
    pub fn sleepers(self) -> usize {
        if self.quick { 1_000 } else { 10_000 }
    }

    /// Units that are parked at a time.
    pub fn parked(self) -> usize {
        if self.quick { 5_000 } else { 10_000 }
    }

    /// Nanoseconds of `work`, with what it returned.
    pub(crate) fn timed<T>(self, work: impl FnOnce() -> T) -> (f64, T) {
        let (start, cpu) = (Instant::now(), machine::cpu_time());
        let result = work();
        let (passed, used) = (start.elapsed(), machine::cpu_time() - cpu);
        let time = if self.cpu { used } else { passed };
        (time.as_nanos() as f64, result)
    }
}
