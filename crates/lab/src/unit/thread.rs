//! The kernel's threads, through `std::thread`.
//!
//! A thread's switch is `sched_yield`, the cheapest one there is, and the gate is
//! `std::thread::park`. Whether a yield did switch is not the thread's to say, since it returns
//! either way: the kernel's own counts tell, read once by each thread when it has done its work.

use std::io;
use std::thread::{self, Builder, JoinHandle};

use super::Run;
use super::gated::{self, Gated};
use crate::limits;
use crate::sample::Failure;
use crate::sys::{self, ContextSwitches, Who};

struct Thread;

impl Gated for Thread {
    type Handle = JoinHandle<u64>;
    type Keeper = thread::Thread;

    fn spawn(unit: impl FnOnce() -> u64 + Send + 'static) -> io::Result<JoinHandle<u64>> {
        Builder::new().spawn(unit)
    }

    fn unpark(unit: &JoinHandle<u64>) {
        unit.thread().unpark();
    }

    fn join(unit: JoinHandle<u64>) -> Option<u64> {
        unit.join().ok()
    }

    fn keeper() -> thread::Thread {
        thread::current()
    }

    fn wake(keeper: &thread::Thread) {
        keeper.unpark();
    }

    fn park() {
        thread::park();
    }

    fn yield_now() {
        thread::yield_now();
    }

    fn made(asked: u64) -> u64 {
        proven(sys::usage(Who::Thread).switches, asked)
    }

    fn ran_out(reached: u64, asked: u64, error: &io::Error) -> Failure {
        limits::threads_ran_out(reached, asked, error)
    }
}

pub(super) fn run(
    units: u64,
    switches: u64,
    all_alive: &mut (dyn FnMut() + Send),
) -> Result<Run, Failure> {
    gated::run::<Thread>(units, switches, all_alive)
}

/// How many of its switches a thread made. A yield that switched is counted by the kernel as
/// involuntary, for the thread could have gone on; a wait as voluntary. Both are capped for each
/// thread by what it was asked for, so that threads that waited for the kernel's locks, or had
/// used up their time, cannot hide those that never switched.
fn proven(counted: ContextSwitches, asked: u64) -> u64 {
    counted.voluntary.min(asked.min(1)) + counted.involuntary.min(asked.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_switches_of_one_thread_prove_nothing_for_another() {
        let busy = ContextSwitches { voluntary: 40, involuntary: 3 };
        assert_eq!(proven(busy, 2), 2);
        let alone = ContextSwitches { voluntary: 1, involuntary: 0 };
        assert_eq!(proven(alone, 100), 1);
        assert_eq!(proven(ContextSwitches::default(), 2), 0);
        assert_eq!(proven(busy, 0), 0);
    }
}
