//! A lock whose waiters never park a fiber.
//!
//! Not `std::sync::Mutex`, because its futex call is interposed so that fibers park there: a fiber
//! that waits for a stack to spawn another would enter the scheduler from within the scheduler's
//! own code. This lock's waiters block their kernel thread, for the few dozen nanoseconds of a
//! critical section. Holders run no foreign code and make no system calls on common paths (some do
//! to map memory, or to wake a sleeping thread).

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{futex, nap};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a waiter may be asleep.
const CONTENDED: u32 = 2;

/// How often a waiter retries before it sleeps: about as long as a critical section takes.
const SPINS: u32 = 100;

/// A value that one thread at a time can access.
///
/// A waiter blocks its kernel thread, and with it every fiber there: hold the lock for a few
/// instructions, never across foreign code, a switch, or a system call that waits. A panic while
/// holding it unlocks it, without poisoning.
///
/// ```
/// use carefree_ground::lock::Lock;
///
/// static COUNT: Lock<u32> = Lock::new(0);
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.lock(), 1);
/// ```
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives access to its value to one thread at a time, so sharing it only moves the
// access between threads.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Lock::new(T::default())
    }
}

impl<T> Lock<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Lock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Guard { lock: self, access: PhantomData }
    }

    /// Takes the lock until [`release`](Self::release).
    pub fn hold(&self) {
        std::mem::forget(self.lock());
    }

    /// [`hold`](Self::hold) that gives up when the lock has not been free for so long; returns whether it has it.
    pub fn hold_within(&self, limit: Duration) -> bool {
        const NAP: Duration = Duration::from_micros(50);
        let take = || {
            self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let naps = limit.as_nanos() / NAP.as_nanos();
        take()
            || (0..naps).any(|_| {
                nap::sleep(NAP);
                take()
            })
    }

    /// Undoes [`hold`](Self::hold).
    ///
    /// # Safety
    /// The caller called `hold`, or its parent process did before a fork.
    pub unsafe fn release(&self) {
        drop(Guard { lock: self, access: PhantomData });
    }

    /// Reinitialises the lock, whatever its state, without dropping the former value: in the child
    /// of a fork, where the thread that held it does not exist, and may have been changing the
    /// value.
    ///
    /// # Safety
    /// No other thread can access the lock, and its value is not in use.
    pub unsafe fn renew(&self, value: T) {
        // SAFETY: there is no other access to the value. The former one is not read.
        unsafe { self.value.get().write(value) };
        self.state.store(FREE, Ordering::Release);
    }

    /// Frees the lock, whatever its state: in the child of a fork, where no thread has it.
    ///
    /// # Safety
    /// No other thread can access the lock, and the value is as it should be between two changes.
    pub unsafe fn reopen(&self) {
        self.state.store(FREE, Ordering::Release);
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == FREE
                && self
                    .state
                    .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
        // A waiter that gets the lock here must leave CONTENDED, as others may sleep too. Unlocking
        // swaps in FREE. So a CONTENDED written by a waiter is either seen by the unlocking thread,
        // which then wakes one waiter, or has replaced FREE, and that waiter has the lock.
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            futex::wait(&self.state, CONTENDED);
        }
    }
}

/// Access to a [`Lock`]'s value until it is dropped.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// A guard may be sent and shared as a mutable reference may.
    access: PhantomData<&'a mut T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard of its lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard of its lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let state = &raw const self.lock.state;
        if self.lock.state.swap(FREE, Ordering::Release) == CONTENDED {
            // The next owner may be freeing the lock already, so only its address is used.
            futex::wake(state);
        }
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.state.load(Ordering::Relaxed) != FREE;
        out.debug_struct("Lock").field("held", &held).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Lock;

    #[test]
    fn one_at_a_time_under_contention() {
        let lock = Lock::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut pair = lock.lock();
                        pair.0 += 1;
                        // Lets other threads find the lock held, and sleep on it.
                        if pair.0 % 512 == 0 {
                            std::thread::yield_now();
                        }
                        pair.1 += 1;
                        assert_eq!(pair.0, pair.1, "two threads held the lock at once");
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (160_000, 160_000));
    }

    #[test]
    fn a_lock_that_stays_taken_is_not_waited_for_without_end() {
        let lock = Lock::new(());
        let taken = lock.lock();
        assert!(!lock.hold_within(Duration::from_millis(2)));
        drop(taken);
        assert!(lock.hold_within(Duration::ZERO));
        // SAFETY: held above.
        unsafe { lock.release() };
        let freed_later = std::thread::scope(|scope| {
            let taken = lock.lock();
            let waits = scope.spawn(|| lock.hold_within(Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(2));
            drop(taken);
            waits.join().unwrap()
        });
        assert!(freed_later);
    }
}
