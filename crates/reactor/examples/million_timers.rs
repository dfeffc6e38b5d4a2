//! A million timers: the cost of an insertion, a removal and an expiry, and bytes for each timer.
//!
//! `cargo run --release -p carefree-reactor --example million_timers`
//!
//! Deadlines lie at random within ten seconds and timers are removed in random order, so that
//! every operation misses the cache as often as it would in a large server. The first line is the
//! cost of such a miss on this machine, for comparison. The last lines
//! are the same operations on ten thousand timers, which fit into the cache.

use carefree_reactor::{Wheel, clock};
use std::hint::black_box;
use std::ptr::NonNull;

const TIMERS: usize = 1_000_000;
const SPAN: u64 = 10_000_000_000;

/// Marsaglia's xorshift, which is good enough here.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}

fn report(what: &str, started: u64, operations: usize) {
    let nanos = clock::now() - started;
    println!("{what:<58} {:>7.1} ns", nanos as f64 / operations as f64);
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc/self/statm");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: usize| pages * 4096)
}

/// One write at a random place within as many bytes as the timers take.
fn yardstick(random: &mut Random) {
    let mut memory = vec![1u64; TIMERS * 6];
    let places: Vec<u32> =
        (0..TIMERS).map(|_| (random.next() % memory.len() as u64) as u32).collect();
    let started = clock::now();
    let mut last = 0;
    for place in places {
        // Each place depends on the value read at the last, as a removal depends on its key.
        let place = place as usize ^ (last as usize & 2);
        last = memory[place];
        memory[place] = last ^ 2;
    }
    black_box(last);
    report("yardstick: one dependent cache miss", started, TIMERS);
}

fn main() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    yardstick(&mut random);
    measure(&mut random, TIMERS);
    measure(&mut random, 10_000);
}

fn measure(random: &mut Random, timers: usize) {
    println!("-- {timers} timers");
    let mut now = 1_000_000_000_000;
    // In place of the pointer to a fiber.
    let payload = NonNull::from(&now).cast::<()>();
    let deadlines: Vec<u64> = (0..timers).map(|_| random.next() % SPAN).collect();
    let mut keys = Vec::with_capacity(timers);
    keys.resize(timers, None);
    keys.clear();
    let mut wheel = Wheel::new(now);
    let before = resident();

    let started = clock::now();
    keys.extend(deadlines.iter().map(|after| Some(wheel.insert(now + after, payload))));
    report("insert, at first (memory is fresh)", started, timers);
    let each = (resident() - before) as f64 / timers as f64;
    // The second, smaller set of timers uses the memory of the first.
    if each > 1.0 {
        println!("{:<58} {each:>7.1} bytes", "resident memory of a timer");
    }

    random.shuffle(&mut keys);
    let started = clock::now();
    for key in keys.drain(..).flatten() {
        black_box(wheel.remove(key));
    }
    report("remove, all in random order", started, timers);

    let started = clock::now();
    for after in &deadlines {
        keys.push(Some(wheel.insert(now + after, payload)));
    }
    report("insert, again (rows in random order)", started, timers);

    let started = clock::now();
    for (index, after) in deadlines.iter().enumerate() {
        if let Some(key) = keys[index].take() {
            black_box(wheel.remove(key));
        }
        keys[index] = Some(wheel.insert(now + after + 1, payload));
    }
    report("remove + insert (a timeout renewed)", started, timers);

    let started = clock::now();
    let (mut fired, mut calls) = (0, 0);
    while let Some(next) = wheel.next_deadline() {
        now = next + 50_000; // a carrier wakes some 50 us after the earliest
        fired += wheel.expire(now, |payload| _ = black_box(payload));
        calls += 1;
    }
    report("expire, as carriers do, cascades and sorting included", started, timers);
    assert_eq!(fired, timers);
    println!("{:<58} {:>7.1} timers", "   fired by one call", timers as f64 / f64::from(calls));

    for after in &deadlines {
        wheel.insert(now + after, payload);
    }
    let started = clock::now();
    let fired = wheel.expire(now + SPAN, |payload| _ = black_box(payload));
    report("expire, all in one call", started, timers);
    assert_eq!(fired, timers);
}
