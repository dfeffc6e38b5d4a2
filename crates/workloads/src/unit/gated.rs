//! The program of units that start by themselves: threads and fibers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::run::{Alive, Run, ns};
use super::threads::Threads;
use crate::answer::{Failure, Round};

/// Where the units of a run wait for each other.
struct Gate<Thread> {
    expected: u64,
    alive: AtomicU64,
    open: AtomicBool,
    /// The thread that runs the program, which the last unit to arrive wakes.
    keeper: Thread,
}

/// Runs the program. `made` is called by each unit at its end: how many of the switches asked for it
/// can prove.
pub(super) fn run<U: Threads>(
    units: u64,
    switches: u64,
    all_alive: Alive<'_>,
    made: fn(u64) -> u64,
) -> Result<Run, Failure> {
    let gate = Arc::new(Gate {
        expected: units,
        alive: AtomicU64::new(0),
        open: AtomicBool::new(false),
        keeper: U::current(),
    });
    let mut handles = Vec::with_capacity(usize::try_from(units).unwrap_or(0));

    let start = Instant::now();
    for _ in 0..units {
        let its_gate = Arc::clone(&gate);
        match U::spawn(move || unit::<U>(&its_gate, switches, made)) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                let reached = handles.len() as u64;
                open::<U>(&gate, &handles);
                // With the gate open they end; what they did does not matter any more.
                for handle in handles {
                    let _ = U::join(handle);
                }
                return Err(U::ran_out(reached, units, &error));
            }
        }
    }
    while gate.alive.load(Ordering::Acquire) < units {
        U::park();
    }
    let create_ns = ns(start.elapsed());

    all_alive();

    let start = Instant::now();
    open::<U>(&gate, &handles);
    let mut switches_made = 0;
    for handle in handles {
        switches_made += U::join(handle).ok_or_else(|| Failure::new("a unit panicked"))?;
    }
    let run_ns = ns(start.elapsed());
    Ok(Run { times: Round { create_ns, run_ns }, switches_made })
}

fn open<U: Threads>(gate: &Gate<U::Thread>, handles: &[U::Handle<u64>]) {
    gate.open.store(true, Ordering::Release);
    handles.iter().for_each(|handle| U::unpark(U::thread(handle)));
}

fn unit<U: Threads>(gate: &Gate<U::Thread>, switches: u64, made: fn(u64) -> u64) -> u64 {
    if gate.alive.fetch_add(1, Ordering::AcqRel) + 1 == gate.expected {
        U::unpark(&gate.keeper);
    }
    // `park` may return without a reason.
    while !gate.open.load(Ordering::Acquire) {
        U::park();
    }
    for _ in 1..switches {
        U::yield_now();
    }
    made(switches)
}
