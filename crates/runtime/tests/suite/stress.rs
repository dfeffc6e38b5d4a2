//! All kinds of calls at once, at random.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carefree_runtime::wait::{self, Until};
use carefree_runtime::{
    Outcome, Reason, Runtime, Semaphore, Thread, check, clock, current, lot, metrics, park_timeout,
    scope, shield, sleep, spawn, timeout, yield_now,
};

use crate::common::{Random, in_forced_mode, own_tls, within_reason};

struct World {
    peers: Mutex<Vec<Thread>>,
    permits: Semaphore,
    inside: AtomicUsize,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

const PERMITS: usize = 2;
/// Wake-ups that the monitor may find missing, over all that run at the time.
const FEW: u64 = 5;

fn micros(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(150))
}

/// A fiber chosen at random, which may have ended.
fn peer(world: &World, random: &mut Random) -> Option<Thread> {
    let peers = world.peers.lock().unwrap();
    let end = peers.len() as u64;
    (end > 0).then(|| peers[random.below(end) as usize].clone())
}

fn live(world: &Arc<World>, seed: u64, steps: u64, depth: u64) -> u64 {
    world.begun.fetch_add(1, Ordering::Relaxed);
    let mut random = Random(seed);
    for _ in 0..steps {
        match random.below(16) {
            0..=2 => yield_now(),
            3 => sleep(micros(&mut random)),
            4 => park_timeout(micros(&mut random)),
            5 | 6 => {
                if let Some(peer) = peer(world, &mut random) {
                    peer.unpark();
                }
            }
            7 => {
                if let Some(peer) = peer(world, &mut random).filter(|_| random.below(8) == 0) {
                    peer.cancel();
                }
            }
            8 => {
                if let Ok(_permit) = world.permits.acquire() {
                    assert!(world.inside.fetch_add(1, Ordering::SeqCst) < PERMITS);
                    if random.below(2) == 0 {
                        yield_now();
                    }
                    world.inside.fetch_sub(1, Ordering::SeqCst);
                }
            }
            9 if depth > 0 => {
                let (theirs, seed) = (world.clone(), random.next());
                let handle = spawn(move || live(&theirs, seed, steps / 2, depth - 1));
                match random.below(3) {
                    0 => drop(handle),
                    // The join may end early, if this fiber is cancelled.
                    _ => assert!(handle.join().unwrap_or(seed) == seed),
                }
            }
            10 if depth > 0 => {
                let mut sums = [0; 3];
                scope(|s| {
                    for sum in &mut sums {
                        let seed = random.next();
                        s.spawn(move || *sum = live(world, seed, steps / 3, depth - 1));
                    }
                });
                assert!(sums.iter().all(|sum| *sum != 0));
            }
            11 => {
                let limit = micros(&mut random);
                let _ = timeout(limit, || {
                    shield(yield_now);
                    sleep(2 * limit);
                    check()
                });
            }
            12 => {
                // Now and then computes for so long that the carrier counts as kept.
                let micros = match random.below(32) {
                    0 => 8_000,
                    _ => random.below(100),
                };
                let end = std::time::Instant::now() + Duration::from_micros(micros);
                while std::time::Instant::now() < end {
                    std::hint::spin_loop();
                }
            }
            // Blocks its carrier, unseen: this room is not interposed.
            13 if random.below(8) == 0 => std::thread::sleep(micros(&mut random)),
            // Spins for what another fiber will do.
            14 if depth > 0 && own_tls() && random.below(4) == 0 => {
                let flag = Arc::new(AtomicBool::new(false));
                let theirs = flag.clone();
                drop(spawn(move || theirs.store(true, Ordering::Release)));
                while !flag.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            }
            _ => {
                std::hint::black_box(vec![seed; random.below(200) as usize]);
            }
        }
    }
    world.ended.fetch_add(1, Ordering::Relaxed);
    seed
}

fn stress(carriers: usize) {
    let steps = if in_forced_mode() { 12 } else { 30 };
    // Some fixed seeds, and one from the clock.
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let new = time.map_or(3, |time| time.as_nanos() as u64);
    for seed in [1, 2, new] {
        eprintln!("stress on {carriers} carriers with seed {seed}");
        within_reason(move || {
            let world = Arc::new(World {
                peers: Mutex::default(),
                permits: Semaphore::new(PERMITS),
                inside: AtomicUsize::new(0),
                begun: AtomicUsize::new(0),
                ended: AtomicUsize::new(0),
            });
            let runtime = Runtime::builder().carriers(carriers).build().unwrap();
            let mut random = Random(seed);
            let handles: Vec<_> = (0..24)
                .map(|_| {
                    let (world, seed) = (world.clone(), random.next() | 1);
                    runtime.spawn(move || {
                        world.peers.lock().unwrap().push(current());
                        live(&world, seed, steps, 2) == seed
                    })
                })
                .collect();
            // This plain thread takes part.
            live(&world, seed, steps, 0);
            for handle in handles {
                assert!(handle.join().unwrap());
            }
            // While this runtime is there, or in none of those of other tests. A carrier tells others of what
            // it has queued by how long its fibers ran of late: where one runs longer for once, on a busy
            // machine, the monitor may be first.
            assert!(metrics().missed <= FEW, "{:?}", metrics());
            drop(runtime);
            let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
            assert_eq!(count(&world.begun), count(&world.ended));
            assert_eq!(world.permits.available(), PERMITS);
        });
    }
}

