//! How the processor time of a hosted thread is divided: see `carrier::meter`.
//!
//! The figures lie below the record of its stack, where only hosted threads have them. In that record, all fibers would
//! have a line more, and what waits in `poll` a second page.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds in which the program ran, and the kernel for it, as far as they were measured.
///
/// The thread itself reads them, and its carrier adds to them when it has left it.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Split([AtomicU64; 2]);

impl Split {
    pub(crate) const fn new() -> Split {
        Split([const { AtomicU64::new(0) }; 2])
    }

    pub(crate) fn set(&self, parts: [u64; 2]) {
        for (place, part) in self.0.iter().zip(parts) {
            place.store(part, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> [u64; 2] {
        [0, 1].map(|part: usize| self.0[part].load(Ordering::Relaxed))
    }

    pub(crate) fn add(&self, more: [u64; 2]) {
        let [user, system] = self.get();
        self.set([user + more[0], system + more[1]]);
    }
}
