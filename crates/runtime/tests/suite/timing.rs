//! Sleeping, deadlines, time limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carefree_context::{Coroutine, CoroutineState, Suspender};
use carefree_runtime::{
    Interrupted, Runtime, Semaphore, TimedOut, check, park, park_timeout, run, shield, sleep,
    sleep_until, spawn, timeout,
};

use crate::common::{FOREVER, Random, in_forced_mode, own_tls, panic_on_purpose, within_reason};

const SHORT: Duration = Duration::from_millis(4);

#[test]
fn no_sleep_ends_early() {
    let mut random = Random(7);
    let handles: Vec<_> = (0..300)
        .map(|n| {
            let duration = Duration::from_nanos(random.below(15_000_000));
            spawn(move || {
                let begun = Instant::now();
                if n % 3 == 0 {
                    park_timeout(duration)
                } else {
                    sleep(duration)
                }
                (begun.elapsed(), duration)
            })
        })
        .collect();
    for handle in handles {
        let (slept, asked) = handle.join().unwrap();
        assert!(slept >= asked, "slept {slept:?} instead of {asked:?}");
    }
    let begun = Instant::now();
    sleep(SHORT);
    assert!(begun.elapsed() >= SHORT, "a plain thread");
}

#[test]
fn sleepers_wake_in_order() {
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    for _ in 0..20 {
        let begun = Instant::now();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let handles: Vec<_> = [40u64, 5, 20, 10, 30]
            .map(|ms| {
                let order = order.clone();
                runtime.spawn(move || {
                    let late = begun.elapsed() >= SHORT;
                    sleep_until(begun + Duration::from_millis(ms));
                    assert!(begun.elapsed() >= Duration::from_millis(ms));
                    order.lock().unwrap().push(ms);
                    late
                })
            })
            .into();
        // On a busy machine a fiber may begin so late that its deadline has passed.
        let late = handles.into_iter().any(|handle| handle.join().unwrap());
        let mut order = order.lock().unwrap();
        if !own_tls() {
            // Where threads stand in for fibers, the kernel decides which of two that are due runs first.
            order.sort_unstable();
        }
        if !late {
            return assert_eq!(*order, [5, 10, 20, 30, 40]);
        }
    }
    println!("skipped: the machine is too busy for them to sleep in time");
}

