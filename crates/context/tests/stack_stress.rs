//! Many threads use one pool at random, and no stack is handed out twice.

use carefree_context::stack::{GuardMode, PoolOptions, Stack, StackPool, StackSize};

const THREADS: u64 = 6;
const STEPS: usize = 2000;
const MOST: usize = 200;

/// Pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// A stack in use, marked by its holder at both ends.
struct Held {
    stack: Stack,
    mark: u64,
}

impl Held {
    fn new(stack: Stack, mark: u64) -> Held {
        let held = Held { stack, mark };
        if held.stack.is_fresh() {
            assert_eq!(held.read(), [0, 0], "a fresh stack was used before");
        }
        for end in held.ends() {
            // SAFETY: both ends are in the usable part of a stack that this holder owns.
            unsafe { end.write_volatile(mark) };
        }
        held
    }

    fn ends(&self) -> [*mut u64; 2] {
        [self.stack.limit().cast(), self.stack.top().cast::<u64>().wrapping_sub(1)]
    }

    fn read(&self) -> [u64; 2] {
        // SAFETY: both ends are in the usable part of a stack that this holder owns.
        self.ends().map(|end| unsafe { end.read_volatile() })
    }

    fn check(&self) {
        assert_eq!(self.read(), [self.mark; 2], "{:?} was written by another", self.stack);
    }
}

fn work(pool: &StackPool, seed: u64) {
    let mut random = Random(seed);
    let mut held: Vec<Held> = Vec::new();
    let mut mark = seed << 32;
    for _ in 0..STEPS {
        let size = if random.below(5) > 0 { StackSize::DEFAULT } else { StackSize::MIN };
        match random.below(100) {
            0..40 if held.len() < MOST => {
                mark += 1;
                held.push(Held::new(pool.acquire(size).unwrap(), mark));
            }
            40..55 if held.len() < MOST => {
                let mut stacks = Vec::new();
                let wanted = 1 + random.below(99);
                pool.acquire_many(size, wanted, &mut stacks).unwrap();
                assert_eq!(stacks.len(), wanted);
                mark += 1;
                held.extend(stacks.into_iter().map(|stack| Held::new(stack, mark)));
            }
            55..80 if !held.is_empty() => {
                let gone = held.swap_remove(random.below(held.len()));
                gone.check();
            }
            80..99 => {
                let some = held.split_off(held.len() - held.len() / 2);
                some.iter().for_each(Held::check);
                pool.release_many(&mut some.into_iter().map(|held| held.stack).collect());
            }
            99 => pool.trim(),
            _ => held.iter().for_each(Held::check),
        }
    }
    held.iter().for_each(Held::check);
}

fn stress(guards: GuardMode, seed: u64) {
    // A low watermark, so that memory is given back.
    let options = PoolOptions { guards: Some(guards), idle_bytes: Some(1 << 20) };
    let pool = StackPool::with_options(options);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || work(pool, seed + thread));
        }
    });
    let stats = pool.stats();
    assert_eq!(stats.in_use, 0);
    assert!(stats.idle_touched + stats.idle_ready + stats.given_back <= stats.slots, "{stats:?}");
    pool.trim();
    let stats = pool.stats();
    assert_eq!((stats.idle_touched, stats.idle_ready), (0, 0), "{stats:?}");
}

#[test]
fn many_threads_at_random_guards_by_madvise() {
    for seed in [1, 1000, 2000] {
        stress(GuardMode::Madvise, seed);
    }
}

#[test]
fn many_threads_at_random_guards_by_mprotect() {
    for seed in [3000, 4000] {
        stress(GuardMode::Mprotect, seed);
    }
}
