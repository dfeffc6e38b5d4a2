//! The kernel's threads, through `std::thread`.
//!
//! A thread's switch is `sched_yield`, the cheapest one there is, and the gate is
//! `std::thread::park`. A yield returns whether it switched or not, so the kernel's own counts
//! prove the switches; each thread reads them once, at its end.

use super::gated;
use super::run::{Alive, Run};
use super::threads::Kernel;
use crate::answer::Failure;
use crate::sys::{self, Usage, UsageWho};

pub(super) fn run(units: u64, switches: u64, all_alive: Alive<'_>) -> Result<Run, Failure> {
    let made = |asked| proven(sys::usage(UsageWho::RUSAGE_THREAD), asked);
    gated::run::<Kernel>(units, switches, all_alive, made)
}

/// How many of its switches a thread made. The kernel counts a yield that switched as involuntary,
/// for the thread could have gone on, and a wait as voluntary. Both are capped at what the thread
/// was asked for: the surplus of threads that waited for the kernel's locks, or used up their time
/// slice, must not make up for threads that never switched.
fn proven(counted: Usage, asked: u64) -> u64 {
    counted.voluntary.min(asked.min(1)) + counted.involuntary.min(asked.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_switches_of_one_thread_prove_nothing_for_another() {
        let busy = Usage { voluntary: 40, involuntary: 3, ..Usage::default() };
        assert_eq!(proven(busy, 2), 2);
        let alone = Usage { voluntary: 1, ..Usage::default() };
        assert_eq!(proven(alone, 100), 1);
        assert_eq!(proven(Usage::default(), 2), 0);
        assert_eq!(proven(busy, 0), 0);
    }
}
