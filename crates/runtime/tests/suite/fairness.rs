//! Each fiber gets its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree_runtime::{
    Runtime, Semaphore, check, current, metrics, park, sleep, spawn, timeout, yield_now,
};

use crate::common::{FOREVER, LONG, in_forced_mode, own_tls, within_reason};

fn runtime(carriers: usize) -> Runtime {
    Runtime::builder().carriers(carriers).build().unwrap()
}

/// Runs `others` on one carrier beside a fiber that ends them by setting the flag. That fiber must get its
/// turn.
fn does_not_starve(others: impl FnOnce(Arc<AtomicBool>) + Send + 'static) {
    within_reason(move || {
        runtime(1).run(move || {
            let flag = Arc::new(AtomicBool::new(false));
            let theirs = flag.clone();
            let waits = spawn(move || {
                for _ in 0..20 {
                    yield_now();
                }
                theirs.store(true, Ordering::Release);
            });
            others(flag);
            waits.join().unwrap();
        });
    });
}

fn up(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire)
}

#[test]
fn by_two_that_yield() {
    does_not_starve(|flag| {
        let other = flag.clone();
        let second = spawn(move || {
            while !up(&other) {
                yield_now();
            }
        });
        while !up(&flag) {
            yield_now();
        }
        second.join().unwrap();
    });
}

#[test]
fn by_two_that_wake_each_other() {
    does_not_starve(|flag| {
        let (first, other) = (current(), flag.clone());
        let second = spawn(move || {
            while !up(&other) {
                first.unpark();
                park();
            }
            first.unpark();
        });
        while !up(&flag) {
            second.thread().unpark();
            park();
        }
        second.thread().unpark();
        second.join().unwrap();
    });
}

#[test]
fn by_many_that_spawn_and_join() {
    does_not_starve(|flag| {
        while !up(&flag) {
            spawn(|| spawn(|| ()).join().unwrap()).join().unwrap();
        }
    });
}

#[test]
fn by_loops_around_waits_that_are_cut_short() {
    does_not_starve(|flag| {
        let late = timeout(Duration::ZERO, || {
            while !up(&flag) {
                sleep(FOREVER);
                park();
            }
        });
        assert!(late.is_err());
    });
    does_not_starve(|flag| {
        let cancelled = spawn(move || {
            static NEVER: Semaphore = Semaphore::new(0);
            while !up(&flag) {
                assert!(NEVER.acquire().is_err());
            }
        });
        cancelled.cancel();
        cancelled.join().unwrap();
    });
}

#[test]
fn by_one_that_yields_until_a_timer_fires() {
    within_reason(|| {
        runtime(1).run(|| {
            let flag = Arc::new(AtomicBool::new(false));
            let theirs = flag.clone();
            let sleeper = spawn(move || {
                sleep(Duration::from_millis(1));
                theirs.store(true, Ordering::Release);
            });
            while !up(&flag) {
                yield_now();
            }
            sleeper.join().unwrap();
        });
    });
}

#[test]
fn by_one_that_yields_until_a_thread_submits() {
    within_reason(|| {
        let runtime = runtime(1);
        let flag = Arc::new(AtomicBool::new(false));
        let (waits, sets) = (flag.clone(), flag.clone());
        let yields = runtime.spawn(move || {
            while !up(&waits) {
                yield_now();
            }
        });
        std::thread::sleep(Duration::from_millis(2));
        runtime.spawn(move || sets.store(true, Ordering::Release)).join().unwrap();
        yields.join().unwrap();
    });
}

/// A fiber that computes, and waits for nothing, until the flag is up.
fn hog(flag: &AtomicBool) {
    let begun = Instant::now();
    while !up(flag) {
        assert!(begun.elapsed() < LONG, "no other fiber has run");
        std::hint::spin_loop();
    }
}

