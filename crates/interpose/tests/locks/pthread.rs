//! The pthread locks on fibers, called as C calls them.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use carefree_runtime::{sleep, spawn};

use crate::common::{Unit, on_fibers, own_tls};

const SHORT: Duration = Duration::from_millis(5);

unsafe extern "C" {
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        time: *const libc::timespec,
    ) -> i32;
    fn pthread_rwlock_timedrdlock(
        lock: *mut libc::pthread_rwlock_t,
        time: *const libc::timespec,
    ) -> i32;
    fn pthread_once(once: *mut libc::pthread_once_t, routine: extern "C" fn()) -> i32;
    fn flockfile(stream: *mut libc::FILE);
    fn funlockfile(stream: *mut libc::FILE);
}

/// An object of libc's that fibers and threads share.
struct Object<T>(UnsafeCell<T>);

// SAFETY: libc's locks and conditions are made to be shared by threads.
unsafe impl<T> Sync for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Object<T> {}

impl<T> Object<T> {
    fn new(value: T) -> Arc<Self> {
        Arc::new(Object(UnsafeCell::new(value)))
    }

    fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// Calls a function of libc's.
macro_rules! c {
    ($function:path, $($argument:expr),*) => {
        // SAFETY: used as the manual says; the objects live in an `Arc`.
        unsafe { $function($($argument),*) }
    };
}

fn mutex(set: impl FnOnce(*mut libc::pthread_mutexattr_t)) -> Arc<Object<libc::pthread_mutex_t>> {
    let object = Object::new(libc::PTHREAD_MUTEX_INITIALIZER);
    // SAFETY: set up before it is used.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attributes);
        set(&raw mut attributes);
        assert_eq!(libc::pthread_mutex_init(object.get(), &raw const attributes), 0);
    }
    object
}

fn of_type(kind: i32) -> Arc<Object<libc::pthread_mutex_t>> {
    mutex(|attributes| {
        c!(libc::pthread_mutexattr_settype, attributes, kind);
    })
}

/// The thread is without the mutex for some nanoseconds of each turn, and a woken fiber's carrier takes microseconds to
/// wake up.
#[test]
fn a_fiber_has_the_mutex_that_a_thread_takes_again_and_again() {
    const TIMES: usize = 21;
    /// (17 where the thread gives way after 16, and more than a hundred where it does not.)
    const TURNS: usize = 50;
    on_fibers(|| {
        let mutex = of_type(libc::PTHREAD_MUTEX_NORMAL);
        let ends = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicUsize::new(0));
        let keeper = {
            let (mutex, ends, turns) = (Arc::clone(&mutex), Arc::clone(&ends), Arc::clone(&turns));
            std::thread::spawn(move || {
                while !ends.load(SeqCst) {
                    c!(libc::pthread_mutex_lock, mutex.get());
                    std::thread::sleep(Duration::from_micros(20));
                    c!(libc::pthread_mutex_unlock, mutex.get());
                    turns.fetch_add(1, SeqCst);
                }
            })
        };
        let mut waits: Vec<usize> = (0..TIMES)
            .map(|_| {
                sleep(Duration::from_micros(300));
                let begun = turns.load(SeqCst);
                c!(libc::pthread_mutex_lock, mutex.get());
                let turns = turns.load(SeqCst) - begun;
                c!(libc::pthread_mutex_unlock, mutex.get());
                turns
            })
            .collect();
        ends.store(true, SeqCst);
        carefree_runtime::offload(|| keeper.join().unwrap());
        // The median, for a busy machine may keep the carrier from running now and then.
        waits.sort_unstable();
        assert!(waits[TIMES / 2] < TURNS, "turns of the thread before the fiber has it: {waits:?}");
    });
}

fn from_now(clock: libc::clockid_t, span: Duration) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    c!(libc::clock_gettime, clock, &raw mut time);
    let sum = Duration::new(time.tv_sec as u64, time.tv_nsec as u32) + span;
    libc::timespec { tv_sec: sum.as_secs() as i64, tv_nsec: i64::from(sum.subsec_nanos()) }
}

