//! libc's mutexes that record their owner.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Fiber, Slot, bodies, has_robust_lists, isolated, run_all, run_on, yield_now};

struct Mutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

// SAFETY: a mutex is for use by many.
unsafe impl Send for Mutex {}
// SAFETY: libc's mutexes may be used by several threads at once.
unsafe impl Sync for Mutex {}

impl Mutex {
    fn new(kind: i32, robust: bool) -> Arc<Mutex> {
        // SAFETY: attributes and mutex are initialised before use; the box does not move.
        unsafe {
            let mutex = Mutex(Box::new(UnsafeCell::new(std::mem::zeroed())));
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            libc::pthread_mutexattr_settype(&mut attributes, kind);
            if robust {
                libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            }
            assert_eq!(libc::pthread_mutex_init(mutex.0.get(), &attributes), 0);
            Arc::new(mutex)
        }
    }

    fn lock(&self) -> i32 {
        // SAFETY: initialised.
        unsafe { libc::pthread_mutex_lock(self.0.get()) }
    }

    fn try_lock(&self) -> i32 {
        // SAFETY: initialised.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) }
    }

    fn unlock(&self) -> i32 {
        // SAFETY: initialised.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) }
    }

    /// Waits by yielding, so that other fibers run meanwhile.
    fn lock_yielding(&self) -> i32 {
        loop {
            match self.try_lock() {
                libc::EBUSY => yield_now(),
                answer => return answer,
            }
        }
    }
}

#[test]
fn a_recursive_mutex_distinguishes_fibers_of_one_carrier() {
    let mutex = Mutex::new(libc::PTHREAD_MUTEX_RECURSIVE, false);
    let (one, two) = (mutex.clone(), mutex.clone());
    let mut owner = Fiber::new(Slot::new(), move || {
        assert_eq!(one.lock(), 0);
        assert_eq!(one.lock(), 0);
        yield_now();
        assert_eq!(one.unlock(), 0);
        yield_now();
        assert_eq!(one.unlock(), 0);
    });
    let mut other = Fiber::new(Slot::new(), move || {
        assert_eq!(two.try_lock(), libc::EBUSY);
        assert_eq!(two.unlock(), libc::EPERM);
        yield_now();
        assert_eq!(two.try_lock(), libc::EBUSY);
        yield_now();
        assert_eq!(two.try_lock(), 0);
        assert_eq!(two.unlock(), 0);
    });
    for last in [false, false, true] {
        assert_eq!(owner.enter(), last);
        assert_eq!(mutex.try_lock(), if last { 0 } else { libc::EBUSY });
        if last {
            assert_eq!(mutex.unlock(), 0);
        }
        assert_eq!(other.enter(), last);
    }
}

#[test]
fn an_error_checking_mutex_knows_its_owner_after_moves() {
    let mutex = Mutex::new(libc::PTHREAD_MUTEX_ERRORCHECK, false);
    let inside = Arc::new(AtomicUsize::new(0));
    run_all(
        3,
        30,
        bodies(60, |_| {
            let (mutex, inside) = (mutex.clone(), inside.clone());
            move || {
                for _ in 0..20 {
                    assert_eq!(mutex.lock_yielding(), 0);
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two hold it");
                    yield_now();
                    assert_eq!(mutex.lock(), libc::EDEADLK);
                    inside.fetch_sub(1, Ordering::Relaxed);
                    assert_eq!(mutex.unlock(), 0);
                    assert_eq!(mutex.unlock(), libc::EPERM);
                }
            }
        }),
    );
}

#[test]
fn a_robust_mutex_tells_that_its_owner_ended() {
    // In a process of its own, since it would wait for ever if this failed.
    isolated("mutexes::a_robust_mutex_tells_that_its_owner_ended", &[], robust_mutexes);
}

fn robust_mutexes() {
    if !has_robust_lists() {
        return;
    }
    let first = Mutex::new(libc::PTHREAD_MUTEX_NORMAL, true);
    let second = Mutex::new(libc::PTHREAD_MUTEX_NORMAL, true);
    let mut slot = Slot::new();
    for _ in 0..3 {
        let (one, two) = (first.clone(), second.clone());
        slot = run_on(slot, move || {
            assert_eq!(one.lock(), 0);
            assert_eq!(two.lock(), 0);
        });
        for mutex in [&first, &second] {
            assert_eq!(mutex.lock(), libc::EOWNERDEAD);
            // SAFETY: held by this thread.
            assert_eq!(unsafe { libc::pthread_mutex_consistent(mutex.0.get()) }, 0);
            assert_eq!(mutex.unlock(), 0);
        }
    }
    // A waiter is woken.
    let (one, two) = (first.clone(), first.clone());
    let mut owner = Fiber::new(slot, move || {
        assert_eq!(one.lock(), 0);
        yield_now();
    });
    assert!(!owner.enter());
    let waiter = std::thread::spawn(move || two.lock());
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(owner.enter());
    assert_eq!(waiter.join().unwrap(), libc::EOWNERDEAD);
    // The next fiber's list does not contain mutexes that were freed.
    drop((first, second));
    let third = Mutex::new(libc::PTHREAD_MUTEX_NORMAL, true);
    run_on(owner.into_slot(), move || {
        assert_eq!(third.lock(), 0);
        assert_eq!(third.unlock(), 0);
    });
}

#[test]
fn ids_are_unique() {
    let slots: Vec<Slot> = (0..200).map(|_| Slot::new()).collect();
    let mut ids: Vec<u32> = slots.iter().map(|slot| slot.block().id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 200);
    // Above the kernel's limit for threads, and below the bits that the futex protocol reserves.
    assert!(ids[0] >= 1 << 22 && ids[199] < 1 << 30);
}
