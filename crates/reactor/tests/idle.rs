//! The idle wait against the real kernel.

use carefree_reactor::{Idle, clock};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Waits as carriers do: repeats after spurious returns, until a wake-up or the deadline.
fn wait_until(idle: &Idle, deadline: u64) -> bool {
    loop {
        if idle.wait(Some(deadline)) {
            return true;
        }
        if clock::now() >= deadline {
            return false;
        }
    }
}

#[test]
fn a_wake_up_before_the_wait_is_kept_and_taken_once() {
    let idle = Idle::new();
    idle.wake();
    idle.wake();
    assert!(idle.wait(None), "the token ends a wait without a deadline");
    let deadline = clock::after(Duration::from_millis(5));
    assert!(!wait_until(&idle, deadline), "two wake-ups are one token");
}

#[test]
fn a_token_beats_a_deadline_that_has_passed() {
    let idle = Idle::new();
    idle.wake();
    assert!(idle.wait(Some(0)));
    assert!(!idle.wait(Some(0)), "a passed deadline returns at once");
}

#[test]
fn deadlines_end_waits_and_never_early() {
    let idle = Idle::new();
    for micros in [1, 50, 300, 2_000, 10_000] {
        let deadline = clock::after(Duration::from_micros(micros));
        assert!(!wait_until(&idle, deadline));
        assert!(clock::now() >= deadline);
    }
}

#[test]
fn the_kernel_keeps_the_deadline_itself() {
    // If the deadline were passed as a duration, or for another clock, each wait would be off by
    // the uptime. A signal may end a wait early, so one in ten must be right.
    let idle = Idle::new();
    let kept = (0..10).any(|_| {
        let deadline = clock::after(Duration::from_millis(3));
        idle.wait(Some(deadline));
        let late = clock::now().checked_sub(deadline);
        late.is_some_and(|late| late < 1_000_000_000)
    });
    assert!(kept);
}

#[test]
fn a_deadline_that_never_comes_waits_for_the_wake_up() {
    for deadline in [clock::NEVER, clock::NEVER - 1, u64::MAX / 2 + 1] {
        let idle = Arc::new(Idle::new());
        let waker = std::thread::spawn({
            let idle = Arc::clone(&idle);
            move || {
                std::thread::sleep(Duration::from_millis(5));
                idle.wake();
            }
        });
        assert!(wait_until(&idle, deadline));
        waker.join().unwrap();
    }
}

#[test]
fn two_threads_wake_each_other_a_hundred_thousand_times() {
    const TURNS: u64 = 100_000;
    let beds = Arc::new([Idle::new(), Idle::new()]);
    let ball = Arc::new(AtomicU64::new(0));
    let play = |side: u64| {
        let (beds, ball) = (Arc::clone(&beds), Arc::clone(&ball));
        move || {
            for turn in (side..2 * TURNS).step_by(2) {
                while ball.load(Ordering::Relaxed) != turn {
                    beds[side as usize].wait(None);
                }
                ball.store(turn + 1, Ordering::Relaxed);
                beds[1 - side as usize].wake();
            }
        }
    };
    let other = std::thread::spawn(play(1));
    play(0)();
    other.join().unwrap();
    assert_eq!(ball.load(Ordering::Relaxed), 2 * TURNS);
}

#[test]
fn a_second_waiter_is_refused() {
    let idle = Idle::new();
    let told = AtomicBool::new(false);
    // Either may be second and panic; the other's waits are short, so that it notices.
    let wait = || {
        while !told.load(Ordering::Relaxed) {
            let deadline = clock::after(Duration::from_millis(1));
            let waited = std::panic::catch_unwind(AssertUnwindSafe(|| idle.wait(Some(deadline))));
            if let Err(panic) = waited {
                let message = *panic.downcast::<&str>().unwrap();
                assert!(message.contains("two threads wait on one Idle"), "{message}");
                told.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(wait);
        wait();
    });
}

#[test]
fn the_first_timed_wait_sets_the_slack() {
    std::thread::spawn(|| {
        // SAFETY: PR_GET_TIMERSLACK accesses no memory.
        let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        assert_ne!(slack(), 1);
        let idle = Idle::new();
        idle.wait(Some(0));
        assert_eq!(slack(), 1);
    })
    .join()
    .unwrap();
}