fn contend(mutex: &Arc<Object<libc::pthread_mutex_t>>, threads_too: bool) {
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let units: Vec<_> = (0..24)
        .map(|number| {
            let (mutex, counts) = (Arc::clone(mutex), Arc::clone(&counts));
            Unit::mixed(if threads_too { number } else { 0 }, move || {
                for turn in 0..50 {
                    assert_eq!(c!(libc::pthread_mutex_lock, mutex.get()), 0);
                    counts.0.fetch_add(1, SeqCst);
                    if turn % 10 == number % 10 {
                        std::thread::yield_now();
                    }
                    let second = counts.1.fetch_add(1, SeqCst) + 1;
                    assert_eq!(counts.0.load(SeqCst), second, "two at once");
                    assert_eq!(c!(libc::pthread_mutex_unlock, mutex.get()), 0);
                }
            })
        })
        .collect();
    units.into_iter().for_each(Unit::join);
    assert_eq!(counts.1.load(SeqCst), 24 * 50);
}

#[test]
fn every_kind_of_mutex_lets_one_at_a_time_in() {
    on_fibers(|| {
        contend(&of_type(libc::PTHREAD_MUTEX_NORMAL), true);
        contend(&of_type(3 /* adaptive */), true);
        if !own_tls() {
            // Other kinds know their owner by the thread number, which fibers share here.
            return;
        }
        contend(&of_type(libc::PTHREAD_MUTEX_RECURSIVE), true);
        contend(&of_type(libc::PTHREAD_MUTEX_ERRORCHECK), true);
        let robust = mutex(|attributes| {
            c!(libc::pthread_mutexattr_setrobust, attributes, libc::PTHREAD_MUTEX_ROBUST);
        });
        contend(&robust, true);
        let inherits = mutex(|attributes| {
            c!(libc::pthread_mutexattr_setprotocol, attributes, libc::PTHREAD_PRIO_INHERIT);
        });
        contend(&inherits, false);
    });
}

#[test]
fn a_hundred_fibers_contend_for_a_mutex_that_a_sleeper_holds() {
    on_fibers(|| {
        let mutex = of_type(libc::PTHREAD_MUTEX_NORMAL);
        c!(libc::pthread_mutex_lock, mutex.get());
        let got = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..100)
            .map(|_| {
                let (mutex, got) = (Arc::clone(&mutex), Arc::clone(&got));
                spawn(move || {
                    c!(libc::pthread_mutex_lock, mutex.get());
                    got.fetch_add(1, SeqCst);
                    c!(libc::pthread_mutex_unlock, mutex.get());
                })
            })
            .collect();
        for _ in 0..4 {
            sleep(SHORT);
        }
        assert_eq!(got.load(SeqCst), 0);
        c!(libc::pthread_mutex_unlock, mutex.get());
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(got.load(SeqCst), 100);
    });
}

#[test]
fn mutexes_that_check_and_that_count() {
    on_fibers(|| {
        let checks = of_type(libc::PTHREAD_MUTEX_ERRORCHECK);
        c!(libc::pthread_mutex_lock, checks.get());
        assert_eq!(c!(libc::pthread_mutex_lock, checks.get()), libc::EDEADLK);
        let counts = of_type(libc::PTHREAD_MUTEX_RECURSIVE);
        c!(libc::pthread_mutex_lock, counts.get());
        assert_eq!(c!(libc::pthread_mutex_lock, counts.get()), 0);
        if own_tls() {
            let (theirs, counts) = (Arc::clone(&checks), Arc::clone(&counts));
            let other = spawn(move || {
                assert_eq!(c!(libc::pthread_mutex_unlock, theirs.get()), libc::EPERM);
                assert_eq!(c!(libc::pthread_mutex_trylock, counts.get()), libc::EBUSY);
            });
            other.join().unwrap();
        }
        assert_eq!(c!(libc::pthread_mutex_unlock, checks.get()), 0);
        assert_eq!(c!(libc::pthread_mutex_unlock, checks.get()), libc::EPERM);
        assert_eq!(c!(libc::pthread_mutex_unlock, counts.get()), 0);
        assert_eq!(c!(libc::pthread_mutex_unlock, counts.get()), 0);
    });
}

#[test]
fn a_robust_mutex_outlives_its_owner() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        let robust = mutex(|attributes| {
            c!(libc::pthread_mutexattr_setrobust, attributes, libc::PTHREAD_MUTEX_ROBUST);
        });
        // First a fiber and then a thread ends while it holds the mutex, while another fiber waits.
        for number in [0, 2] {
            let (theirs, locked) = (Arc::clone(&robust), Arc::new(AtomicBool::new(false)));
            let signal = Arc::clone(&locked);
            let owner = Unit::mixed(number, move || {
                c!(libc::pthread_mutex_lock, theirs.get());
                signal.store(true, SeqCst);
                for _ in 0..4 {
                    std::thread::sleep(SHORT);
                    std::thread::yield_now();
                }
            });
            while !locked.load(SeqCst) {
                sleep(Duration::from_micros(100));
            }
            assert_eq!(c!(libc::pthread_mutex_lock, robust.get()), libc::EOWNERDEAD);
            c!(libc::pthread_mutex_consistent, robust.get());
            c!(libc::pthread_mutex_unlock, robust.get());
            owner.join();
        }
    });
}

