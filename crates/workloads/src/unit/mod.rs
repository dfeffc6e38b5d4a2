//! What is measured: coroutines, fibers and threads, all running the same program.
//!
//! ```text
//!   create unit 1 .. N      each unit begins, reports that it is alive, and waits
//!   ---- all N alive ----   memory is read here
//!   release unit 1 .. N     each goes on: its first switch was the wait
//!   each makes its other switches, giving way to the others
//!   join unit 1 .. N
//! ```
//!
//! A unit's first switch is the wait for all others, so that N units are alive at once by
//! construction and the first switch cannot be one that never happened: left to themselves, the
//! first threads are gone before the last are created. The other switches are the unit's yield.
//! `docs/methodology.md` says what this makes of each figure.

mod coroutine;
pub(crate) mod fiber;
mod gated;
mod run;
mod thread;
pub(crate) mod threads;

use crate::answer::Failure;
use crate::named;
use crate::role::Role;

pub(crate) use run::{Alive, Run, ns};

named! {
    /// A kind of unit that this program measures itself. Those of other runtimes are measured by
    /// programs of their own.
    pub enum Unit as "unit" {
        /// `carefree::Coroutine`: resumed and suspended by hand, on one core.
        Coroutine = "coroutine",
        /// `carefree::spawn`: ours, on all cores.
        Fiber = "fiber",
        /// `std::thread`: the kernel's.
        Thread = "thread",
    }
}

impl Unit {
    /// The runtime it belongs to.
    pub fn runtime(self) -> &'static str {
        match self {
            Unit::Coroutine | Unit::Fiber => "carefree",
            Unit::Thread => "rust",
        }
    }

    /// That runtime's version.
    pub fn version(self) -> &'static str {
        match self {
            // One version for the whole workspace.
            Unit::Coroutine | Unit::Fiber => env!("CARGO_PKG_VERSION"),
            Unit::Thread => env!("WORKLOADS_RUSTC_VERSION"),
        }
    }

    /// Which side of the comparison it stands on.
    pub fn role(self) -> Role {
        if self == Unit::Thread { Role::Thread } else { Role::Fiber }
    }

    /// Runs the program once: `units` units, `switches` switches each. `all_alive` is called, and
    /// not timed, when every unit is alive and waiting.
    pub(crate) fn run(
        self,
        units: u64,
        switches: u64,
        all_alive: Alive<'_>,
    ) -> Result<Run, Failure> {
        match self {
            Unit::Coroutine => coroutine::run(units, switches, all_alive),
            Unit::Fiber => fiber::run(units, switches, all_alive),
            Unit::Thread => thread::run(units, switches, all_alive),
        }
    }
}

/// Counts are those of the whole process, less those of runtimes that have ended: tests that count,
/// or end a runtime, take turns. (A sample has a process of its own.)
#[cfg(test)]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static COUNTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    COUNTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    /// The contract of every unit: all alive when told so, every switch asked for made.
    /// Twenty units with fifty switches each.
    fn twenty(unit: Unit) -> Run {
        let run = std::thread::spawn(move || {
            // On one core, where a thread's yield has another thread to yield to.
            let core = *sys::allowed_cores().last().expect("a core");
            sys::pin_to(core).expect("an allowed core");
            let mut calls = 0;
            let run = unit.run(20, 50, &mut || calls += 1).expect("twenty units");
            assert_eq!(calls, 1, "{unit}");
            run
        });
        run.join().expect("no panic")
    }

    #[test]
    fn every_unit_is_alive_at_the_gate_and_makes_its_switches() {
        /// A unit that is alone on its carrier for a while has no other to switch to; on a busy
        /// machine that may happen in one run, and not in every one.
        const TRIES: usize = 50;
        let _alone = alone();
        for unit in Unit::ALL {
            let mut most = 0;
            for _ in 0..TRIES {
                let run = twenty(unit);
                assert!(run.switches_made <= 1_000, "{unit}: {run:?}");
                assert!(run.times.create_ns > 0 && run.times.run_ns > 0, "{unit}: {run:?}");
                most = most.max(run.switches_made);
                if most >= 900 {
                    break;
                }
            }
            assert!(most >= 900, "{unit}: {most} of 1,000 switches at best");
        }
    }

    #[test]
    fn a_wrong_unit_is_answered_with_the_right_ones() {
        let line = "goroutine".parse::<Unit>().expect_err("no such unit").to_string();
        assert!(line.starts_with("there is no unit 'goroutine'; the units are"), "{line}");
    }
}
