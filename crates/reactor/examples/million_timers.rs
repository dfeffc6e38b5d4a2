//! A million timers: what one insertion, one removal, one expiry and one byte count to.
//!
//! `cargo run --release -p carefree-reactor --example million_timers`
//!
//! Deadlines lie at random within ten seconds and timers are removed in random order, so that
//! every operation misses the cache as often as it would in a large server.

use carefree_reactor::{Wheel, clock};
use std::hint::black_box;
use std::ptr::NonNull;

const TIMERS: usize = 1_000_000;
const SPAN: u64 = 10_000_000_000;

/// Marsaglia's xorshift: no need for better here.
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

fn main() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut now = 1_000_000_000_000;
    // Stands for the pointer to a fiber.
    let payload = NonNull::from(&now).cast::<()>();
    let deadlines: Vec<u64> = (0..TIMERS).map(|_| random.next() % SPAN).collect();
    let mut keys = Vec::with_capacity(TIMERS);
    keys.resize(TIMERS, None);
    keys.clear();
    let mut wheel = Wheel::new(now);
    let before = resident();

    let started = clock::now();
    keys.extend(
        deadlines
            .iter()
            .map(|after| Some(wheel.insert(now + after, payload))),
    );
    report(
        "insert, the first million (memory is fresh)",
        started,
        TIMERS,
    );
    let each = (resident() - before) as f64 / TIMERS as f64;
    println!("{:<58} {each:>7.1} bytes", "resident memory of a timer");

    random.shuffle(&mut keys);
    let started = clock::now();
    for key in keys.drain(..).flatten() {
        black_box(wheel.remove(key));
    }
    report("remove, all in random order", started, TIMERS);

    let started = clock::now();
    for after in &deadlines {
        keys.push(Some(wheel.insert(now + after, payload)));
    }
    report(
        "insert, the second million (rows in random order)",
        started,
        TIMERS,
    );

    let started = clock::now();
    for (index, after) in deadlines.iter().enumerate() {
        if let Some(key) = keys[index].take() {
            black_box(wheel.remove(key));
        }
        keys[index] = Some(wheel.insert(now + after + 1, payload));
    }
    report(
        "remove + insert with a million set (a timeout renewed)",
        started,
        TIMERS,
    );

    let started = clock::now();
    let (mut fired, mut calls) = (0, 0);
    while let Some(next) = wheel.next_deadline() {
        now = next + 50_000; // a carrier gets up some 50 us after the earliest
        fired += wheel.expire(now, |payload| _ = black_box(payload));
        calls += 1;
    }
    report(
        "expire, as carriers do, cascades and sorting included",
        started,
        TIMERS,
    );
    assert_eq!(fired, TIMERS);
    println!(
        "{:<58} {:>7.1} timers",
        "   fired by one call",
        TIMERS as f64 / f64::from(calls)
    );

    for after in &deadlines {
        wheel.insert(now + after, payload);
    }
    let started = clock::now();
    let fired = wheel.expire(now + SPAN, |payload| _ = black_box(payload));
    report("expire, all in one call", started, TIMERS);
    assert_eq!(fired, TIMERS);

    let started = clock::now();
    for _ in 0..TIMERS {
        let key = wheel.insert(now + SPAN + 100_000_000, payload);
        black_box(wheel.remove(key));
    }
    report("insert + remove, the only timer", started, TIMERS);
}
