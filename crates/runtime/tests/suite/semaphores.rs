//! Semaphores.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carefree_runtime::{Runtime, Semaphore, park_timeout, scope, sleep, spawn, timeout, yield_now};

use crate::common::{FOREVER, Random, in_forced_mode, until, within_reason};

#[test]
fn permits_are_counted() {
    let semaphore = Semaphore::new(2);
    let first = semaphore.acquire().unwrap();
    assert_eq!(semaphore.available(), 1);
    let second = semaphore.try_acquire().unwrap();
    assert!(semaphore.try_acquire().is_none());
    drop(first);
    assert_eq!(semaphore.available(), 1);
    second.forget();
    assert_eq!(semaphore.available(), 1);
    semaphore.release(3);
    assert_eq!(semaphore.available(), 4);
    semaphore.release(0);
    assert_eq!(semaphore.available(), 4);
}

#[test]
fn too_many_are_refused() {
    let full = Semaphore::new(usize::MAX / 4);
    for more in [1, usize::MAX / 2, usize::MAX] {
        assert!(catch_unwind(std::panic::AssertUnwindSafe(|| full.release(more))).is_err());
    }
    assert_eq!(full.available(), usize::MAX / 4);
}

#[test]
fn the_longest_waiter_is_served_first() {
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let handles: Vec<_> = (0..10)
            .map(|n| {
                let (semaphore, order) = (semaphore.clone(), order.clone());
                let handle = spawn(move || {
                    semaphore.acquire().unwrap().forget();
                    order.lock().unwrap().push(n);
                });
                // Lets it begin to wait.
                sleep(Duration::from_millis(1));
                handle
            })
            .collect();
        for n in 0..10 {
            semaphore.release(1);
            // The permit belongs to the waiter already.
            assert!(semaphore.try_acquire().is_none());
            until("the next one is served", || order.lock().unwrap().len() == n + 1);
        }
        assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
        for handle in handles {
            handle.join().unwrap();
        }
    });
}

#[test]
fn several_are_woken_at_once() {
    let semaphore = Arc::new(Semaphore::new(0));
    let handles: Vec<_> = (0..20)
        .map(|_| {
            let semaphore = semaphore.clone();
            spawn(move || semaphore.acquire().unwrap().forget())
        })
        .collect();
    sleep(Duration::from_millis(2));
    semaphore.release(25);
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(semaphore.available(), 5);
}

/// Fibers and threads, some of which time out. No permit is lost or made, and no waiter is forgotten.
#[test]
fn a_crowd_of_fibers_and_threads() {
    within_reason(crowd);
}

fn crowd() {
    const PERMITS: usize = 3;
    let (fibers, threads) = (24, 4);
    let rounds = if in_forced_mode() { 60 } else { 300 };
    let semaphore = Semaphore::new(PERMITS);
    let (inside, entered, gave_up) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |seed: u64| {
        let mut random = Random(seed);
        for _ in 0..rounds {
            let permit = if random.below(4) == 0 {
                let limit = Duration::from_micros(random.below(60));
                timeout(limit, || semaphore.acquire().ok()).unwrap_or(None)
            } else {
                Some(semaphore.acquire().unwrap())
            };
            let Some(permit) = permit else {
                gave_up.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            assert!(inside.fetch_add(1, Ordering::SeqCst) < PERMITS);
            match random.below(4) {
                0 => yield_now(),
                1 => park_timeout(Duration::from_micros(10)),
                _ => {}
            }
            inside.fetch_sub(1, Ordering::SeqCst);
            entered.fetch_add(1, Ordering::Relaxed);
            drop(permit);
        }
    };
    std::thread::scope(|threads_scope| {
        for n in 0..threads {
            let work = &work;
            threads_scope.spawn(move || work(1000 + n));
        }
        scope(|s| {
            for n in 0..fibers {
                let work = &work;
                s.spawn(move || work(n));
            }
        });
    });
    let all = entered.load(Ordering::Relaxed) + gave_up.load(Ordering::Relaxed);
    assert_eq!(all, (fibers + threads) as usize * rounds);
    assert_eq!(semaphore.available(), PERMITS);
}

#[test]
fn a_permit_outlives_a_waiter_that_gave_up() {
    let semaphore = Arc::new(Semaphore::new(0));
    let theirs = semaphore.clone();
    let gives_up = spawn(move || timeout(Duration::from_millis(1), || theirs.acquire().is_err()));
    gives_up.join().unwrap().unwrap_err();
    semaphore.release(1);
    assert_eq!(semaphore.available(), 1);
    assert!(timeout(FOREVER, || semaphore.acquire().is_ok()).unwrap());
}