#[test]
fn a_hundred_thousand_sleep() {
    let sleepers = if in_forced_mode() { 2_000 } else { 100_000 };
    run(move || {
        let handles: Vec<_> = (0..sleepers)
            .map(|n| {
                spawn(move || {
                    let begun = Instant::now();
                    let duration = Duration::from_millis(20 + n % 50);
                    sleep(duration);
                    assert!(begun.elapsed() >= duration);
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
    });
}

#[test]
fn limits_cut_waits_short() {
    fn cut(f: impl FnOnce()) {
        let begun = Instant::now();
        assert_eq!(timeout(SHORT, f), Err(TimedOut));
        assert!(begun.elapsed() >= SHORT);
    }
    fn all() {
        cut(|| sleep(FOREVER));
        cut(park);
        cut(|| park_timeout(FOREVER));
        let empty = Semaphore::new(0);
        cut(|| assert_eq!(empty.acquire().err(), Some(Interrupted::TimedOut)));
        let parked = spawn(park);
        let fiber = parked.thread().clone();
        cut(move || assert!(parked.join().unwrap_err().is::<TimedOut>()));
        fiber.unpark();
        cut(|| {
            while check() != Err(Interrupted::TimedOut) {
                std::hint::spin_loop();
            }
        });
        // A limit without a wait does nothing.
        assert_eq!(timeout(Duration::ZERO, || 5), Ok(5));
        assert_eq!(timeout(FOREVER, || sleep(Duration::from_micros(10))), Ok(()));
        assert!(check().is_ok());
    }
    run(all);
    // The same on a plain thread.
    all();
}

#[test]
fn limits_are_nested() {
    run(|| {
        // The outer limit is earlier: it ends both.
        let both = timeout(SHORT, || timeout(FOREVER, || sleep(FOREVER)));
        assert_eq!(both, Err(TimedOut));
        // The inner limit is earlier: it ends alone, and the outer one is in force again.
        let inner = timeout(FOREVER, || {
            assert_eq!(timeout(SHORT, || sleep(FOREVER)), Err(TimedOut));
            check().unwrap();
            sleep(Duration::from_micros(1));
            "on"
        });
        assert_eq!(inner, Ok("on"));
        let outer = timeout(Duration::from_millis(300), || {
            let inner = timeout(Duration::from_millis(1), || sleep(FOREVER));
            assert_eq!(inner, Err(TimedOut));
            sleep(FOREVER);
        });
        assert_eq!(outer, Err(TimedOut));
        // A panic lifts a limit.
        let caught = std::panic::catch_unwind(|| timeout(SHORT, || panic_on_purpose()));
        assert!(caught.is_err());
        sleep(2 * SHORT);
        check().unwrap();
    });
}

#[test]
fn a_limit_within_a_shield_counts() {
    run(|| {
        let fiber = spawn(|| {
            let outer = timeout(Duration::from_millis(1), || {
                shield(|| {
                    // The outer limit is over, and does not count.
                    sleep(Duration::from_millis(5));
                    assert_eq!(check(), Ok(()));
                    let inner = timeout(Duration::from_millis(5), || {
                        sleep(Duration::from_secs(3600));
                        let told = check();
                        // A shield defers the limits that it is within itself.
                        shield(|| assert_eq!(check(), Ok(())));
                        told
                    });
                    assert_eq!(inner, Err(TimedOut));
                    assert_eq!(timeout(Duration::from_secs(3600), || 1), Ok(1));
                    assert_eq!(check(), Ok(()));
                });
            });
            // No call has told its caller that the outer limit cut it short.
            assert_eq!(outer, Ok(()));
            check()
        });
        assert_eq!(fiber.join().unwrap(), Ok(()));
        // A cancelled fiber's limit, too.
        let fiber = spawn(|| shield(|| timeout(SHORT, || sleep(Duration::from_secs(3600)))));
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), Err(TimedOut));
    });
}

#[test]
fn a_shield_defers_a_limit() {
    run(|| {
        let begun = Instant::now();
        let late = timeout(SHORT, || {
            shield(|| {
                sleep(3 * SHORT);
                assert!(check().is_ok());
            });
            assert!(begun.elapsed() >= 3 * SHORT);
            assert_eq!(check(), Err(Interrupted::TimedOut));
        });
        assert_eq!(late, Err(TimedOut));
    });
}

/// A coroutine is suspended under a limit of its own and resumed under one of its resumer's. So the limits end
/// in the order in which they began, and not the other way round.
#[test]
fn limits_end_in_any_order_with_those_of_coroutines() {
    within_reason(|| run(coroutine_under_a_limit));
}

fn coroutine_under_a_limit() {
    let body = |suspender: &Suspender<(), ()>, ()| timeout(FOREVER, || suspender.suspend(()));
    // SAFETY: it ends below, before the fiber does, and is suspended within a call of Carefree's own alone.
    let mut coroutine = unsafe { Coroutine::new(body) };
    assert!(matches!(coroutine.resume(()), CoroutineState::Yielded(())));
    let value = timeout(Duration::from_millis(20), || {
        assert!(matches!(coroutine.resume(()), CoroutineState::Complete(Ok(()))));
        drop(coroutine);
        // The coroutine's stack is given to another one now.
        let body = |_: &Suspender<(), ()>, ()| std::hint::black_box([0xffu8; 8192])[0];
        // SAFETY: it is never suspended.
        let mut other = unsafe { Coroutine::new(body) };
        assert!(matches!(other.resume(()), CoroutineState::Complete(0xff)));
        sleep(FOREVER);
    });
    // The resumer's own limit is in force still, and no other one is.
    assert_eq!(value, Err(TimedOut));
    check().unwrap();
    sleep(Duration::from_micros(1));
}

#[test]
fn the_timer_of_a_wait_that_is_over_ends_no_later_wait() {
    // Many short waits, each woken just around its deadline; a late timer must not end the next.
    run(|| {
        let woken = Arc::new(AtomicBool::new(false));
        let theirs = woken.clone();
        let handle = spawn(move || {
            for n in 0..500u64 {
                park_timeout(Duration::from_micros(n % 60));
            }
            let begun = Instant::now();
            while !theirs.load(Ordering::Acquire) {
                park_timeout(FOREVER);
            }
            assert!(begun.elapsed() < FOREVER);
        });
        while !handle.is_finished() {
            sleep(Duration::from_micros(30));
            handle.thread().unpark();
            woken.store(true, Ordering::Release);
        }
        handle.join().unwrap();
    });
}
