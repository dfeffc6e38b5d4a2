//! `alloc`, `switch`, `warm`, `throughput` and `parked`: units that wait at a gate until all are
//! there, and then take turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use may::sync::SyncFlag;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::Round;

/// What the units of a round count in: how many are born, how many switches they made, and the
/// number of the one that yielded last.
#[derive(Default)]
struct Counts {
    born: AtomicU64,
    made: AtomicU64,
    turn: AtomicU64,
}

pub fn run_tasks(runtime: &Runtime, units: u64, switches: u64, all_alive: &mut dyn FnMut()) -> Round {
    let counts = Arc::new(Counts::default());
    let gate = Arc::new(Semaphore::new(0));
    let crowd = Arc::new(Semaphore::new(0));
    runtime.block_on(async {
        let start = Instant::now();
        let mut tasks = Vec::with_capacity(units as usize);
        for number in 1..=units {
            let (counts, gate, crowd) = (counts.clone(), gate.clone(), crowd.clone());
            tasks.push(tokio::spawn(async move {
                let mut made = u64::from(!gate.is_closed());
                if counts.born.fetch_add(1, Ordering::Relaxed) + 1 == units {
                    crowd.close();
                }
                // No permit is ever given: the gate opens by being closed.
                let _ = gate.acquire().await;
                for _ in 1..switches {
                    counts.turn.store(number, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    made += u64::from(counts.turn.load(Ordering::Relaxed) != number);
                }
                counts.made.fetch_add(made, Ordering::Relaxed);
            }));
        }
        let _ = crowd.acquire().await;
        let create_ns = start.elapsed().as_nanos();
        all_alive();
        let start = Instant::now();
        // By a task: opened from this thread, it would wake one after the other, and where there is one
        // core the first would be done before the second is awake.
        let open = tokio::spawn(async move { gate.close() });
        for task in tasks.into_iter().chain([open]) {
            task.await.expect("no unit panics");
        }
        let run_ns = start.elapsed().as_nanos();
        Round { create_ns, run_ns, made: counts.made.load(Ordering::Relaxed) }
    })
}

pub fn run_may(units: u64, switches: u64, all_alive: &mut dyn FnMut()) -> Round {
    let counts = Arc::new(Counts::default());
    let gate = Arc::new(SyncFlag::new());
    let crowd = Arc::new(SyncFlag::new());
    let start = Instant::now();
    let mut all = Vec::with_capacity(units as usize);
    for number in 1..=units {
        let (counts, gate, crowd) = (counts.clone(), gate.clone(), crowd.clone());
        all.push(may::go!(move || {
            let mut made = u64::from(!gate.is_fired());
            if counts.born.fetch_add(1, Ordering::Relaxed) + 1 == units {
                crowd.fire();
            }
            gate.wait();
            for _ in 1..switches {
                counts.turn.store(number, Ordering::Relaxed);
                may::coroutine::yield_now();
                made += u64::from(counts.turn.load(Ordering::Relaxed) != number);
            }
            counts.made.fetch_add(made, Ordering::Relaxed);
        }));
    }
    crowd.wait();
    let create_ns = start.elapsed().as_nanos();
    all_alive();
    let start = Instant::now();
    gate.fire();
    for one in all {
        one.join().expect("no unit panics");
    }
    let run_ns = start.elapsed().as_nanos();
    Round { create_ns, run_ns, made: counts.made.load(Ordering::Relaxed) }
}