#[test]
fn by_one_that_computes_while_another_carrier_is_free() {
    if !own_tls() {
        // In shared mode a fiber stays on its carrier, busy or not.
        return;
    }
    within_reason(|| {
        runtime(2).run(|| {
            // A fiber behind it in the queue.
            let flag = Arc::new(AtomicBool::new(false));
            let theirs = flag.clone();
            let behind = spawn(move || theirs.store(true, Ordering::Release));
            hog(&flag);
            behind.join().unwrap();

            // A fiber in the slot for the one woken last.
            let flag = Arc::new(AtomicBool::new(false));
            let theirs = flag.clone();
            let woken = spawn(move || {
                park();
                theirs.store(true, Ordering::Release);
            });
            sleep(Duration::from_millis(1));
            woken.thread().unpark();
            hog(&flag);
            woken.join().unwrap();

            // A fiber that sleeps by a timer of the carrier that computes.
            let flag = Arc::new(AtomicBool::new(false));
            let theirs = flag.clone();
            let asleep = spawn(move || {
                sleep(Duration::from_millis(3));
                theirs.store(true, Ordering::Release);
            });
            yield_now();
            hog(&flag);
            asleep.join().unwrap();
        });
    });
}

/// The spawn itself wakes the other carrier, before the monitor looks.
#[test]
fn a_sleeping_carrier_is_woken_for_what_a_computing_fiber_spawns() {
    if !own_tls() {
        return;
    }
    const ROUNDS: usize = 20;
    within_reason(|| {
        let runtime = runtime(2);
        // Without the wake-up, the monitor finds nearly each of them. With it, it finds some on a busy machine, where a
        // carrier that was woken does not run at once; and those of other tests are counted with them. So the best of
        // several tries counts.
        let found_by_the_monitor = || {
            let before = metrics().missed;
            runtime.run(|| {
                for _ in 0..ROUNDS {
                    // Lets the other carrier fall asleep.
                    sleep(Duration::from_millis(3));
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_millis(5) {
                        std::hint::spin_loop();
                    }
                    let flag = Arc::new(AtomicBool::new(false));
                    let theirs = flag.clone();
                    let behind = spawn(move || theirs.store(true, Ordering::Release));
                    hog(&flag);
                    behind.join().unwrap();
                }
            });
            metrics().missed.saturating_sub(before)
        };
        let found: Vec<_> =
            (0..20).map(|_| found_by_the_monitor()).take_while(|&n| n > 5).collect();
        assert!(found.len() < 20, "in {ROUNDS} rounds each: {found:?}");
    });
}

#[test]
fn in_a_storm_of_spawns() {
    let (each, depth) = if in_forced_mode() { (5, 4) } else { (7, 5) };
    fn storm(count: &Arc<AtomicUsize>, each: usize, depth: usize) {
        count.fetch_add(1, Ordering::Relaxed);
        if depth == 0 {
            return;
        }
        let children: Vec<_> = (0..each)
            .map(|_| {
                let count = count.clone();
                spawn(move || storm(&count, each, depth - 1))
            })
            .collect();
        for child in children {
            child.join().unwrap();
        }
    }
    within_reason(move || {
        let count = Arc::new(AtomicUsize::new(0));
        runtime(2).run(|| storm(&count, each, depth));
        let expected: usize = (0..=depth).map(|level| each.pow(level as u32)).sum();
        assert_eq!(count.load(Ordering::Relaxed), expected);
    });
}

#[test]
fn by_threads_that_spawn_without_end() {
    within_reason(|| {
        let runtime = runtime(1);
        let begun = Instant::now();
        let done = runtime.spawn(|| {
            for _ in 0..50 {
                yield_now();
            }
            assert!(check().is_ok());
        });
        let mut spawned = 0;
        while !done.is_finished() {
            runtime.spawn(|| ()).join().unwrap();
            spawned += 1;
        }
        assert!(begun.elapsed() < LONG, "{spawned} others came first");
        done.join().unwrap();
    });
}
