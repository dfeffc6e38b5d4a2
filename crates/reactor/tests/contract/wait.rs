//! Waiting: deadlines, wake-ups, and more operations than fit into the queues.

use super::kit::*;
use super::modes;
use carefree_reactor::{Completions, Driver, Kind, clock};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

over_all! {
    a_deadline_ends_a_wait_and_never_early
    a_peek_loses_nothing_and_a_hand_over_begins_it
    a_wake_up_before_the_wait_is_kept
    a_wake_up_ends_the_wait_under_way
    alternating_wake_ups_all_arrive
    operations_beyond_the_queues_are_not_lost
    another_thread_can_harvest
    dropping_a_driver_ends_pending_operations
    the_kernel_keeps_deadlines_itself
}

/// Waits until a wake-up or the deadline; returns whether it was a wake-up.
fn rest(driver: &mut Driver, deadline: u64) -> bool {
    loop {
        let mut out = Completions::new();
        if driver.wait(Some(deadline), &mut out) {
            return true;
        }
        assert!(out.is_empty());
        if driver.now() >= deadline {
            return false;
        }
    }
}

/// A time on the driver's clock.
fn after(driver: &Driver, span: Duration) -> u64 {
    clock::add(driver.now(), span)
}

/// Waits for a wake-up, which must come.
fn hear(driver: &mut Driver) {
    if driver.kind() == Kind::Mock {
        // The mock would skip to the deadline.
        while !driver.wait(None, &mut Completions::new()) {}
    } else {
        assert!(rest(driver, clock::after(PATIENCE)), "the wake-up did not arrive");
    }
}

fn a_peek_loses_nothing_and_a_hand_over_begins_it(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    bench.start(1, read(&reader, &mut buffer));
    let mut out = Completions::new();
    bench.driver.peek(&mut out);
    assert!(out.is_empty() && bench.driver.pending() == 1);
    bench.driver.hand_over();
    writer.write_all(b"data").unwrap();
    while out.is_empty() {
        bench.driver.wait(None, &mut out);
    }
    assert_eq!((out.len(), out[0].token, out[0].result), (1, 1, 4));
    bench.driver.peek(&mut out);
    assert_eq!((out.len(), bench.driver.pending()), (1, 0));
}

fn a_deadline_ends_a_wait_and_never_early(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    for pending in [false, true] {
        if pending {
            bench.start(1, read(&reader, &mut buffer));
        }
        for micros in [0, 1, 50, 300, 2_000, 10_000] {
            let deadline = after(&bench.driver, Duration::from_micros(micros));
            assert!(!rest(&mut bench.driver, deadline));
            assert!(bench.driver.now() >= deadline);
        }
        assert!(!rest(&mut bench.driver, 0), "the deadline has passed");
    }
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.finish(1), 1);
}

fn a_wake_up_before_the_wait_is_kept(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    let waker = bench.driver.waker();
    for pending in [false, true] {
        if pending {
            bench.start(1, read(&reader, &mut buffer));
        }
        waker.wake();
        waker.clone().wake();
        assert!(bench.driver.wait(None, &mut Completions::new()));
        let soon = after(&bench.driver, Duration::from_millis(3));
        assert!(!rest(&mut bench.driver, soon), "two wake-ups are one token");
    }
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.finish(1), 1);
}

fn a_wake_up_ends_the_wait_under_way(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    for pending in [false, true] {
        if pending {
            bench.start(1, read(&reader, &mut buffer));
        }
        for millis in [0, 1, 5] {
            let waker = bench.driver.waker();
            let other = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(millis));
                waker.wake();
            });
            hear(&mut bench.driver);
            other.join().unwrap();
        }
    }
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.finish(1), 1);
}

/// Two threads that wake each other, each sleeping alternately on its futex and in its driver.
fn alternating_wake_ups_all_arrive(kind: Kind) {
    const TURNS: u64 = 5_000;
    let ball = Arc::new(AtomicU64::new(0));
    let (tell, told) = std::sync::mpsc::channel();
    let play = |side: u64, tell: std::sync::mpsc::Sender<_>, told: std::sync::mpsc::Receiver<_>| {
        let ball = Arc::clone(&ball);
        move || {
            let mut bench = Bench::new(kind);
            let (reader, mut writer) = pipe().unwrap();
            let mut buffer = [0; 4];
            tell.send(bench.driver.waker()).unwrap();
            let other: carefree_reactor::Waker = told.recv().unwrap();
            for turn in (side..2 * TURNS).step_by(2) {
                if turn & 2 == 0 {
                    bench.start(1, read(&reader, &mut buffer));
                }
                let end = clock::after(PATIENCE);
                while ball.load(Ordering::Relaxed) != turn {
                    bench.driver.wait(Some(end), &mut Completions::new());
                    assert!(clock::now() < end, "wake-up {turn} was lost");
                }
                ball.store(turn + 1, Ordering::Relaxed);
                other.wake();
                if turn & 2 == 0 {
                    writer.write_all(b"x").unwrap();
                    assert_eq!(bench.finish(1), 1);
                }
            }
        }
    };
    let (tell_other, told_other) = std::sync::mpsc::channel();
    let other = std::thread::spawn(play(1, tell, told_other));
    play(0, tell_other, told)();
    other.join().unwrap();
}

