//! The program of units that start by themselves: threads and fibers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::{Run, ns};
use crate::sample::{Failure, Round};

/// What threads and fibers do each in their own way.
pub(super) trait Gated {
    /// A unit that was spawned.
    type Handle;
    /// The way to wake the one who runs the program.
    type Keeper: Send + Sync + 'static;

    fn spawn(unit: impl FnOnce() -> u64 + Send + 'static) -> io::Result<Self::Handle>;
    fn unpark(unit: &Self::Handle);
    /// What the unit returned; nothing if it panicked.
    fn join(unit: Self::Handle) -> Option<u64>;

    fn keeper() -> Self::Keeper;
    fn wake(keeper: &Self::Keeper);

    fn park();
    fn yield_now();
    /// Called by a unit at its end: how many of the `asked` switches it can prove.
    fn made(asked: u64) -> u64;

    /// What to say when no more than `reached` units could be had.
    fn ran_out(reached: u64, asked: u64, error: &io::Error) -> Failure;
}

/// Where the units of a run wait for each other.
struct Gate<K> {
    expected: u64,
    alive: AtomicU64,
    open: AtomicBool,
    keeper: K,
}

pub(super) fn run<U: Gated>(
    units: u64,
    switches: u64,
    all_alive: &mut (dyn FnMut() + Send),
) -> Result<Run, Failure> {
    let gate = Arc::new(Gate {
        expected: units,
        alive: AtomicU64::new(0),
        open: AtomicBool::new(false),
        keeper: U::keeper(),
    });
    let mut handles = Vec::with_capacity(usize::try_from(units).unwrap_or(0));

    let start = Instant::now();
    for _ in 0..units {
        let its_gate = Arc::clone(&gate);
        match U::spawn(move || unit::<U>(&its_gate, switches)) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                let reached = handles.len() as u64;
                open::<U>(&gate, &handles);
                // They end by themselves now; what they did does not matter any more.
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

fn open<U: Gated>(gate: &Gate<U::Keeper>, handles: &[U::Handle]) {
    gate.open.store(true, Ordering::Release);
    handles.iter().for_each(U::unpark);
}

fn unit<U: Gated>(gate: &Gate<U::Keeper>, switches: u64) -> u64 {
    if gate.alive.fetch_add(1, Ordering::AcqRel) + 1 == gate.expected {
        U::wake(&gate.keeper);
    }
    // `park` may return without a reason.
    while !gate.open.load(Ordering::Acquire) {
        U::park();
    }
    for _ in 1..switches {
        U::yield_now();
    }
    U::made(switches)
}