#[test]
fn a_wait_for_a_mutex_times_out() {
    on_fibers(|| {
        let mutex = of_type(libc::PTHREAD_MUTEX_NORMAL);
        c!(libc::pthread_mutex_lock, mutex.get());
        let begun = Instant::now();
        let time = from_now(libc::CLOCK_REALTIME, SHORT);
        assert_eq!(
            c!(libc::pthread_mutex_timedlock, mutex.get(), &raw const time),
            libc::ETIMEDOUT
        );
        assert!(begun.elapsed() >= SHORT);
        let time = from_now(libc::CLOCK_MONOTONIC, SHORT);
        let clock = libc::CLOCK_MONOTONIC;
        assert_eq!(
            c!(pthread_mutex_clocklock, mutex.get(), clock, &raw const time),
            libc::ETIMEDOUT
        );
        assert!(begun.elapsed() >= 2 * SHORT);
        let wrong = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
        assert_eq!(c!(libc::pthread_mutex_timedlock, mutex.get(), &raw const wrong), libc::EINVAL);
        // It is locked in time, because it is unlocked meanwhile.
        let theirs = Arc::clone(&mutex);
        let waits = spawn(move || {
            let time = from_now(libc::CLOCK_REALTIME, Duration::from_secs(50));
            c!(libc::pthread_mutex_timedlock, theirs.get(), &raw const time)
        });
        sleep(SHORT);
        c!(libc::pthread_mutex_unlock, mutex.get());
        assert_eq!(waits.join().unwrap(), 0);
    });
}

#[test]
fn conditions_between_fibers_and_threads() {
    on_fibers(|| {
        struct State {
            mutex: libc::pthread_mutex_t,
            changed: libc::pthread_cond_t,
            turn: usize,
        }
        let state = Object::new(State {
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            changed: libc::PTHREAD_COND_INITIALIZER,
            turn: 0,
        });
        let units: Vec<_> = (0..9)
            .map(|number| {
                let state = Arc::clone(&state);
                Unit::mixed(number, move || {
                    // SAFETY: the turn is looked at with the mutex held.
                    unsafe {
                        let state = state.get();
                        for _ in 0..30 {
                            libc::pthread_mutex_lock(&raw mut (*state).mutex);
                            while (*state).turn % 9 != number {
                                libc::pthread_cond_wait(
                                    &raw mut (*state).changed,
                                    &raw mut (*state).mutex,
                                );
                            }
                            (*state).turn += 1;
                            libc::pthread_cond_broadcast(&raw mut (*state).changed);
                            libc::pthread_mutex_unlock(&raw mut (*state).mutex);
                        }
                    }
                })
            })
            .collect();
        units.into_iter().for_each(Unit::join);
        // SAFETY: it is not used any more.
        assert_eq!(unsafe { (*state.get()).turn }, 270);
    });
}

