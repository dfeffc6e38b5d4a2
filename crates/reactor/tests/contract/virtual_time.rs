//! The mock's own contract: an order from the seed, and time that passes at once.

use super::kit::*;
use carefree_reactor::clock::{Virtual, nanos};
use carefree_reactor::{Completions, Driver, Idle, Shared};
use std::collections::HashSet;
use std::io::Write;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

fn mock(seed: u64) -> (Driver, Arc<Virtual>) {
    let clock = Arc::new(Virtual::new());
    let idle = Shared::new(Idle::new());
    (Driver::mock(seed, Arc::clone(&clock), idle).unwrap(), clock)
}

/// The order in which ten reads that are all ready complete.
fn order(seed: u64) -> Vec<u64> {
    let (mut driver, _) = mock(seed);
    let mut pipes: Vec<_> = (0..10).map(|_| pipe().unwrap()).collect();
    let mut buffers = [[0u8; 4]; 10];
    for (token, (pipe, buffer)) in pipes.iter_mut().zip(&mut buffers).enumerate() {
        // SAFETY: the buffers are not used until the completions have come.
        unsafe { driver.submit(token as u64, &read(&pipe.0, buffer)).unwrap() };
        pipe.1.write_all(b"x").unwrap();
    }
    let mut out = Completions::new();
    driver.wait(None, &mut out);
    assert_eq!(out.len(), 10);
    out.iter().map(|done| done.token).collect()
}

#[test]
fn only_the_seed_determines_the_order() {
    let orders: HashSet<_> = (0..20).map(order).collect();
    assert!(orders.len() > 15, "only {} orders", orders.len());
    for seed in 0..20 {
        assert_eq!(order(seed), order(seed));
    }
}

#[test]
fn hours_pass_at_once() {
    let real = Instant::now();
    let (mut driver, clock) = mock(1);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    // SAFETY: the buffer is not used until the completion has come.
    unsafe { driver.submit(1, &read(&reader, &mut buffer)).unwrap() };
    let start = driver.now();
    for hours in 1..=1_000 {
        let deadline = start + hours * nanos(HOUR);
        assert!(!driver.wait(Some(deadline), &mut Completions::new()));
        assert_eq!(driver.now(), deadline);
    }
    assert_eq!(clock.now(), start + 1_000 * nanos(HOUR));
    assert!(real.elapsed() < HOUR);
    // Operations that are ready complete before time passes, and so does a wake-up.
    let later = driver.now() + nanos(HOUR);
    writer.write_all(b"x").unwrap();
    let mut out = Completions::new();
    driver.wait(Some(later), &mut out);
    assert_eq!(out[0].result, 1);
    driver.waker().wake();
    assert!(driver.wait(Some(later), &mut out));
    assert!(driver.now() < later);
    // Time does not go back.
    driver.wait(Some(start), &mut out);
    assert!(driver.now() > start);
}

#[test]
fn held_time_stands_still() {
    let (mut driver, clock) = mock(1);
    let start = clock.now();
    let held = Arc::new(Barrier::new(2));
    let outside = std::thread::spawn({
        let (clock, waker, held) = (Arc::clone(&clock), driver.waker(), Arc::clone(&held));
        move || {
            let holding = clock.hold();
            held.wait();
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
            std::thread::sleep(Duration::from_millis(20));
            drop(holding);
        }
    });
    held.wait();
    while !driver.wait(Some(start + nanos(HOUR)), &mut Completions::new()) {
        assert_eq!(driver.now(), start);
    }
    while driver.now() < start + nanos(HOUR) {
        driver.wait(Some(start + nanos(HOUR)), &mut Completions::new());
    }
    outside.join().unwrap();
    assert!(!clock.is_held());
}
