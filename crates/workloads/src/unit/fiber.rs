//! Carefree's fibers, on as many carriers as the sample has cores.
//!
//! The program itself runs as a fiber, as a server's main loop would. A fiber's switch is
//! `carefree::yield_now`, the gate is `carefree::park`, and the runtime's counts prove both.

use carefree::Metrics;

use super::gated;
use super::run::{Alive, Run};
use super::threads::Fibers;
use crate::answer::Failure;

pub(super) fn run(units: u64, switches: u64, all_alive: Alive<'_>) -> Result<Run, Failure> {
    carefree::run(|| {
        let before = carefree::metrics();
        // The runtime counts for all fibers together.
        let run = gated::run::<Fibers>(units, switches, all_alive, |_| 0)?;
        let made = proven(before, carefree::metrics(), units);
        Ok(Run { switches_made: made, ..run })
    })
}

/// How many switches the fibers made between two counts. A carrier enters a fiber to start it, after
/// each wait, and after each yield that gave way to another fiber: the entries beyond starts and
/// waits are the yields. Of the waits, `gates` count: one a unit, at the gate. Any others are those
/// of the fiber that runs the program, and prove nothing.
pub(crate) fn proven(before: Metrics, after: Metrics, gates: u64) -> u64 {
    let starts = after.spawned - before.spawned;
    let waits = after.parks - before.parks;
    let entries = after.switches - before.switches;
    entries.saturating_sub(starts + waits) + waits.min(gates)
}
