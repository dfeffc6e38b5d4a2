//! What the fibers do whose scheduling is counted.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::machine;
use super::memory::{AtomicUsize, Ordering};
use crate::{JoinHandle, Runtime, Thread, current, park, sleep, spawn, yield_now};

/// What was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// So many of what the load consists of.
    pub(super) units: usize,
    /// Nanoseconds that they have computed, all together.
    pub(super) computed: usize,
}

/// What fibers do, on a runtime with so many carriers.
pub(super) struct Load {
    pub(super) name: &'static str,
    /// What is done, and how much of it there is.
    pub(super) what: &'static str,
    /// Called by a plain thread.
    pub(super) run: fn(&Runtime, usize) -> Done,
}

pub(super) const ALL: [Load; 7] = [
    Load {
        name: "pairs",
        what: "a hand-over between the two fibers of a pair (a pair for each carrier; 300 ns each)",
        run: |runtime, carriers| pairs(runtime, carriers, 1_000),
    },
    Load {
        name: "one pair",
        what: "a hand-over between two fibers, all other carriers without work (300 ns each)",
        run: |runtime, _| pairs(runtime, 1, 4_000),
    },
    Load {
        name: "tree",
        what: "a leaf of a tree of fibers that spawn two and join them (32 leaves a carrier, 20 us each)",
        run: tree,
    },
    Load {
        name: "crowd",
        what: "a fiber of a crowd that one spawns and joins (32 a carrier, 20 us each)",
        run: crowd,
    },
    Load {
        name: "bursts",
        what: "a fiber of bursts that one spawns and joins, with pauses (20 us each; one for each second carrier)",
        run: bursts,
    },
    Load {
        name: "timers",
        what: "a fiber's sleep of 20 to 180 us and 10 us of work (4 fibers a carrier)",
        run: timers,
    },
    Load {
        name: "outside",
        what: "a fiber that a plain thread spawns, one each us; half the carriers' time is enough for all",
        run: outside,
    },
];

fn compute(nanoseconds: usize) {
    machine::pass(nanoseconds as u64);
}

fn join_all(fibers: Vec<JoinHandle<()>>) {
    fibers.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
}

/// One side of a pair.
struct Pair {
    sides: [OnceLock<Thread>; 2],
    turn: AtomicUsize,
}

impl Pair {
    fn play(&self, side: usize, rounds: usize, work: usize) {
        self.sides[side].set(current()).expect("each side once");
        let other = loop {
            match self.sides[1 - side].get() {
                Some(other) => break other,
                None => yield_now(),
            }
        };
        for _ in 0..rounds {
            while self.turn.load(Ordering::Acquire) != side {
                park();
            }
            compute(work);
            self.turn.store(1 - side, Ordering::Release);
            other.unpark();
        }
    }
}

fn pairs(runtime: &Runtime, pairs: usize, rounds: usize) -> Done {
    const WORK: usize = 300;
    let all = runtime.spawn(move || {
        let pair = || {
            let pair =
                Pair { sides: [OnceLock::new(), OnceLock::new()], turn: AtomicUsize::new(0) };
            let pair = Arc::new(pair);
            [0, 1].map(|side| {
                let pair = Arc::clone(&pair);
                spawn(move || pair.play(side, rounds, WORK))
            })
        };
        join_all((0..pairs).flat_map(|_| pair()).collect());
    });
    all.join().expect("it does not panic");
    let units = 2 * pairs * rounds;
    Done { units, computed: units * WORK }
}

fn tree(runtime: &Runtime, carriers: usize) -> Done {
    const WORK: usize = 20_000;
    fn grow(leaves: usize) {
        if leaves == 1 {
            return compute(WORK);
        }
        let [one, other] = [leaves / 2, leaves - leaves / 2].map(|half| spawn(move || grow(half)));
        join_all(vec![one, other]);
    }
    let leaves = 32 * carriers;
    runtime.spawn(move || grow(leaves)).join().expect("it does not panic");
    Done { units: leaves, computed: leaves * WORK }
}

fn crowd(runtime: &Runtime, carriers: usize) -> Done {
    const WORK: usize = 20_000;
    let fibers = 32 * carriers;
    let all = move || join_all((0..fibers).map(|_| spawn(|| compute(WORK))).collect());
    runtime.spawn(all).join().expect("it does not panic");
    Done { units: fibers, computed: fibers * WORK }
}

fn bursts(runtime: &Runtime, carriers: usize) -> Done {
    const WORK: usize = 20_000;
    const BURSTS: usize = 20;
    let burst = carriers.div_ceil(2);
    let all = move || {
        for _ in 0..BURSTS {
            join_all((0..burst).map(|_| spawn(|| compute(WORK))).collect());
            sleep(Duration::from_micros(300));
        }
    };
    runtime.spawn(all).join().expect("it does not panic");
    Done { units: burst * BURSTS, computed: burst * BURSTS * WORK }
}

fn timers(runtime: &Runtime, carriers: usize) -> Done {
    const WORK: usize = 10_000;
    const ROUNDS: usize = 30;
    let fibers = 4 * carriers;
    let one = |seed: usize| {
        let mut random = seed as u64 + 1;
        for _ in 0..ROUNDS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sleep(Duration::from_nanos(20_000 + (random >> 33) % 160_000));
            compute(WORK);
        }
    };
    let all = move || join_all((0..fibers).map(|seed| spawn(move || one(seed))).collect());
    runtime.spawn(all).join().expect("it does not panic");
    Done { units: fibers * ROUNDS, computed: fibers * ROUNDS * WORK }
}

fn outside(runtime: &Runtime, carriers: usize) -> Done {
    const FIBERS: usize = 2_000;
    let work = 500 * carriers;
    let one = |_| {
        compute(1_000);
        runtime.spawn(move || compute(work))
    };
    join_all((0..FIBERS).map(one).collect());
    Done { units: FIBERS, computed: FIBERS * work }
}
