//! The futex for loom, with the kernel's guarantees and no others.
//!
//! A lock models the kernel's hash bucket, a condition variable its queue. Comparing the
//! word and going to sleep happen under the lock, and so does waking; changing the word does not.
//! Loom's condition variable has no timeouts, so deadlines and signals are modelled by a thread that
//! calls [`Futex::interrupt`] at any time.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct Futex {
    word: AtomicU32,
    bucket: Mutex<()>,
    queue: Condvar,
}

impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        Futex { word: AtomicU32::new(value), bucket: Mutex::new(()), queue: Condvar::new() }
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    pub(crate) fn wait(&self, expected: u32, _deadline: Option<u64>) {
        let bucket = self.bucket.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == expected {
            drop(self.queue.wait(bucket).unwrap());
        }
    }

    pub(crate) fn wake(&self) {
        let _bucket = self.bucket.lock().unwrap();
        self.queue.notify_one();
    }

    /// Ends the sleep without a wake-up, as a deadline or signal does.
    pub(crate) fn interrupt(&self) {
        self.wake();
    }
}
