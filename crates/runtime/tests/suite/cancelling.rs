//! Cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree_runtime::{
    Cancelled, Interrupted, JoinHandle, Semaphore, check, current, park, park_timeout, run, scope,
    shield, sleep, spawn, timeout, yield_now,
};

use crate::common::{FOREVER, in_forced_mode, until};

/// Lets a fiber get into its wait, cancels it, and expects it to end.
fn cancelled<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let handle = spawn(f);
    std::thread::sleep(Duration::from_millis(2));
    handle.cancel();
    handle.join().unwrap()
}

#[test]
fn waits_end() {
    cancelled(|| sleep(FOREVER));
    cancelled(park);
    cancelled(|| park_timeout(FOREVER));
    let error = cancelled(|| {
        let parked = spawn(park);
        let fiber = parked.thread().clone();
        let error = parked.join().unwrap_err();
        fiber.unpark();
        error
    });
    assert!(error.is::<Cancelled>());
    static EMPTY: Semaphore = Semaphore::new(0);
    let error = cancelled(|| EMPTY.acquire().map(|_| ()).unwrap_err());
    assert_eq!(error, Interrupted::Cancelled);
    assert_eq!(std::io::Error::from(error).raw_os_error(), Some(libc::ECANCELED));
    // The cancellation ended the wait, not the time limit.
    assert_eq!(cancelled(|| timeout(FOREVER, || sleep(FOREVER))), Ok(()));
}

#[test]
fn loops_notice() {
    cancelled(|| {
        while check().is_ok() {
            yield_now();
        }
    });
    cancelled(|| {
        while check().is_ok() {
            std::hint::spin_loop();
        }
    });
    // Later waits end too, and yields go on.
    let begun = Instant::now();
    cancelled(move || {
        for _ in 0..10 {
            sleep(FOREVER);
            park();
            yield_now();
        }
    });
    assert!(begun.elapsed() < FOREVER);
}

#[test]
fn before_the_start() {
    let handle = spawn(|| {
        sleep(FOREVER);
        check()
    });
    handle.cancel();
    assert_eq!(handle.join().unwrap(), Err(Interrupted::Cancelled));
}

#[test]
fn a_shield_defers_it() {
    let (raised, woken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (theirs, also) = (raised.clone(), woken.clone());
    let handle = spawn(move || {
        shield(|| {
            shield(|| ());
            theirs.store(true, Ordering::Release);
            while !also.load(Ordering::Acquire) {
                park();
            }
            sleep(Duration::from_millis(1));
            assert!(check().is_ok());
        });
        sleep(FOREVER);
        check()
    });
    until("the shield is raised", || raised.load(Ordering::Acquire));
    handle.cancel();
    std::thread::sleep(Duration::from_millis(3));
    assert!(!handle.is_finished());
    woken.store(true, Ordering::Release);
    handle.thread().unpark();
    assert_eq!(handle.join().unwrap(), Err(Interrupted::Cancelled));
    // A panic lowers the shield.
    cancelled(|| {
        let caught = std::panic::catch_unwind(|| shield(|| crate::common::panic_on_purpose()));
        assert!(caught.is_err());
        sleep(FOREVER);
    });
}

#[test]
fn oneself() {
    let outcome = spawn(|| {
        current().cancel();
        sleep(FOREVER);
        check()
    });
    assert_eq!(outcome.join().unwrap(), Err(Interrupted::Cancelled));
}

#[test]
fn a_cancelled_parent_cancels_its_scope() {
    let ended = Arc::new(AtomicUsize::new(0));
    let theirs = ended.clone();
    cancelled(move || {
        scope(|s| {
            for _ in 0..5 {
                s.spawn(|| {
                    sleep(FOREVER);
                    theirs.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    });
    assert_eq!(ended.load(Ordering::Relaxed), 5);
}

/// A wake-up, a deadline and a cancellation at about the same time: exactly one of them ends the wait and
/// makes the fiber ready.
#[test]
fn races_with_wake_ups_and_deadlines() {
    let rounds = if in_forced_mode() { 200 } else { 1_500 };
    run(move || {
        for n in 0..rounds {
            let waits = move || match n % 3 {
                0 => park_timeout(Duration::from_micros(n % 50)),
                1 => sleep(Duration::from_micros(n % 50)),
                _ => drop(timeout(Duration::from_micros(n % 50), park)),
            };
            let handle: JoinHandle<()> = spawn(waits);
            let (cancels, unparks) = (handle.thread().clone(), handle.thread().clone());
            let canceller = spawn(move || {
                if n % 2 == 0 {
                    yield_now();
                }
                cancels.cancel();
            });
            unparks.unpark();
            handle.join().unwrap();
            canceller.join().unwrap();
        }
    });
}
