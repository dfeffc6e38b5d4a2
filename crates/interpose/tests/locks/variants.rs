//! The rarer forms of waiting calls: with a clock of the caller's choice, and those of C11.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use carefree_runtime::{sleep, spawn};
use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t, timespec};

use crate::common::on_fibers;

const SHORT: Duration = Duration::from_millis(5);

/// In glibc and musl.
const THRD_SUCCESS: c_int = 0;
const THRD_TIMEDOUT: c_int = 4;
const MTX_TIMED: c_int = 2;

type Condition = *mut pthread_cond_t;
type Mutex = *mut pthread_mutex_t;
type Lock = *mut pthread_rwlock_t;
type Time = *const timespec;

unsafe extern "C" {
    fn pthread_cond_clockwait(c: Condition, m: Mutex, clock: clockid_t, time: Time) -> c_int;
    fn pthread_rwlock_clockrdlock(lock: Lock, clock: clockid_t, time: Time) -> c_int;
    fn pthread_rwlock_clockwrlock(lock: Lock, clock: clockid_t, time: Time) -> c_int;
    fn sem_clockwait(semaphore: *mut libc::sem_t, clock: clockid_t, time: Time) -> c_int;
    fn pthread_timedjoin_np(thread: pthread_t, result: *mut *mut c_void, time: Time) -> c_int;
    fn pthread_clockjoin_np(
        thread: pthread_t,
        result: *mut *mut c_void,
        clock: clockid_t,
        time: Time,
    ) -> c_int;

    // C11's objects are the pthread ones.
    fn mtx_init(mutex: Mutex, kind: c_int) -> c_int;
    fn mtx_lock(mutex: Mutex) -> c_int;
    fn mtx_timedlock(mutex: Mutex, time: Time) -> c_int;
    fn mtx_unlock(mutex: Mutex) -> c_int;
    fn cnd_init(condition: Condition) -> c_int;
    fn cnd_wait(condition: Condition, mutex: Mutex) -> c_int;
    fn cnd_timedwait(condition: Condition, mutex: Mutex, time: Time) -> c_int;
    fn cnd_signal(condition: Condition) -> c_int;
    fn cnd_broadcast(condition: Condition) -> c_int;
    fn thrd_create(
        thread: *mut pthread_t,
        start: extern "C" fn(*mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn thrd_join(thread: pthread_t, code: *mut c_int) -> c_int;
    fn thrd_sleep(span: Time, left: *mut timespec) -> c_int;
    fn call_once(flag: *mut c_int, routine: extern "C" fn());
}

/// An object of libc's, which never moves and is never freed.
struct Object<T: 'static>(&'static UnsafeCell<T>);

// SAFETY: libc's locks are made to be shared by threads.
unsafe impl<T: 'static> Send for Object<T> {}

impl<T: 'static> Clone for Object<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: 'static> Copy for Object<T> {}

impl<T: 'static> Object<T> {
    fn new(value: T) -> Self {
        Object(Box::leak(Box::new(UnsafeCell::new(value))))
    }

    fn get(self) -> *mut T {
        self.0.get()
    }
}

fn now(clock: clockid_t) -> timespec {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}

/// A moment later than now by `clock`.
fn soon(clock: clockid_t) -> timespec {
    let mut time = now(clock);
    time.tv_nsec += SHORT.as_nanos() as i64;
    time.tv_sec += time.tv_nsec / 1_000_000_000;
    time.tv_nsec %= 1_000_000_000;
    time
}

/// A moment later than the end of any test.
fn late(clock: clockid_t) -> timespec {
    let mut time = now(clock);
    time.tv_sec += 3600;
    time
}

#[test]
fn by_a_clock_of_choice() {
    static TOO_LATE: AtomicUsize = AtomicUsize::new(0);
    on_fibers(|| {
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
            let mutex = Object::new(libc::PTHREAD_MUTEX_INITIALIZER);
            let condition = Object::new(libc::PTHREAD_COND_INITIALIZER);
            let lock = Object::new(libc::PTHREAD_RWLOCK_INITIALIZER);
            // SAFETY: set up just below.
            let semaphore = Object::new(unsafe { std::mem::zeroed::<libc::sem_t>() });
            // SAFETY: objects that stay, used as the manual says.
            unsafe {
                libc::sem_init(semaphore.get(), 0, 0);
                libc::pthread_mutex_lock(mutex.get());
                libc::pthread_rwlock_wrlock(lock.get());
                // No signal comes.
                let begun = Instant::now();
                let wait = |time: timespec| {
                    pthread_cond_clockwait(condition.get(), mutex.get(), clock, &raw const time)
                };
                assert_eq!(wait(soon(clock)), libc::ETIMEDOUT);
                assert!(begun.elapsed() >= SHORT);
                let time = soon(clock);
                assert_eq!(sem_clockwait(semaphore.get(), clock, &raw const time), -1);
                TOO_LATE.store(0, SeqCst);
                let waiting = [pthread_rwlock_clockrdlock, pthread_rwlock_clockwrlock].map(|way| {
                    spawn(move || {
                        let time = soon(clock);
                        let first = way(lock.get(), clock, &raw const time);
                        TOO_LATE.fetch_add(1, SeqCst);
                        let time = late(clock);
                        let second = way(lock.get(), clock, &raw const time);
                        libc::pthread_rwlock_unlock(lock.get());
                        (first, second)
                    })
                });
                while TOO_LATE.load(SeqCst) < waiting.len() {
                    sleep(SHORT);
                }
                // A signal comes.
                libc::pthread_rwlock_unlock(lock.get());
                let other = spawn(move || {
                    sleep(SHORT);
                    libc::sem_post(semaphore.get());
                    libc::pthread_mutex_lock(mutex.get());
                    libc::pthread_cond_signal(condition.get());
                    libc::pthread_mutex_unlock(mutex.get());
                });
                assert_eq!(wait(late(clock)), 0);
                let time = late(clock);
                assert_eq!(sem_clockwait(semaphore.get(), clock, &raw const time), 0);
                for waiting in waiting {
                    assert_eq!(waiting.join().unwrap(), (libc::ETIMEDOUT, 0));
                }
                libc::pthread_mutex_unlock(mutex.get());
                other.join().unwrap();
            }
        }
    });
}

