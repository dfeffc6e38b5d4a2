//! Tests of `std::sync` from std's own, on fibers.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock};
use std::time::{Duration, Instant};

use carefree_runtime::{sleep, spawn};

use crate::common::{Unit, on_fibers, own_tls};

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn a_mutex_lets_one_at_a_time_in() {
    on_fibers(|| {
        let pair = Arc::new(Mutex::new((0u32, 0u32)));
        let units: Vec<_> = (0..30)
            .map(|number| {
                let pair = Arc::clone(&pair);
                Unit::mixed(number, move || {
                    for turn in 0..100 {
                        let mut pair = pair.lock().unwrap();
                        pair.0 += 1;
                        if turn % 10 == 0 {
                            // Lets others find the mutex held by a fiber that does not run.
                            std::thread::yield_now();
                        }
                        pair.1 += 1;
                        assert_eq!(pair.0, pair.1);
                    }
                })
            })
            .collect();
        units.into_iter().for_each(Unit::join);
        assert_eq!(*pair.lock().unwrap(), (3000, 3000));
    });
}

#[test]
fn a_mutex_held_by_a_sleeping_fiber_blocks_no_carrier() {
    on_fibers(|| {
        let mutex = Arc::new(Mutex::new(0));
        let held = mutex.lock().unwrap();
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let mutex = Arc::clone(&mutex);
                spawn(move || *mutex.lock().unwrap() += 1)
            })
            .collect();
        // If they blocked the carrier, this fiber would not run again.
        for _ in 0..5 {
            sleep(SHORT);
        }
        let ran = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&ran);
        spawn(move || theirs.store(1, SeqCst)).join().unwrap();
        assert_eq!((ran.load(SeqCst), *held), (1, 0));
        drop(held);
        waiting.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(*mutex.lock().unwrap(), 100);
    });
}

/// What is done with a lock held, to what it guards.
type Act<'a> = &'a dyn Fn(&mut u32);

/// A fiber takes a lock again as soon as it has given it back, and sleeps with it, so that others find it taken whenever
/// they look; `hold` calls its argument with the lock held. All others have it in the end.
fn all_that_wait_have_it(hold: fn(Act<'_>)) {
    on_fibers(move || {
        hold(&|value| *value = 0);
        let ends = Arc::new(AtomicUsize::new(0));
        let keeper = {
            let ends = Arc::clone(&ends);
            spawn(move || {
                while ends.load(SeqCst) == 0 {
                    hold(&|_| sleep(Duration::from_micros(20)));
                }
            })
        };
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                spawn(move || {
                    for _ in 0..10 {
                        hold(&|value| *value += 1);
                        sleep(Duration::from_micros(1));
                    }
                })
            })
            .collect();
        waiting.into_iter().for_each(|fiber| fiber.join().unwrap());
        ends.store(1, SeqCst);
        keeper.join().unwrap();
        hold(&|value| assert_eq!(*value, 30));
    });
}

#[test]
fn a_mutex_is_had_by_all_that_wait() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    all_that_wait_have_it(|act| act(&mut MUTEX.lock().unwrap()));
}

/// Waits of writers look like those for a condition.
#[test]
fn a_lock_is_had_by_all_that_would_write() {
    static LOCK: RwLock<u32> = RwLock::new(0);
    all_that_wait_have_it(|act| act(&mut LOCK.write().unwrap()));
}

#[test]
fn a_thread_waits_for_a_fiber_and_a_fiber_for_a_thread() {
    on_fibers(|| {
        let mutex = Arc::new(Mutex::new(0));
        let held = mutex.lock().unwrap();
        let theirs = Arc::clone(&mutex);
        let thread = Unit::Thread(std::thread::spawn(move || {
            let mut value = theirs.lock().unwrap();
            std::thread::sleep(SHORT * 2);
            *value += 1;
        }));
        sleep(SHORT);
        drop(held);
        sleep(SHORT);
        *mutex.lock().unwrap() += 1;
        thread.join();
        assert_eq!(*mutex.lock().unwrap(), 2);
    });
}

