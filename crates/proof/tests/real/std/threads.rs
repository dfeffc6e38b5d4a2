//! `std::thread` and `std::sync` from fibers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use carefree::{scope, spawn};

use crate::kit::{many, on_a_fiber, together};

#[test]
fn a_mutex_counts_right_and_is_held_over_waits() {
    on_a_fiber(|| {
        let count = Mutex::new(0);
        let fibers = many(200);
        scope(|s| {
            for _ in 0..fibers {
                s.spawn(|| {
                    for round in 0..20 {
                        let mut count = count.lock().unwrap();
                        let before = *count;
                        if round == 0 {
                            carefree::yield_now();
                        }
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(count.into_inner().unwrap(), fibers * 20);
    });
}

#[test]
fn fibers_and_threads_share_a_mutex_and_a_condition() {
    on_a_fiber(|| {
        let turn = Arc::new((Mutex::new(0), Condvar::new()));
        let play = |me: usize, turn: Arc<(Mutex<usize>, Condvar)>| {
            for _ in 0..200 {
                let mut now =
                    turn.1.wait_while(turn.0.lock().unwrap(), |now| *now % 3 != me).unwrap();
                *now += 1;
                turn.1.notify_all();
            }
        };
        let fibers: Vec<_> = (0..2)
            .map(|me| {
                let turn = turn.clone();
                spawn(move || play(me, turn))
            })
            .collect();
        let thread = thread::spawn({
            let turn = turn.clone();
            move || play(2, turn)
        });
        for fiber in fibers {
            fiber.join().unwrap();
        }
        thread.join().unwrap();
        assert_eq!(*turn.0.lock().unwrap(), 600);
    });
}

#[test]
fn a_wait_for_a_condition_times_out() {
    on_a_fiber(|| {
        let (lock, condition) = (Mutex::new(()), Condvar::new());
        let begun = Instant::now();
        let limit = Duration::from_millis(20);
        let (_guard, result) =
            condition.wait_timeout_while(lock.lock().unwrap(), limit, |_| true).unwrap();
        assert!(result.timed_out() && begun.elapsed() >= limit);
    });
}

#[test]
fn a_read_write_lock_lets_readers_in_together() {
    on_a_fiber(|| {
        let lock = RwLock::new(0);
        let readers = Barrier::new(10);
        scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    let _value = lock.read().unwrap();
                    // All readers hold the lock.
                    readers.wait();
                });
            }
        });
        scope(|s| {
            for number in 0..40 {
                let lock = &lock;
                s.spawn(move || {
                    for _ in 0..10 {
                        if number % 4 == 0 {
                            *lock.write().unwrap() += 1;
                        } else {
                            let before = *lock.read().unwrap();
                            assert!(before <= *lock.read().unwrap());
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.read().unwrap(), 100);
    });
}

#[test]
fn a_barrier_has_one_leader() {
    on_a_fiber(|| {
        let fibers = many(100);
        let (barrier, leaders) = (Barrier::new(fibers), AtomicUsize::new(0));
        scope(|s| {
            for _ in 0..fibers {
                s.spawn(|| {
                    for _ in 0..3 {
                        if barrier.wait().is_leader() {
                            leaders.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(leaders.into_inner(), 3);
    });
}

#[test]
fn an_initializer_that_waits_runs_once() {
    static ONCE: Once = Once::new();
    static CELL: OnceLock<u32> = OnceLock::new();
    static LAZY: LazyLock<u32> = LazyLock::new(|| {
        carefree::sleep(Duration::from_millis(5));
        COUNT.fetch_add(1, Ordering::Relaxed);
        3
    });
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    on_a_fiber(|| {
        scope(|s| {
            for _ in 0..50 {
                s.spawn(|| {
                    ONCE.call_once(|| {
                        carefree::sleep(Duration::from_millis(5));
                        COUNT.fetch_add(1, Ordering::Relaxed);
                    });
                    CELL.get_or_init(|| {
                        carefree::sleep(Duration::from_millis(5));
                        COUNT.fetch_add(1, Ordering::Relaxed) as u32
                    });
                    assert_eq!(*LAZY, 3);
                });
            }
        });
    });
    assert_eq!(COUNT.load(Ordering::Relaxed), 3);
}

#[test]
fn channels_between_fibers_and_threads() {
    on_a_fiber(|| {
        let (send, receive) = mpsc::channel();
        let (bounded, back) = mpsc::sync_channel(1);
        let thread = thread::spawn(move || {
            for value in receive {
                bounded.send(value * 2).unwrap();
            }
        });
        let fibers = many(100) as u64;
        for number in 0..fibers {
            let send = send.clone();
            spawn(move || {
                for value in 0..10 {
                    send.send(number * 10 + value).unwrap();
                }
            });
        }
        drop(send);
        let mut got: Vec<u64> = back.iter().collect();
        got.sort();
        assert_eq!(got, (0..fibers * 10).map(|value| value * 2).collect::<Vec<_>>());
        thread.join().unwrap();
        let (_send, receive) = mpsc::channel::<()>();
        let begun = Instant::now();
        let limit = Duration::from_millis(10);
        assert_eq!(receive.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Timeout));
        assert!(begun.elapsed() >= limit);
    });
}

#[test]
fn std_park_parks_the_fiber_that_std_calls_a_thread() {
    if carefree::platform().tls == carefree::TlsMode::Shared {
        // In that mode `thread::current` is the carrier.
        return;
    }
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let (send, receive) = mpsc::channel();
        let parked = spawn(move || {
            send.send(thread::current()).unwrap();
            thread::park();
            thread::park_timeout(Duration::from_millis(5));
        });
        let handle = receive.recv().unwrap();
        assert_ne!(handle.id(), thread::current().id());
        carefree::sleep(Duration::from_millis(5));
        assert!(!parked.is_finished());
        handle.unpark();
        parked.join().unwrap();
    });
}

#[test]
fn real_threads_are_started_and_joined() {
    // On one carrier, which a blocking join would stop.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let (send, receive) = mpsc::channel();
        let other = spawn(move || send.send("from a fiber").unwrap());
        let thread = thread::spawn(move || receive.recv().unwrap());
        assert_eq!(thread.join().unwrap(), "from a fiber");
        other.join().unwrap();
        let mut numbers = [1, 2, 3];
        thread::scope(|s| {
            for number in &mut numbers {
                s.spawn(move || *number *= 10);
            }
        });
        assert_eq!(numbers, [10, 20, 30]);
    });
}

#[test]
fn std_sleep_parks() {
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        // One after the other they take 10 s.
        together(Duration::from_secs(5), || {
            let begun = Instant::now();
            scope(|s| {
                for _ in 0..200 {
                    s.spawn(|| thread::sleep(Duration::from_millis(50)));
                }
            });
            assert!(begun.elapsed() >= Duration::from_millis(50));
        });
    });
}