fn operations_beyond_the_queues_are_not_lost(kind: Kind) {
    const MANY: u64 = 10_000;
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    for token in 0..MANY {
        bench.start(token, poll(&reader, libc::POLLIN));
    }
    assert_eq!(bench.driver.pending(), MANY as usize);
    bench.is_waiting(0);
    // All at once.
    writer.write_all(b"x").unwrap();
    for token in 0..MANY {
        assert_eq!(bench.finish(token), libc::POLLIN.into());
    }
    assert_eq!(bench.driver.pending(), 0);
    // Wake-ups are still noticed afterwards.
    let waker = bench.driver.waker();
    let mut buffer = [0; 1];
    assert_eq!(bench.run(read(&reader, &mut buffer)), 1);
    bench.start(1, read(&reader, &mut buffer));
    for _ in 0..3 {
        let waker = waker.clone();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            waker.wake();
        });
        hear(&mut bench.driver);
        other.join().unwrap();
    }
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.finish(1), 1);
}

fn another_thread_can_harvest(kind: Kind) {
    if modes::defers() {
        // This is the cost of deferring.
        return;
    }
    for handed_over in [true, false] {
        let mut bench = Bench::new(kind);
        let (reader, mut writer) = pipe().unwrap();
        let mut buffer = [0; 4];
        bench.start(1, read(&reader, &mut buffer));
        if handed_over {
            bench.poll();
            writer.write_all(b"abc").unwrap();
        }
        let driver = std::sync::Mutex::new(&mut bench.driver);
        let computing = std::sync::atomic::AtomicBool::new(true);
        let out = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let end = clock::after(PATIENCE);
                let mut out = Completions::new();
                if !handed_over {
                    driver.lock().unwrap().harvest(&mut out);
                    assert!(out.is_empty());
                    writer.write_all(b"abc").unwrap();
                }
                while out.is_empty() && clock::now() < end {
                    driver.lock().unwrap().harvest(&mut out);
                    std::thread::yield_now();
                }
                computing.store(false, Ordering::Relaxed);
                out
            });
            while computing.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            other.join().unwrap()
        });
        assert!(!out.is_empty(), "nothing was harvested");
        bench.note(out);
        assert_eq!(bench.result(1), Some(3));
    }
}

fn dropping_a_driver_ends_pending_operations(kind: Kind) {
    let mut driver = super::kit::driver(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    for token in 0..500 {
        // SAFETY: the buffer outlives the driver.
        unsafe { driver.submit(token, &read(&reader, &mut buffer)).unwrap() };
        if token == 400 {
            driver.poll(&mut Completions::new());
        }
    }
    drop(driver);
    writer.write_all(b"abc").unwrap();
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(buffer, [0; 4], "the read was not cancelled");
    let mut bench = Bench::new(kind);
    assert_eq!(bench.run(read(&reader, &mut buffer)), 3);
}

fn the_kernel_keeps_deadlines_itself(kind: Kind) {
    // If the deadline were passed as a duration, or for another clock, each wait would be off by the
    // uptime. A signal may end a wait early, so one in ten must be right.
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    bench.start(1, read(&reader, &mut buffer));
    let kept = (0..10).any(|_| {
        let deadline = after(&bench.driver, Duration::from_millis(3));
        bench.driver.wait(Some(deadline), &mut Completions::new());
        let late = bench.driver.now().checked_sub(deadline);
        late.is_some_and(|late| late < 1_000_000_000)
    });
    assert!(kept);
    // A deadline that never comes is no limit.
    let waker = bench.driver.waker();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(3));
        waker.wake();
    });
    let mut out = Completions::new();
    if kind != Kind::Mock {
        while !bench.driver.wait(Some(clock::NEVER), &mut out) {}
    }
    other.join().unwrap();
    assert!(out.is_empty());
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.finish(1), 1);
}
