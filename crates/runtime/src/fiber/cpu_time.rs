//! The processor time that a fiber has used: see `carrier::meter`, which measures it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds, as far as they were measured, and besides those since the fiber was last entered.
#[derive(Debug)]
pub(crate) struct CpuTime {
    /// All of them.
    pub(crate) all: AtomicU64,
    split: [AtomicU64; 2],
}

/// Nanoseconds in which the program ran, and the kernel for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Split {
    /// The program's.
    pub user: u64,
    /// The kernel's.
    pub system: u64,
}

impl CpuTime {
    pub(crate) const fn new() -> CpuTime {
        CpuTime { all: AtomicU64::new(0), split: [const { AtomicU64::new(0) }; 2] }
    }

    /// Sets all.
    pub(crate) fn set(&self, all: u64, split: Split) {
        self.all.store(all, Ordering::Relaxed);
        self.split[0].store(split.user, Ordering::Relaxed);
        self.split[1].store(split.system, Ordering::Relaxed);
    }

    /// Adds to all. (The fiber's carrier alone does so.)
    pub(crate) fn add(&self, all: u64, split: Split) {
        self.set(self.all.load(Ordering::Relaxed) + all, self.split().and(split));
    }

    /// How they are divided; not all of them may be.
    pub(crate) fn split(&self) -> Split {
        let [user, system] = &self.split;
        Split { user: user.load(Ordering::Relaxed), system: system.load(Ordering::Relaxed) }
    }
}

impl Split {
    /// The sums.
    pub(crate) fn and(self, more: Split) -> Split {
        Split { user: self.user + more.user, system: self.system + more.system }
    }

    /// What has been added since `before`.
    pub(crate) fn since(self, before: Split) -> Split {
        Split {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}
