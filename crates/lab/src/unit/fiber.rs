//! Carefree's fibers, on as many carriers as the sample has cores.
//!
//! The program itself runs as a fiber, as one that serves requests would. A fiber's switch is
//! `carefree::yield_now`, the gate is `carefree::park`, and the runtime's counts prove both.

use std::io;

use carefree::{Builder, JoinHandle, Metrics};

use super::Run;
use super::gated::{self, Gated};
use crate::sample::Failure;

struct Fiber;

impl Gated for Fiber {
    type Handle = JoinHandle<u64>;
    type Keeper = carefree::Thread;

    fn spawn(unit: impl FnOnce() -> u64 + Send + 'static) -> io::Result<JoinHandle<u64>> {
        Builder::new().spawn(unit)
    }

    fn unpark(unit: &JoinHandle<u64>) {
        unit.thread().unpark();
    }

    fn join(unit: JoinHandle<u64>) -> Option<u64> {
        unit.join().ok()
    }

    fn keeper() -> carefree::Thread {
        carefree::current()
    }

    fn wake(keeper: &carefree::Thread) {
        keeper.unpark();
    }

    fn park() {
        carefree::park();
    }

    fn yield_now() {
        carefree::yield_now();
    }

    fn made(_asked: u64) -> u64 {
        // The runtime counts for all fibers together: see `proven`.
        0
    }

    fn ran_out(reached: u64, asked: u64, error: &io::Error) -> Failure {
        Failure {
            message: format!("fiber {} of {asked} could not be started: {error}", reached + 1),
            // The error itself names the limit and its knob.
            advice: None,
        }
    }
}

pub(super) fn run(
    units: u64,
    switches: u64,
    all_alive: &mut (dyn FnMut() + Send),
) -> Result<Run, Failure> {
    carefree::run(|| {
        let before = carefree::metrics();
        let run = gated::run::<Fiber>(units, switches, all_alive)?;
        let after = carefree::metrics();
        Ok(Run { switches_made: proven(before, after, units), ..run })
    })
}

/// How many switches the units made. A carrier enters a fiber to start it, after each wait and
/// after each yield that gave way to another, so the entries that neither the starts nor the waits
/// account for are the yields. Each unit waits once, at the gate; the waits beyond that are those
/// of the fiber that runs the program, and prove nothing.
fn proven(before: Metrics, after: Metrics, units: u64) -> u64 {
    let starts = after.spawned - before.spawned;
    let waits = after.parks - before.parks;
    let entries = after.switches - before.switches;
    entries.saturating_sub(starts + waits) + waits.min(units)
}