#[test]
fn a_panic_poisons() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        let mutex = Arc::new(Mutex::new(1));
        let theirs = Arc::clone(&mutex);
        let fiber = spawn(move || {
            let _held = theirs.lock().unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(fiber.join().is_err());
        // `resume_unwind` counts as a panic: the guard was dropped while it panicked.
        assert!(mutex.is_poisoned());
        assert_eq!(*mutex.lock().unwrap_err().into_inner(), 1);
    });
}

#[test]
fn conditions_are_signalled_and_broadcast() {
    on_fibers(|| {
        let state = Arc::new((Mutex::new((0usize, false)), Condvar::new(), Condvar::new()));
        let units: Vec<_> = (0..30)
            .map(|number| {
                let state = Arc::clone(&state);
                Unit::mixed(number, move || {
                    let (mutex, all_here, go) = &*state;
                    let mut guard = mutex.lock().unwrap();
                    guard.0 += 1;
                    if guard.0 == 30 {
                        all_here.notify_one();
                    }
                    while !guard.1 {
                        guard = go.wait(guard).unwrap();
                    }
                    guard.0 -= 1;
                })
            })
            .collect();
        let (mutex, all_here, go) = &*state;
        let mut guard = all_here.wait_while(mutex.lock().unwrap(), |g| g.0 < 30).unwrap();
        guard.1 = true;
        go.notify_all();
        drop(guard);
        units.into_iter().for_each(Unit::join);
        assert_eq!(mutex.lock().unwrap().0, 0);
    });
}

#[test]
fn a_wait_for_a_condition_times_out() {
    on_fibers(|| {
        let (mutex, condition) = (Mutex::new(()), Condvar::new());
        let begun = Instant::now();
        let (_guard, result) =
            condition.wait_timeout_while(mutex.lock().unwrap(), SHORT, |()| true).unwrap();
        assert!(result.timed_out() && begun.elapsed() >= SHORT);
        assert!(mutex.try_lock().is_err(), "the mutex is held again");
    });
}

#[test]
fn readers_share_and_writers_do_not() {
    on_fibers(|| {
        let lock = Arc::new(RwLock::new((0u32, 0u32)));
        let readers = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let units: Vec<_> = (0..30)
            .map(|number| {
                let (lock, readers, most) =
                    (Arc::clone(&lock), Arc::clone(&readers), Arc::clone(&most));
                Unit::mixed(number, move || {
                    for turn in 0..40 {
                        if (turn + number) % 4 == 0 {
                            let mut value = lock.write().unwrap();
                            assert_eq!(readers.load(SeqCst), 0);
                            value.0 += 1;
                            std::thread::yield_now();
                            value.1 += 1;
                        } else {
                            let value = lock.read().unwrap();
                            most.fetch_max(readers.fetch_add(1, SeqCst) + 1, SeqCst);
                            assert_eq!(value.0, value.1);
                            std::thread::yield_now();
                            readers.fetch_sub(1, SeqCst);
                        }
                    }
                })
            })
            .collect();
        units.into_iter().for_each(Unit::join);
        assert_eq!(*lock.read().unwrap(), (300, 300));
        assert!(most.load(SeqCst) > 1, "no two readers at once");
    });
}

#[test]
fn a_barrier_lets_all_go_and_has_one_leader() {
    on_fibers(|| {
        let barrier = Arc::new(Barrier::new(30));
        let arrived = Arc::new(AtomicUsize::new(0));
        let units: Vec<_> = (0..30)
            .map(|number| {
                let (barrier, arrived) = (Arc::clone(&barrier), Arc::clone(&arrived));
                Unit::mixed(number, move || {
                    let mut leads = 0;
                    for round in 1..=3 {
                        arrived.fetch_add(1, SeqCst);
                        leads += usize::from(barrier.wait().is_leader());
                        assert!(arrived.load(SeqCst) >= round * 30);
                    }
                    leads
                })
            })
            .collect();
        assert_eq!(units.into_iter().map(Unit::join).sum::<usize>(), 3);
    });
}