#[test]
fn on_one_carrier() {
    stress(1);
}

#[test]
fn on_two_carriers() {
    stress(2);
}

#[test]
fn on_four_carriers() {
    stress(4);
}

#[test]
fn on_sixteen_carriers() {
    stress(16);
}

#[test]
fn on_a_hundred_carriers() {
    stress(100);
}

/// An unpark that finds a waiter whose deadline has passed must not end the fiber's next wait.
#[test]
fn a_waiter_that_gave_up_is_not_woken_from_its_next_wait() {
    const MANY: usize = 0x10_0000;
    let stop = AtomicBool::new(false);
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    std::thread::scope(|threads| {
        for turn in 0..2 {
            let stop = &stop;
            threads.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if turn == 0 {
                        lot::unpark(MANY, usize::MAX);
                    } else {
                        lot::requeue(MANY, MANY + 4096, 0, usize::MAX, || true);
                        lot::unpark(MANY + 4096, usize::MAX);
                    }
                }
            });
        }
        runtime.run(|| {
            let end = clock::after(Duration::from_secs(1));
            scope(|fibers| {
                for number in 0..8 {
                    fibers.spawn(move || {
                        let park = |key, nanoseconds| {
                            let deadline = clock::now() + nanoseconds;
                            let until = Until { deadline, cancellable: false };
                            wait::park(key, || true, Reason::Park, until)
                        };
                        let mut round = 0;
                        while clock::now() < end {
                            round += 1;
                            park(MANY, round % 7 * 1000);
                            // Nothing unparks this key.
                            assert_eq!(park(4 * (number + 1), 20_000), Outcome::TimedOut);
                        }
                    });
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
}

/// Waits that only an unpark of their key ends, between waits with a deadline: a fiber is off its stack before
/// it is made ready, and none is forgotten.
#[test]
fn batons_go_round() {
    const FIBERS: usize = 12;
    const PASSES: usize = 20_000;
    let key = |number: usize| 0x20_0000 + 8 * number;
    let further = |number: usize| 0x30_0000 + 8 * number;
    let batons = [const { AtomicUsize::new(0) }; FIBERS];
    let passes = AtomicUsize::new(0);
    let is_over = || passes.load(Ordering::SeqCst) >= PASSES;
    let runner = |me: usize| {
        loop {
            let waits = || batons[me].load(Ordering::SeqCst) == 0 && !is_over();
            let outcome = wait::park(key(me), waits, Reason::Park, Until::WOKEN_ONLY);
            assert!(matches!(outcome, Outcome::Unparked | Outcome::Invalid), "{outcome:?}");
            if is_over() {
                return;
            }
            let fewer = |batons: usize| batons.checked_sub(1);
            if batons[me].fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_err() {
                continue;
            }
            let pass = passes.fetch_add(1, Ordering::SeqCst) + 1;
            if pass == PASSES {
                for number in 0..FIBERS {
                    lot::unpark(key(number), usize::MAX);
                }
                return;
            }
            if pass % 16 == 0 {
                let until = Until { deadline: clock::now() + 500, cancellable: true };
                wait::park(further(FIBERS), || true, Reason::Park, until);
            }
            let next = (7 * me + pass) % FIBERS;
            batons[next].fetch_add(1, Ordering::SeqCst);
            if pass % 3 == 0 {
                lot::requeue(key(next), further(next), 0, usize::MAX, || true);
                lot::unpark(further(next), usize::MAX);
            } else {
                lot::unpark(key(next), 1);
            }
        }
    };
    for carriers in [1, 4] {
        passes.store(0, Ordering::SeqCst);
        // Three batons go round.
        for (number, baton) in batons.iter().enumerate() {
            baton.store(usize::from(number < 3), Ordering::SeqCst);
        }
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        runtime.run(|| {
            scope(|fibers| {
                for me in 0..FIBERS {
                    let runner = &runner;
                    fibers.spawn(move || runner(me));
                }
            });
        });
    }
}
