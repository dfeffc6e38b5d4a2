//! A lock that is neither std's nor libc's: a thread that waits for it waits in the kernel, and not,
//! as those do once Carefree interposes their calls, by parking the fiber that it runs. Fibers hold
//! it for a call or two and never switch meanwhile.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep on it.
const WANTED: u32 = 2;

/// The three-state mutex of Drepper's "Futexes Are Tricky".
pub(super) struct Lock(Futex);

pub(super) struct Guard<'l>(&'l Lock);

impl Lock {
    pub(super) const fn new() -> Self {
        Lock(Futex::new(FREE))
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        let word = self.0.word();
        if word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            // Whoever has slept cannot know whether others still do, so takes it as wanted.
            while word.swap(WANTED, Acquire) != FREE {
                self.0.wait(WANTED, None);
            }
        }
        Guard(self)
    }
}

impl Lock {
    /// In the child of a `fork`: frees it if a thread held it that the child does not have.
    ///
    /// # Safety
    /// There is one thread, and it does not hold the lock.
    pub(super) unsafe fn reset(&self) {
        self.0.word().store(FREE, Relaxed);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.0.0.word().swap(FREE, Release) == WANTED {
            self.0.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Shared(Lock, UnsafeCell<u32>);

    // SAFETY: the cell is used under the lock.
    unsafe impl Sync for Shared {}

    #[test]
    fn it_is_free_after_a_reset() {
        let lock = Lock::new();
        std::mem::forget(lock.lock());
        // SAFETY: the one who held it is gone, and nobody else knows it.
        unsafe { lock.reset() };
        drop(lock.lock());
    }

    #[test]
    fn it_excludes() {
        let shared = Shared(Lock::new(), UnsafeCell::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let shared = &shared;
                    for turn in 0..20_000 {
                        let _guard = shared.0.lock();
                        // SAFETY: the lock is held.
                        let value = unsafe { &mut *shared.1.get() };
                        let before = *value;
                        if turn % 1_000 == 0 {
                            std::thread::yield_now();
                        }
                        *value = before + 1;
                    }
                });
            }
        });
        assert_eq!(shared.1.into_inner(), 80_000);
    }
}
