//! `std::thread::park` with our `unpark`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use carefree::{Builder, run, spawn, yield_now};

use crate::own;

#[test]
fn our_unpark_ends_a_park_of_std() {
    if !own() {
        return;
    }
    for name in [None, Some("named")] {
        let builder = || name.map_or(Builder::new(), |name| Builder::new().name(name.into()));
        // Before it parks, while it does, or in between: none is lost.
        for round in 0..2000 {
            let fiber = builder()
                .spawn(move || {
                    if round % 3 == 0 {
                        yield_now();
                    }
                    thread::park();
                })
                .unwrap();
            if round % 2 == 0 {
                yield_now();
            }
            if round % 100 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            fiber.thread().unpark();
            fiber.join().unwrap();
        }
    }
}

/// Not only the first park of a fiber, with which its handle of std's becomes known.
#[test]
fn our_unpark_ends_each_of_many_parks_of_std() {
    if !own() {
        return;
    }
    const ROUNDS: usize = 5000;
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static ANSWERED: AtomicUsize = AtomicUsize::new(0);
    let fiber = spawn(|| {
        for round in 1..=ROUNDS {
            while ASKED.load(Ordering::Acquire) < round {
                thread::park();
            }
            ANSWERED.store(round, Ordering::Release);
        }
    });
    for round in 1..=ROUNDS {
        ASKED.store(round, Ordering::Release);
        fiber.thread().unpark();
        while ANSWERED.load(Ordering::Acquire) < round {
            // At times it is about to park when the next unpark comes, at times it has parked.
            if round % 3 == 0 { yield_now() } else { std::hint::spin_loop() }
        }
    }
    fiber.join().unwrap();
}

#[test]
fn a_token_lets_a_park_of_std_return_at_once() {
    if !own() {
        return;
    }
    run(|| {
        carefree::current().unpark();
        thread::park();
    });
    // On a plain thread as well.
    carefree::current().unpark();
    thread::park();
}

#[test]
fn our_unpark_ends_a_park_of_a_plain_threads_in_std() {
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::spawn(move || {
        sender.send(carefree::current()).unwrap();
        thread::park();
    });
    let handle = receiver.recv().unwrap();
    thread::sleep(Duration::from_millis(2));
    handle.unpark();
    waiter.join().unwrap();
}

#[test]
fn a_park_with_a_limit_is_ended_too() {
    if !own() {
        return;
    }
    let fiber = spawn(|| {
        let begun = std::time::Instant::now();
        thread::park_timeout(Duration::from_secs(3600));
        begun.elapsed() < Duration::from_secs(1800)
    });
    while !carefree::dump().contains("std::thread::park") {
        thread::yield_now();
    }
    fiber.thread().unpark();
    assert!(fiber.join().unwrap());
}

#[test]
fn std_unparks_what_std_has_parked() {
    if !own() {
        return;
    }
    let (sender, receiver) = mpsc::channel();
    let fiber = spawn(move || {
        sender.send(thread::current()).unwrap();
        thread::park();
    });
    receiver.recv().unwrap().unpark();
    fiber.join().unwrap();
}

/// What waits in a destructor of thread-local storage asks for no handle that is gone.
#[test]
fn a_wait_of_std_in_a_destructor() {
    if !own() {
        return;
    }
    struct Waits(mpsc::Receiver<u32>, mpsc::Sender<u32>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.1.send(self.0.recv().unwrap() + 1).unwrap();
        }
    }
    thread_local!(static LATE: std::cell::OnceCell<Waits> = const { std::cell::OnceCell::new() });
    let (question, asked) = mpsc::channel();
    let (answer, answered) = mpsc::channel();
    let fiber = spawn(move || LATE.with(|late| assert!(late.set(Waits(asked, answer)).is_ok())));
    thread::sleep(Duration::from_millis(2));
    question.send(1).unwrap();
    assert_eq!(answered.recv().unwrap(), 2);
    fiber.join().unwrap();
}
