//! `nanosleep` and its kin.

use std::ptr;
use std::time::{Duration, Instant};

use carefree::run;
use libc::timespec;

use crate::common::*;

const fn millis(millis: i64) -> timespec {
    timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
}

/// The time that `clock` will show after so many milliseconds.
fn in_millis(clock: libc::clockid_t, later: i64) -> timespec {
    let mut now = millis(0);
    // SAFETY: there is room for the answer.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut now) }, 0);
    let nanos = now.tv_nsec + later * 1_000_000;
    timespec { tv_sec: now.tv_sec + nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 }
}

const CLOCKS: [libc::clockid_t; 4] =
    [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME, libc::CLOCK_TAI];

/// Asserts that `sleep` takes 50 ms and lets other fibers run.
fn takes_its_time(sleep: impl FnOnce() -> i32) {
    let begun = Instant::now();
    assert_eq!(while_another_runs(sleep), 0);
    assert!(begun.elapsed() >= Duration::from_millis(50), "{:?}", begun.elapsed());
}

#[test]
fn sleeps_take_their_time_and_let_others_run() {
    on_one_carrier(|| {
        takes_its_time(|| {
            std::thread::sleep(Duration::from_millis(50));
            0
        });
        // SAFETY: valid times.
        unsafe {
            takes_its_time(|| libc::nanosleep(&millis(50), ptr::null_mut()));
            takes_its_time(|| libc::usleep(50_000));
            for clock in CLOCKS {
                takes_its_time(|| libc::clock_nanosleep(clock, 0, &millis(50), ptr::null_mut()));
                let then = in_millis(clock, 50);
                let absolute = libc::TIMER_ABSTIME;
                takes_its_time(|| libc::clock_nanosleep(clock, absolute, &then, ptr::null_mut()));
                assert!(in_millis(clock, 0).tv_sec >= then.tv_sec);
            }
            takes_its_time(|| {
                let begun = Instant::now();
                let left = libc::sleep(1);
                assert!(begun.elapsed() >= Duration::from_secs(1));
                left as i32
            });
        }
    });
}

#[test]
fn a_time_that_has_passed_is_not_waited_for() {
    run(|| {
        let begun = Instant::now();
        for clock in CLOCKS {
            let absolute = libc::TIMER_ABSTIME;
            // SAFETY: valid times.
            unsafe {
                assert_eq!(libc::clock_nanosleep(clock, absolute, &millis(1), ptr::null_mut()), 0);
                assert_eq!(libc::clock_nanosleep(clock, 0, &millis(0), ptr::null_mut()), 0);
            }
        }
        assert!(begun.elapsed() < LONG);
    });
}

#[test]
fn what_is_no_time_or_no_clock_is_refused() {
    run(|| {
        let wrong = [(-1, 0), (0, -1), (0, 1_000_000_000)];
        for time in wrong.map(|(tv_sec, tv_nsec)| timespec { tv_sec, tv_nsec }) {
            // SAFETY: times to be read.
            unsafe {
                assert_eq!(checked(libc::nanosleep(&time, ptr::null_mut())), Err(libc::EINVAL));
                for flags in [0, libc::TIMER_ABSTIME] {
                    let clock = libc::CLOCK_MONOTONIC;
                    let slept = libc::clock_nanosleep(clock, flags, &time, ptr::null_mut());
                    assert_eq!(slept, libc::EINVAL);
                }
            }
        }
        // SAFETY: times to be read.
        unsafe {
            let none = libc::clock_nanosleep(12345, 0, &millis(1), ptr::null_mut());
            assert_eq!(none, libc::EINVAL);
            let thread = libc::CLOCK_THREAD_CPUTIME_ID;
            let none = libc::clock_nanosleep(thread, 0, &millis(1), ptr::null_mut());
            assert_eq!(none, libc::EINVAL);
        }
    });
}

#[test]
fn cancellation_and_timeouts_cut_sleeps_short() {
    run(|| {
        let begun = Instant::now();
        // SAFETY: valid times.
        assert_eq!(cancelled(|| unsafe { libc::nanosleep(&millis(100_000), ptr::null_mut()) }), 0);
        cancelled(|| std::thread::sleep(Duration::from_secs(100)));
        // SAFETY: no memory is involved.
        let left = cancelled(|| unsafe { libc::sleep(100) });
        assert!((1..=100).contains(&left), "{left}");
        for clock in CLOCKS {
            let then = in_millis(clock, 100_000);
            let absolute = libc::TIMER_ABSTIME;
            let slept = timed_out(|| {
                // SAFETY: valid times.
                unsafe { libc::clock_nanosleep(clock, absolute, &then, ptr::null_mut()) }
            });
            assert_eq!(slept, 0);
        }
        assert!(begun.elapsed() < LONG);
    });
}
