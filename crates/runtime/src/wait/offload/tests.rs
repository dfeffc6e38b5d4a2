//! What can only be tried with a pool of one's own: its bound, its shrinking, refused threads.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::pool::{LINGER, Pool, start_thread};
use super::{offload, offload_to};
use crate::run;
use crate::scope;
use crate::sleep;

fn pool(
    start: fn(&'static Pool) -> io::Result<()>,
    linger: Duration,
    bound: usize,
) -> &'static Pool {
    let pool = Box::leak(Box::new(Pool::new(start, linger)));
    pool.limit_to(bound);
    pool
}

fn offload_on<R: Send>(pool: &'static Pool, f: impl FnOnce() -> R + Send) -> R {
    // SAFETY: both may be sent.
    unsafe { offload_to(pool, f) }
}

/// How many are inside at once, and the most that ever were.
#[derive(Default)]
struct Crowd {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Crowd {
    fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let result = f();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited too long until {what}");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_more_threads_than_the_bound_and_all_of_them() {
    let pool = pool(start_thread, LINGER, 3);
    let crowd = Crowd::default();
    run(|| {
        scope(|scope| {
            for _ in 0..60 {
                scope.spawn(|| {
                    offload_on(pool, || {
                        crowd.enter(|| std::thread::sleep(Duration::from_millis(1)));
                    });
                });
            }
        });
    });
    assert!(crowd.most.load(Ordering::SeqCst) <= 3);
    assert!(pool.workers() <= 3);

    // Calls that wait for each other: as many as the bound allows are made at the same time.
    let barrier = std::sync::Barrier::new(3);
    run(|| {
        scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| offload_on(pool, || barrier.wait().is_leader()));
            }
        });
    });
    assert_eq!(pool.workers(), 3);
}

#[test]
fn calls_beyond_the_bound_are_made_in_order() {
    let pool = pool(start_thread, LINGER, 1);
    let order = Mutex::new(Vec::new());
    let gate = Mutex::new(());
    run(|| {
        scope(|scope| {
            let shut = gate.lock().unwrap();
            scope.spawn(|| offload_on(pool, || drop(gate.lock().unwrap())));
            until("the first one is under way", || pool.taken() == 1);
            for n in 0..20 {
                let order = &order;
                scope.spawn(move || offload_on(pool, || order.lock().unwrap().push(n)));
                until("it waits", || pool.waiting() == n + 1);
            }
            drop(shut);
        });
    });
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[test]
fn idle_threads_end_and_others_take_their_places() {
    let pool = pool(start_thread, Duration::from_millis(20), 8);
    for _ in 0..3 {
        let barrier = std::sync::Barrier::new(8);
        run(|| {
            scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| offload_on(pool, || barrier.wait().is_leader()));
                }
            });
        });
        until("all have ended", || pool.workers() == 0);
    }
    assert!(pool.places() <= 8, "places are used again");
}

#[test]
fn short_calls_do_not_make_a_crowd_of_threads() {
    let workers = || {
        let pool = pool(start_thread, LINGER, 512);
        run(|| {
            scope(|scope| {
                for _ in 0..2_000 {
                    scope.spawn(|| offload_on(pool, || ()));
                }
            });
        });
        pool.workers()
    };
    // The best of several: on a busy machine threads may be put off, and the next calls need others.
    let many: Vec<_> = (0..10).map(|_| workers()).take_while(|&workers| workers >= 256).collect();
    assert!(many.len() < 10, "{many:?} threads for calls that do nothing");
}

#[test]
fn a_pool_goes_on_with_the_threads_it_has() {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    fn two_then_none(pool: &'static Pool) -> io::Result<()> {
        if STARTED.fetch_add(1, Ordering::SeqCst) < 2 {
            return start_thread(pool);
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }
    let pool = pool(two_then_none, LINGER, 64);
    let (crowd, done) = (Crowd::default(), AtomicUsize::new(0));
    run(|| {
        scope(|scope| {
            for _ in 0..200 {
                scope.spawn(|| {
                    offload_on(pool, || {
                        crowd.enter(|| {
                            until("a third is asked for", || STARTED.load(Ordering::SeqCst) > 2);
                            done.fetch_add(1, Ordering::SeqCst)
                        })
                    });
                });
            }
        });
    });
    assert_eq!(done.load(Ordering::SeqCst), 200);
    assert!(crowd.most.load(Ordering::SeqCst) <= 2);
}

#[test]
fn without_any_thread_calls_are_made_on_the_carrier() {
    fn none(_: &'static Pool) -> io::Result<()> {
        // Time for others to count on this thread.
        std::thread::sleep(Duration::from_millis(2));
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }
    let pool = pool(none, LINGER, 64);
    let done = AtomicUsize::new(0);
    run(|| {
        scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| offload_on(pool, || done.fetch_add(1, Ordering::SeqCst)));
            }
        });
    });
    assert_eq!(done.load(Ordering::SeqCst), 50);
    assert_eq!((pool.workers(), pool.waiting()), (0, 0));
}

/// Fibers of many carriers push, workers end after almost no time, and threads are refused at
/// random: no call may be lost.
#[test]
fn no_call_is_lost_whatever_threads_do() {
    fn sometimes(pool: &'static Pool) -> io::Result<()> {
        // Every seventh attempt and the three after it.
        if STARTS.fetch_add(1, Ordering::SeqCst) % 7 < 4 {
            return start_thread(pool);
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    let pool = pool(sometimes, Duration::from_micros(50), 5);
    let runtime = crate::Runtime::builder().carriers(4).build().unwrap();
    let done = AtomicUsize::new(0);
    runtime.run(|| {
        scope(|scope| {
            for fiber in 0..40u64 {
                let done = &done;
                scope.spawn(move || {
                    for n in 0..50u64 {
                        let before = offload_on(pool, || done.fetch_add(1, Ordering::SeqCst));
                        if (before as u64 ^ fiber ^ n) % 5 == 0 {
                            sleep(Duration::from_micros(100));
                        }
                    }
                });
            }
        });
    });
    drop(runtime);
    assert_eq!(done.load(Ordering::SeqCst), 2_000);
    until("all have ended", || pool.workers() == 0);
    assert_eq!(pool.waiting(), 0);
}

#[test]
fn an_offloaded_call_that_offloads_calls() {
    let pool = pool(start_thread, LINGER, 1);
    let same = run(|| {
        offload_on(pool, || {
            let outer = std::thread::current().id();
            offload_on(pool, || offload(|| std::thread::current().id() == outer))
        })
    });
    assert!(same);
}