#[test]
fn once_is_once_even_if_the_first_sleeps() {
    on_fibers(|| {
        static ROUNDS: AtomicUsize = AtomicUsize::new(0);
        let before = ROUNDS.load(SeqCst);
        let (once, lock) = (Arc::new(Once::new()), Arc::new(OnceLock::new()));
        let units: Vec<_> = (0..12)
            .map(|number| {
                let (once, lock) = (Arc::clone(&once), Arc::clone(&lock));
                Unit::mixed(number, move || {
                    once.call_once(|| {
                        if carefree_runtime::wait::on_fiber() {
                            sleep(SHORT);
                        } else {
                            std::thread::sleep(SHORT);
                        }
                        ROUNDS.fetch_add(1, SeqCst);
                    });
                    assert!(once.is_completed());
                    *lock.get_or_init(|| {
                        std::thread::yield_now();
                        number
                    })
                })
            })
            .collect();
        let values: Vec<_> = units.into_iter().map(Unit::join).collect();
        assert!(values.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(ROUNDS.load(SeqCst), before + 1);
    });
}

#[test]
fn channels_deliver_everything_in_order() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        let (send, receive) = mpsc::channel();
        let units: Vec<_> = (0..6)
            .map(|number| {
                let send = send.clone();
                Unit::mixed(number, move || (0..500).for_each(|n| send.send((number, n)).unwrap()))
            })
            .collect();
        drop(send);
        let mut next = [0; 6];
        for (number, n) in receive {
            assert_eq!(next[number], n);
            next[number] += 1;
        }
        assert_eq!(next, [500; 6]);
        units.into_iter().for_each(Unit::join);
    });
}

#[test]
fn bounded_channels_make_senders_wait() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        for room in [0, 1, 3] {
            let (send, receive) = mpsc::sync_channel(room);
            let sent = Arc::new(AtomicUsize::new(0));
            let theirs = Arc::clone(&sent);
            let sender = spawn(move || {
                for n in 0..100 {
                    send.send(n).unwrap();
                    theirs.fetch_add(1, SeqCst);
                }
            });
            for n in 0..100 {
                assert_eq!(receive.recv(), Ok(n));
                assert!(sent.load(SeqCst) <= n + 2 + room);
            }
            sender.join().unwrap();
            assert!(receive.recv().is_err());
        }
    });
}

#[test]
fn a_channel_times_out_and_is_disconnected() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        let (send, receive) = mpsc::channel::<u32>();
        assert_eq!(receive.try_recv(), Err(TryRecvError::Empty));
        let begun = Instant::now();
        assert_eq!(receive.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
        assert!(begun.elapsed() >= SHORT);
        let fiber = spawn(move || {
            sleep(SHORT);
            drop(send);
        });
        assert_eq!(receive.recv(), Err(mpsc::RecvError));
        fiber.join().unwrap();
    });
}

#[test]
fn std_park_and_unpark() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        // The token comes first.
        std::thread::current().unpark();
        std::thread::park();
        let (send, receive) = mpsc::channel();
        let fiber = spawn(move || {
            send.send(std::thread::current()).unwrap();
            std::thread::park();
        });
        let handle = receive.recv().unwrap();
        sleep(SHORT);
        handle.unpark();
        fiber.join().unwrap();
        let begun = Instant::now();
        std::thread::park_timeout(SHORT);
        assert!(begun.elapsed() >= SHORT);
    });
}

#[test]
fn scoped_threads_of_a_fiber() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        let words = ["a", "b", "c"];
        let lengths: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = words
                .iter()
                .map(|word| {
                    scope.spawn(move || {
                        std::thread::sleep(SHORT);
                        word.len()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(lengths, 3);
    });
}