#[test]
fn one_signal_for_each_item_of_a_queue() {
    on_fibers(|| {
        struct State {
            mutex: libc::pthread_mutex_t,
            filled: libc::pthread_cond_t,
            items: usize,
            taken: usize,
        }
        let state = Object::new(State {
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            filled: libc::PTHREAD_COND_INITIALIZER,
            items: 0,
            taken: 0,
        });
        const EACH: usize = 100;
        let consumers: Vec<_> = (0..6)
            .map(|number| {
                let state = Arc::clone(&state);
                Unit::mixed(number, move || {
                    // SAFETY: the state is looked at with the mutex held.
                    unsafe {
                        let state = state.get();
                        for _ in 0..EACH {
                            libc::pthread_mutex_lock(&raw mut (*state).mutex);
                            while (*state).items == 0 {
                                libc::pthread_cond_wait(
                                    &raw mut (*state).filled,
                                    &raw mut (*state).mutex,
                                );
                            }
                            (*state).items -= 1;
                            (*state).taken += 1;
                            libc::pthread_mutex_unlock(&raw mut (*state).mutex);
                        }
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..3)
            .map(|number| {
                let state = Arc::clone(&state);
                Unit::mixed(number, move || {
                    // SAFETY: as above.
                    unsafe {
                        let state = state.get();
                        for item in 0..2 * EACH {
                            libc::pthread_mutex_lock(&raw mut (*state).mutex);
                            (*state).items += 1;
                            libc::pthread_cond_signal(&raw mut (*state).filled);
                            libc::pthread_mutex_unlock(&raw mut (*state).mutex);
                            if item % 7 == 0 {
                                std::thread::yield_now();
                            }
                        }
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(Unit::join);
        consumers.into_iter().for_each(Unit::join);
        // SAFETY: it is not used any more.
        assert_eq!(unsafe { (*state.get()).taken }, 6 * EACH);
    });
}

#[test]
fn a_wait_for_a_condition_times_out_by_its_clock() {
    on_fibers(|| {
        for clock in [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC] {
            let condition = Object::new(libc::PTHREAD_COND_INITIALIZER);
            let mutex = of_type(libc::PTHREAD_MUTEX_ERRORCHECK);
            // SAFETY: set up before it is used.
            unsafe {
                let mut attributes = std::mem::zeroed();
                libc::pthread_condattr_init(&raw mut attributes);
                libc::pthread_condattr_setclock(&raw mut attributes, clock);
                libc::pthread_cond_init(condition.get(), &raw const attributes);
            }
            let begun = Instant::now();
            let time = from_now(clock, SHORT);
            let wait =
                || c!(libc::pthread_cond_timedwait, condition.get(), mutex.get(), &raw const time);
            assert_eq!(wait(), libc::EPERM, "the mutex is not held");
            c!(libc::pthread_mutex_lock, mutex.get());
            assert_eq!(wait(), libc::ETIMEDOUT);
            assert!(begun.elapsed() >= SHORT && begun.elapsed() < Duration::from_secs(30));
            assert_eq!(
                c!(libc::pthread_mutex_unlock, mutex.get()),
                0,
                "the mutex is not held afterwards"
            );
        }
    });
}

#[test]
fn readers_share_a_lock_and_writers_do_not() {
    on_fibers(|| {
        let lock = Object::new(libc::PTHREAD_RWLOCK_INITIALIZER);
        let inside = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)));
        let units: Vec<_> = (0..24)
            .map(|number| {
                let (lock, inside) = (Arc::clone(&lock), Arc::clone(&inside));
                Unit::mixed(number, move || {
                    let (readers, writers, most) = &*inside;
                    for turn in 0..30 {
                        if (turn + number) % 5 == 0 {
                            assert_eq!(c!(libc::pthread_rwlock_wrlock, lock.get()), 0);
                            assert_eq!(writers.fetch_add(1, SeqCst), 0);
                            assert_eq!(readers.load(SeqCst), 0);
                            std::thread::yield_now();
                            writers.fetch_sub(1, SeqCst);
                        } else {
                            assert_eq!(c!(libc::pthread_rwlock_rdlock, lock.get()), 0);
                            assert_eq!(writers.load(SeqCst), 0);
                            most.fetch_max(readers.fetch_add(1, SeqCst) + 1, SeqCst);
                            std::thread::yield_now();
                            readers.fetch_sub(1, SeqCst);
                        }
                        assert_eq!(c!(libc::pthread_rwlock_unlock, lock.get()), 0);
                    }
                })
            })
            .collect();
        units.into_iter().for_each(Unit::join);
        assert!(inside.2.load(SeqCst) > 1, "no two readers at once");
        // Readers that wait all go on together.
        c!(libc::pthread_rwlock_wrlock, lock.get());
        let barrier = Arc::new(std::sync::Barrier::new(4));
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let (lock, barrier) = (Arc::clone(&lock), Arc::clone(&barrier));
                spawn(move || {
                    c!(libc::pthread_rwlock_rdlock, lock.get());
                    barrier.wait();
                    c!(libc::pthread_rwlock_unlock, lock.get());
                })
            })
            .collect();
        sleep(SHORT);
        let time = from_now(libc::CLOCK_REALTIME, SHORT);
        let late = c!(pthread_rwlock_timedrdlock, lock.get(), &raw const time);
        assert!([libc::ETIMEDOUT, libc::EDEADLK].contains(&late));
        c!(libc::pthread_rwlock_unlock, lock.get());
        readers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

#[test]
fn semaphores_count() {
    on_fibers(|| {
        // SAFETY: set up before it is used.
        let semaphore = Object::new(unsafe { std::mem::zeroed::<libc::sem_t>() });
        c!(libc::sem_init, semaphore.get(), 0, 2);
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let units: Vec<_> = (0..24)
            .map(|number| {
                let (semaphore, inside, most) =
                    (Arc::clone(&semaphore), Arc::clone(&inside), Arc::clone(&most));
                Unit::mixed(number, move || {
                    for _ in 0..20 {
                        assert_eq!(c!(libc::sem_wait, semaphore.get()), 0);
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        assert_eq!(c!(libc::sem_post, semaphore.get()), 0);
                    }
                })
            })
            .collect();
        units.into_iter().for_each(Unit::join);
        assert!(most.load(SeqCst) <= 2);
        c!(libc::sem_wait, semaphore.get());
        c!(libc::sem_wait, semaphore.get());
        let begun = Instant::now();
        let time = from_now(libc::CLOCK_REALTIME, SHORT);
        assert_eq!(c!(libc::sem_timedwait, semaphore.get(), &raw const time), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ETIMEDOUT));
        assert!(begun.elapsed() >= SHORT);
    });
}

#[test]
fn barriers_let_all_go_at_once() {
    on_fibers(|| {
        // SAFETY: set up before it is used.
        let barrier = Object::new(unsafe { std::mem::zeroed::<libc::pthread_barrier_t>() });
        assert_eq!(c!(libc::pthread_barrier_init, barrier.get(), ptr::null(), 12), 0);
        let arrived = Arc::new(AtomicUsize::new(0));
        let units: Vec<_> = (0..12)
            .map(|number| {
                let (barrier, arrived) = (Arc::clone(&barrier), Arc::clone(&arrived));
                Unit::mixed(number, move || {
                    let mut serial = 0;
                    for round in 1..=10 {
                        arrived.fetch_add(1, SeqCst);
                        match c!(libc::pthread_barrier_wait, barrier.get()) {
                            libc::PTHREAD_BARRIER_SERIAL_THREAD => serial += 1,
                            result => assert_eq!(result, 0),
                        }
                        assert!(arrived.load(SeqCst) >= round * 12);
                    }
                    serial
                })
            })
            .collect();
        assert_eq!(units.into_iter().map(Unit::join).sum::<usize>(), 10);
        assert_eq!(c!(libc::pthread_barrier_destroy, barrier.get()), 0);
        assert_eq!(c!(libc::pthread_barrier_init, barrier.get(), ptr::null(), 0), libc::EINVAL);
    });
}

#[test]
fn a_once_whose_function_parks() {
    on_fibers(|| {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn routine() {
            std::thread::sleep(SHORT);
            std::thread::yield_now();
            RUNS.fetch_add(1, SeqCst);
        }
        let before = RUNS.load(SeqCst);
        let once = Object::new(libc::PTHREAD_ONCE_INIT);
        let units: Vec<_> = (0..12)
            .map(|number| {
                let once = Arc::clone(&once);
                Unit::mixed(number, move || {
                    assert_eq!(c!(pthread_once, once.get(), routine), 0);
                    assert_eq!(RUNS.load(SeqCst), before + 1);
                })
            })
            .collect();
        units.into_iter().for_each(Unit::join);
    });
}

#[test]
fn a_spinlock_held_by_a_sleeper() {
    on_fibers(|| {
        let lock = Object::new(0);
        c!(libc::pthread_spin_init, lock.get(), libc::PTHREAD_PROCESS_PRIVATE);
        c!(libc::pthread_spin_lock, lock.get());
        let theirs = Arc::clone(&lock);
        let other = spawn(move || c!(libc::pthread_spin_lock, theirs.get()));
        sleep(SHORT);
        c!(libc::pthread_spin_unlock, lock.get());
        assert_eq!(other.join().unwrap(), 0);
    });
}

#[test]
fn the_lock_of_a_stream() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        let stream = c!(libc::tmpfile,) as usize;
        // SAFETY: a stream, locked and unlocked in turn.
        let lock = move || unsafe { flockfile(stream as *mut libc::FILE) };
        // SAFETY: as above.
        let unlock = move || unsafe { funlockfile(stream as *mut libc::FILE) };
        lock();
        let other = spawn(move || {
            lock();
            unlock();
        });
        sleep(SHORT);
        unlock();
        other.join().unwrap();
        c!(libc::fclose, stream as *mut libc::FILE);
    });
}

#[test]
fn a_thread_is_joined_while_other_fibers_run() {
    on_fibers(|| {
        let go = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&go);
        // The thread ends only after another fiber has run.
        let thread = std::thread::spawn(move || {
            while !theirs.load(SeqCst) {
                std::thread::sleep(Duration::from_micros(100));
            }
            7
        });
        let other = spawn(move || {
            sleep(SHORT);
            go.store(true, SeqCst);
        });
        assert_eq!(thread.join().unwrap(), 7);
        other.join().unwrap();
    });
}
