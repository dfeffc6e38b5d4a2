//! What C's locks answer to invalid calls, and to calls that would wait for their own caller.

use std::time::Duration;

use carefree_runtime::{sleep, spawn};
use libc::timespec;

use crate::common::{on_fibers, own_tls};

unsafe extern "C" {
    fn pthread_rwlock_timedrdlock(lock: *mut libc::pthread_rwlock_t, time: *const timespec) -> i32;
    fn pthread_rwlock_timedwrlock(lock: *mut libc::pthread_rwlock_t, time: *const timespec) -> i32;
}

/// Invalid: its nanoseconds make a second.
static NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
/// A time in the past.
static PAST: timespec = timespec { tv_sec: 1, tv_nsec: 0 };

/// An object of libc's that fibers share: its address.
fn shared<T>(value: T) -> usize {
    Box::into_raw(Box::new(value)) as usize
}

/// What `f` returns on a fiber of its own.
fn elsewhere(f: impl FnOnce() -> i32 + Send + 'static) -> i32 {
    spawn(f).join().unwrap()
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn an_invalid_time() {
    on_fibers(|| {
        let m = shared(libc::PTHREAD_MUTEX_INITIALIZER);
        let l = shared(libc::PTHREAD_RWLOCK_INITIALIZER);
        let c = shared(libc::PTHREAD_COND_INITIALIZER);
        // SAFETY: objects that stay, used as the manual says but for the times.
        unsafe {
            let mut semaphore = std::mem::zeroed();
            libc::sem_init(&raw mut semaphore, 0, 1);
            // libc takes a free mutex whatever the time, but looks at the time of the others first.
            assert_eq!(libc::pthread_mutex_timedlock(m as _, &raw const NO_TIME), 0);
            assert_eq!(pthread_rwlock_timedwrlock(l as _, &raw const NO_TIME), libc::EINVAL);
            assert_eq!(pthread_rwlock_timedwrlock(l as _, &raw const PAST), 0);
            assert_eq!(libc::sem_timedwait(&raw mut semaphore, &raw const NO_TIME), -1);
            assert_eq!(errno(), libc::EINVAL);
            assert_eq!(libc::sem_timedwait(&raw mut semaphore, &raw const PAST), 0);
            assert_eq!(
                elsewhere(move || libc::pthread_mutex_timedlock(m as _, &raw const NO_TIME)),
                libc::EINVAL
            );
            for time in [PAST, timespec { tv_sec: -5, tv_nsec: 0 }] {
                assert_eq!(
                    elsewhere(move || libc::pthread_mutex_timedlock(m as _, &raw const time)),
                    libc::ETIMEDOUT
                );
                assert_eq!(
                    elsewhere(move || pthread_rwlock_timedrdlock(l as _, &raw const time)),
                    libc::ETIMEDOUT
                );
                assert_eq!(
                    elsewhere(move || pthread_rwlock_timedwrlock(l as _, &raw const time)),
                    libc::ETIMEDOUT
                );
            }
            assert_eq!(
                elsewhere(move || pthread_rwlock_timedrdlock(l as _, &raw const NO_TIME)),
                libc::EINVAL
            );
            assert_eq!(libc::sem_timedwait(&raw mut semaphore, &raw const NO_TIME), -1);
            assert_eq!(errno(), libc::EINVAL);
            assert_eq!(libc::sem_timedwait(&raw mut semaphore, &raw const PAST), -1);
            assert_eq!(errno(), libc::ETIMEDOUT);
            // The mutex keeps its owner.
            let wait = |time: &timespec| libc::pthread_cond_timedwait(c as _, m as _, time);
            assert_eq!(wait(&NO_TIME), libc::EINVAL);
            assert_eq!(wait(&PAST), libc::ETIMEDOUT);
            assert_eq!(elsewhere(move || libc::pthread_mutex_trylock(m as _)), libc::EBUSY);
            assert_eq!(libc::pthread_mutex_unlock(m as _), 0);
            assert_eq!(libc::pthread_rwlock_unlock(l as _), 0);
            drop(Box::from_raw(m as *mut libc::pthread_mutex_t));
            drop(Box::from_raw(l as *mut libc::pthread_rwlock_t));
            drop(Box::from_raw(c as *mut libc::pthread_cond_t));
        }
    });
}

#[test]
fn a_writer_that_would_wait_for_itself_gets_an_error() {
    if !own_tls() {
        // Then libc cannot tell the fibers of a carrier apart: they share its thread number.
        return;
    }
    on_fibers(|| {
        let lock = shared(libc::PTHREAD_RWLOCK_INITIALIZER);
        // SAFETY: a lock that stays.
        unsafe {
            assert_eq!(libc::pthread_rwlock_wrlock(lock as _), 0);
            assert_eq!(libc::pthread_rwlock_wrlock(lock as _), libc::EDEADLK);
            assert_eq!(libc::pthread_rwlock_rdlock(lock as _), libc::EDEADLK);
            // Other fibers wait, and get it.
            let others: Vec<_> = (0..20)
                .map(|index| {
                    spawn(move || {
                        let taken = match index % 3 {
                            0 => libc::pthread_rwlock_wrlock(lock as _),
                            _ => libc::pthread_rwlock_rdlock(lock as _),
                        };
                        std::thread::yield_now();
                        (taken, libc::pthread_rwlock_unlock(lock as _))
                    })
                })
                .collect();
            sleep(Duration::from_millis(5));
            assert_eq!(libc::pthread_rwlock_unlock(lock as _), 0);
            others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), (0, 0)));
            drop(Box::from_raw(lock as *mut libc::pthread_rwlock_t));
        }
    });
}

#[test]
fn waiting_for_a_condition_without_its_mutex() {
    if !own_tls() {
        return;
    }
    on_fibers(|| {
        let m = shared(libc::PTHREAD_MUTEX_INITIALIZER);
        // SAFETY: set up before it is used.
        unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_settype(&raw mut attributes, libc::PTHREAD_MUTEX_ERRORCHECK);
            assert_eq!(libc::pthread_mutex_init(m as _, &raw const attributes), 0);
            let mut condition = libc::PTHREAD_COND_INITIALIZER;
            let time = timespec { tv_sec: i64::MAX, tv_nsec: 0 };
            let waited = libc::pthread_cond_timedwait(&raw mut condition, m as _, &raw const time);
            assert_eq!(waited, libc::EPERM);
            // Without waiters it can be signalled and destroyed.
            assert_eq!(libc::pthread_cond_signal(&raw mut condition), 0);
            assert_eq!(libc::pthread_cond_destroy(&raw mut condition), 0);
            assert_eq!(libc::pthread_mutex_lock(m as _), 0);
            assert_eq!(libc::pthread_mutex_lock(m as _), libc::EDEADLK);
            assert_eq!(elsewhere(move || libc::pthread_mutex_unlock(m as _)), libc::EPERM);
            assert_eq!(libc::pthread_mutex_unlock(m as _), 0);
            drop(Box::from_raw(m as *mut libc::pthread_mutex_t));
        }
    });
}
