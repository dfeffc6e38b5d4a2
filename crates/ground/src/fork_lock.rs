//! A lock that a fork takes if it is free before long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::lock::{Guard, Lock};

/// How long a fork waits. The lock is held for microseconds, unless its holder waits for the program's allocator: and
/// that may be locked by the thread that forks.
const LIMIT: Duration = Duration::from_millis(100);

/// A [`Lock`] under which a thread may come to wait for the program's allocator.
///
/// The thread that forks may have locked that allocator, as many have a handler of forks (`pthread_atfork`) do. So a
/// fork does not wait for this lock without end, and the child frees it, whichever thread of the parent's had it. This
/// is sound if threads that have the lock for so long only read the value.
///
/// ```
/// use carefree_ground::fork_lock::ForkLock;
///
/// static LIST: ForkLock<u32> = ForkLock::new(0);
/// LIST.hold();
/// // Here a program forks.
/// // SAFETY: held above.
/// unsafe { LIST.release() };
/// *LIST.lock() += 1;
/// ```
#[derive(Debug)]
pub struct ForkLock<T> {
    lock: Lock<T>,
    /// Whether [`hold`](Self::hold) has the lock.
    held: AtomicBool,
}

impl<T> ForkLock<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        ForkLock { lock: Lock::new(value), held: AtomicBool::new(false) }
    }

    /// Waits until the lock is free, and takes it.
    pub fn lock(&self) -> Guard<'_, T> {
        self.lock.lock()
    }

    /// Before a fork: takes the lock until [`release`](Self::release), or gives up after 100 milliseconds. One thread at
    /// a time is between the two.
    pub fn hold(&self) {
        // Relaxed: the thread that calls `release` is this one, or its copy in the child.
        self.held.store(self.lock.hold_within(LIMIT), Ordering::Relaxed);
    }

    /// Undoes [`hold`](Self::hold): if it gave up, there is nothing to undo.
    ///
    /// # Safety
    /// The caller called `hold`, or its parent process did before a fork.
    pub unsafe fn release(&self) {
        if self.held.swap(false, Ordering::Relaxed) {
            // SAFETY: `hold` has locked it.
            unsafe { self.lock.release() };
        }
    }

    /// Frees the lock in the child of a fork, also if a thread of the parent's had it.
    ///
    /// # Safety
    /// The caller is the child's only thread, and did not have the lock when it forked. A thread that had it was not
    /// changing the value.
    pub unsafe fn reopen(&self) {
        // SAFETY: as this function demands.
        unsafe { self.lock.reopen() };
    }
}

#[cfg(test)]
mod tests {
    use super::ForkLock;

    #[test]
    fn a_fork_has_the_lock_until_it_releases_it() {
        let lock = ForkLock::new(0);
        lock.hold();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock());
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(!other.is_finished(), "the lock was free");
            // SAFETY: held above.
            unsafe { lock.release() };
        });
    }

    #[test]
    fn a_fork_does_not_release_what_another_thread_has() {
        let lock = ForkLock::new(0);
        let mut taken = lock.lock();
        lock.hold();
        // SAFETY: `hold` was called.
        unsafe { lock.release() };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock());
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(!other.is_finished(), "the lock was free");
            *taken = 1;
            drop(taken);
            assert_eq!(other.join().unwrap(), 1);
        });
    }

    #[test]
    fn a_child_can_lock_what_a_thread_of_its_parents_had() {
        let lock = ForkLock::new(0);
        let taken = lock.lock();
        lock.hold();
        // SAFETY: `hold` was called; the lock's holder does nothing with it any more.
        unsafe {
            lock.release();
            lock.reopen();
        }
        std::mem::forget(taken);
        assert_eq!(*lock.lock(), 0);
    }
}
