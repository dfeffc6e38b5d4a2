//! The futex as loom sees it: the kernel's promise and nothing beyond it.
//!
//! A lock stands for the kernel's hash bucket, a condition variable for its queue. Comparing the
//! word and lying down happen under the lock, and so does waking; changing the word does not.
//! Loom's condition variable knows no timeouts, so a deadline is modelled by a thread that calls
//! [`Futex::interrupt`] whenever it likes, which stands for signals as well.

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

    /// The deadline passes, or a signal comes: the sleeper gets up though nobody woke it.
    pub(crate) fn interrupt(&self) {
        self.wake();
    }
}