#[test]
fn c11() {
    on_fibers(|| {
        // SAFETY: set up before they are used.
        let (mutex, condition) =
            unsafe { (Object::new(std::mem::zeroed()), Object::new(std::mem::zeroed())) };
        let count = Object::new(0usize);
        // SAFETY: objects that stay; the count is accessed with the mutex held.
        unsafe {
            assert_eq!(mtx_init(mutex.get(), MTX_TIMED), THRD_SUCCESS);
            assert_eq!(cnd_init(condition.get()), THRD_SUCCESS);
            assert_eq!(mtx_lock(mutex.get()), THRD_SUCCESS);
            let late_for_it = spawn(move || {
                let time = soon(libc::CLOCK_REALTIME);
                mtx_timedlock(mutex.get(), &raw const time)
            });
            let waits_for_it = spawn(move || {
                let got = mtx_lock(mutex.get());
                *count.get() += 1;
                cnd_signal(condition.get());
                mtx_unlock(mutex.get());
                got
            });
            assert_eq!(late_for_it.join().unwrap(), THRD_TIMEDOUT);
            while *count.get() < 1 {
                assert_eq!(cnd_wait(condition.get(), mutex.get()), THRD_SUCCESS);
            }
            assert_eq!(waits_for_it.join().unwrap(), THRD_SUCCESS);
            let time = soon(libc::CLOCK_REALTIME);
            let waited = cnd_timedwait(condition.get(), mutex.get(), &raw const time);
            assert_eq!(waited, THRD_TIMEDOUT);
            let all = [(); 3].map(|()| {
                spawn(move || {
                    let time = late(libc::CLOCK_REALTIME);
                    mtx_timedlock(mutex.get(), &raw const time);
                    *count.get() += 1;
                    let waited = cnd_timedwait(condition.get(), mutex.get(), &raw const time);
                    mtx_unlock(mutex.get());
                    waited
                })
            });
            mtx_unlock(mutex.get());
            loop {
                let span = timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                assert_eq!(thrd_sleep(&raw const span, ptr::null_mut()), 0);
                mtx_lock(mutex.get());
                let waiting = *count.get() == 4;
                if waiting {
                    assert_eq!(cnd_broadcast(condition.get()), THRD_SUCCESS);
                }
                mtx_unlock(mutex.get());
                if waiting {
                    break;
                }
            }
            assert!(all.map(|fiber| fiber.join().unwrap()).iter().all(|end| *end == THRD_SUCCESS));
        }
    });
}

#[test]
fn once_by_its_c11_name() {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn routine() {
        sleep(SHORT);
        RUN.fetch_add(1, SeqCst);
    }
    on_fibers(|| {
        let flag = Object::new(0);
        let before = RUN.load(SeqCst);
        let all = [(); 4].map(|()| {
            // SAFETY: a flag that stays.
            spawn(move || unsafe {
                call_once(flag.get(), routine);
                RUN.load(SeqCst)
            })
        });
        for fiber in all {
            assert_eq!(fiber.join().unwrap(), before + 1);
        }
    });
}

#[test]
fn threads_are_joined_while_other_fibers_run() {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    /// Ends when its turn comes.
    extern "C" fn start(turn: *mut c_void) -> c_int {
        while TURN.load(SeqCst) < turn as usize {
            std::thread::sleep(Duration::from_micros(100));
        }
        turn as c_int
    }
    on_fibers(|| {
        TURN.store(0, SeqCst);
        let thread = |turn: usize| {
            let mut thread = 0;
            // SAFETY: a place for the handle; each is joined once.
            unsafe { assert_eq!(thrd_create(&raw mut thread, start, turn as *mut c_void), 0) };
            thread
        };
        let [first, second, third] = [1, 2, 3].map(thread);
        let ring = || {
            spawn(|| {
                sleep(SHORT);
                TURN.fetch_add(1, SeqCst);
            })
        };
        // SAFETY: threads that are joined here only.
        unsafe {
            let mut time = soon(libc::CLOCK_REALTIME);
            let early = pthread_timedjoin_np(first, ptr::null_mut(), &raw const time);
            assert_eq!(early, libc::ETIMEDOUT);
            let other = ring();
            time = late(libc::CLOCK_REALTIME);
            assert_eq!(pthread_timedjoin_np(first, ptr::null_mut(), &raw const time), 0);
            other.join().unwrap();
            let other = ring();
            let clock = libc::CLOCK_MONOTONIC;
            time = late(clock);
            assert_eq!(pthread_clockjoin_np(second, ptr::null_mut(), clock, &raw const time), 0);
            other.join().unwrap();
            let other = ring();
            let mut code = 0;
            assert_eq!((thrd_join(third, &raw mut code), code), (THRD_SUCCESS, 3));
            other.join().unwrap();
        }
    });
}
