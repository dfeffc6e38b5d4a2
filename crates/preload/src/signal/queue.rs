//! The signals that have come for a thread and are not handled yet.

use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree_ground::lock::Lock;
use carefree_runtime::wait::without_parking;
use libc::siginfo_t;

use crate::signal::set::{bit, lowest};

/// Signals from here on are queued as often as they are sent; those before only once.
const FIRST_QUEUED: c_int = 32;

/// One that has come.
struct Came(siginfo_t);

// SAFETY: plain data.
unsafe impl Send for Came {}

/// Signals that have come.
pub(crate) struct Queue {
    /// Those of which there is one at least. Changed under the lock.
    set: AtomicU64,
    came: Lock<Vec<Came>>,
}

impl Queue {
    pub(crate) const fn new() -> Queue {
        Queue { set: AtomicU64::new(0), came: Lock::new(Vec::new()) }
    }

    /// Those of which there is one at least.
    #[inline]
    pub(crate) fn set(&self) -> u64 {
        self.set.load(Ordering::SeqCst)
    }

    /// Adds a signal.
    pub(crate) fn push(&self, info: siginfo_t) {
        // The list grows under its lock: the caller must not park in the allocator meanwhile.
        without_parking(|| {
            let mut came = self.came.lock();
            let own = bit(info.si_signo);
            if info.si_signo < FIRST_QUEUED && self.set.load(Ordering::Relaxed) & own != 0 {
                return;
            }
            came.push(Came(info));
            self.set.fetch_or(own, Ordering::SeqCst);
        });
    }

    /// Takes the first signal of a set, the lowest first.
    pub(crate) fn take(&self, of: u64) -> Option<siginfo_t> {
        without_parking(|| {
            let mut came = self.came.lock();
            let signal = lowest(self.set.load(Ordering::Relaxed) & of)?;
            let index = came.iter().position(|one| one.0.si_signo == signal)?;
            let Came(info) = came.remove(index);
            if came.iter().all(|one| one.0.si_signo != signal) {
                self.set.fetch_and(!bit(signal), Ordering::SeqCst);
            }
            if came.is_empty() {
                *came = Vec::new();
            }
            Some(info)
        })
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Queue").field("set", &self.set).finish_non_exhaustive()
    }
}
