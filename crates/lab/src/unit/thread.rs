//! The kernel's threads, through `std::thread`.
//!
//! A thread's switch is `sched_yield`, the cheapest one there is, and the gate is
//! `std::thread::park`. Whether a yield did switch is not the thread's to say, since it returns
//! either way: the kernel's own counts tell, read once by each thread when it has done its work.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Builder, JoinHandle, Thread};
use std::time::Instant;

use super::{Run, ns};
use crate::limits;
use crate::sample::{Failure, Round};
use crate::sys::{self, ContextSwitches, Who};

/// Where the threads of a run wait for each other.
struct Gate {
    expected: u64,
    alive: AtomicU64,
    open: AtomicBool,
    keeper: Thread,
}

pub(super) fn run(
    units: u64,
    switches: u64,
    all_alive: &mut (dyn FnMut() + Send),
) -> Result<Run, Failure> {
    let gate = Arc::new(Gate {
        expected: units,
        alive: AtomicU64::new(0),
        open: AtomicBool::new(false),
        keeper: thread::current(),
    });
    let mut threads = Vec::with_capacity(usize::try_from(units).unwrap_or(0));

    let start = Instant::now();
    for _ in 0..units {
        let its_gate = Arc::clone(&gate);
        match Builder::new().spawn(move || unit(&its_gate, switches)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                let reached = threads.len() as u64;
                open(&gate, &threads);
                // They end by themselves now; what they did does not matter any more.
                threads.into_iter().for_each(|thread| drop(thread.join()));
                return Err(limits::threads_ran_out(reached, units, &error));
            }
        }
    }
    while gate.alive.load(Ordering::Acquire) < units {
        thread::park();
    }
    let create_ns = ns(start.elapsed());

    all_alive();

    let start = Instant::now();
    open(&gate, &threads);
    let mut switches_made = 0;
    for thread in threads {
        let counted = thread
            .join()
            .map_err(|_| Failure { message: "a thread panicked".into(), advice: None })?;
        switches_made += made(counted, switches);
    }
    let run_ns = ns(start.elapsed());
    Ok(Run { times: Round { create_ns, run_ns }, switches_made })
}

fn open(gate: &Gate, threads: &[JoinHandle<ContextSwitches>]) {
    gate.open.store(true, Ordering::Release);
    for thread in threads {
        thread.thread().unpark();
    }
}

fn unit(gate: &Gate, switches: u64) -> ContextSwitches {
    if gate.alive.fetch_add(1, Ordering::AcqRel) + 1 == gate.expected {
        gate.keeper.unpark();
    }
    // `park` may return without a reason.
    while !gate.open.load(Ordering::Acquire) {
        thread::park();
    }
    for _ in 1..switches {
        thread::yield_now();
    }
    sys::usage(Who::Thread).switches
}

/// How many of its switches a thread made. A yield that switched is counted by the kernel as
/// involuntary, for the thread could have gone on; a wait as voluntary. Both are capped for each
/// thread by what it was asked for, so that threads that waited for the kernel's locks, or had
/// used up their time, cannot hide those that never switched.
fn made(counted: ContextSwitches, asked: u64) -> u64 {
    let Some(asked) = NonZeroU64::new(asked) else {
        return 0;
    };
    counted.voluntary.min(1) + counted.involuntary.min(asked.get() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_switches_of_one_thread_prove_nothing_for_another() {
        let busy = ContextSwitches { voluntary: 40, involuntary: 3 };
        assert_eq!(made(busy, 2), 2);
        let alone = ContextSwitches { voluntary: 1, involuntary: 0 };
        assert_eq!(made(alone, 100), 1);
        assert_eq!(made(ContextSwitches::default(), 2), 0);
        assert_eq!(made(busy, 0), 0);
    }
}
