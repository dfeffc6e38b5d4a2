//! One run of the program.

use std::time::Duration;

use crate::answer::Round;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) times: Round,
    /// Switches that happened, by a count that the units cannot make up.
    pub(crate) switches_made: u64,
}

/// Called, and not timed, when every unit is alive and waiting.
pub(crate) type Alive<'a> = &'a mut (dyn FnMut() + Send);

/// Nanoseconds, for times that are nowhere near 584 years.
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
