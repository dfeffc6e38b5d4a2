//! parking_lot and crossbeam-channel: locks and channels that do not use `std`'s.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use carefree::{scope, spawn};
use crossbeam_channel::{RecvTimeoutError, after, bounded, select, unbounded};

use crate::kit::{many, on_a_fiber};

#[test]
fn a_parking_lot_mutex_is_held_over_waits() {
    on_a_fiber(|| {
        let count = parking_lot::Mutex::new(0);
        let fibers = many(200);
        scope(|s| {
            for _ in 0..fibers {
                s.spawn(|| {
                    for round in 0..20 {
                        let mut count = count.lock();
                        let before = *count;
                        if round == 0 {
                            carefree::yield_now();
                        }
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), fibers * 20);
    });
}

#[test]
fn a_parking_lot_condition_between_fibers_and_a_thread() {
    on_a_fiber(|| {
        let turn = Arc::new((parking_lot::Mutex::new(0), parking_lot::Condvar::new()));
        let play = |me: usize, turn: Arc<(parking_lot::Mutex<usize>, parking_lot::Condvar)>| {
            for _ in 0..200 {
                let mut now = turn.0.lock();
                turn.1.wait_while(&mut now, |now| *now % 2 != me);
                *now += 1;
                turn.1.notify_all();
            }
        };
        let thread = thread::spawn({
            let turn = turn.clone();
            move || play(0, turn)
        });
        play(1, turn.clone());
        thread.join().unwrap();
        assert_eq!(*turn.0.lock(), 400);
        let mut now = turn.0.lock();
        let begun = Instant::now();
        let limit = Duration::from_millis(10);
        assert!(turn.1.wait_while_for(&mut now, |_| true, limit).timed_out());
        assert!(begun.elapsed() >= limit);
    });
}

#[test]
fn a_parking_lot_read_write_lock() {
    on_a_fiber(|| {
        let lock = parking_lot::RwLock::new(0);
        scope(|s| {
            for number in 0..40 {
                let lock = &lock;
                s.spawn(move || {
                    for _ in 0..10 {
                        if number % 4 == 0 {
                            let mut value = lock.write();
                            carefree::yield_now();
                            *value += 1;
                        } else {
                            let value = lock.read();
                            let before = *value;
                            carefree::yield_now();
                            assert_eq!(*value, before);
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.read(), 100);
    });
}

#[test]
fn crossbeam_channels_bounded_and_unbounded() {
    on_a_fiber(|| {
        // 0: a rendezvous; 1: mostly full; and unbounded.
        for channel in [bounded(0), bounded(1), unbounded()] {
            let (send, receive) = channel;
            let fibers = many(40) as u64;
            for number in 0..fibers {
                let send = send.clone();
                let work = move || (0..10).for_each(|i| send.send(number * 10 + i).unwrap());
                // Threads take part, too.
                if number % 10 == 0 {
                    thread::spawn(work);
                } else {
                    spawn(work);
                }
            }
            drop(send);
            let receivers: Vec<_> = (0..4)
                .map(|_| {
                    let receive = receive.clone();
                    spawn(move || receive.iter().collect::<Vec<u64>>())
                })
                .collect();
            let mut got: Vec<u64> =
                receivers.into_iter().flat_map(|receiver| receiver.join().unwrap()).collect();
            got.sort();
            assert_eq!(got, (0..fibers * 10).collect::<Vec<_>>());
        }
    });
}

#[test]
fn crossbeam_selects_and_times_out() {
    on_a_fiber(|| {
        let (left, from_left) = bounded(0);
        let (right, from_right) = bounded(0);
        let sending = spawn(move || {
            for number in 0..20 {
                if number % 2 == 0 { &left } else { &right }.send(number).unwrap();
            }
            // Dropped after the limit below only.
            carefree::sleep(Duration::from_millis(40));
        });
        let mut got = Vec::new();
        while got.len() < 20 {
            select! {
                recv(from_left) -> number => got.push(number.unwrap()),
                recv(from_right) -> number => got.push(number.unwrap()),
            }
        }
        assert_eq!(got, (0..20).collect::<Vec<_>>());
        let limit = Duration::from_millis(5);
        let begun = Instant::now();
        assert_eq!(from_left.recv_timeout(limit), Err(RecvTimeoutError::Timeout));
        select! {
            recv(from_right) -> _ => panic!("no message is sent"),
            recv(after(limit)) -> _ => {}
        }
        assert!(begun.elapsed() >= 2 * limit);
        sending.join().unwrap();
    });
}
