//! The sleep of what watches carriers: while all of them sleep there is nothing to be watched, and the
//! first that wakes up wakes what watches.

use std::ptr;

use carefree_reactor::Idle;

use crate::protocol::sync::{AtomicBool, AtomicPtr, Ordering};

/// Where a thread that watches carriers sleeps.
#[derive(Debug)]
pub struct Lookout {
    /// Whether the thread is about to sleep until a carrier wakes.
    rests: AtomicBool,
    /// Its place, if there is such a thread; never freed.
    bed: AtomicPtr<Idle>,
}

/// For the watchdog, which reports fibers that keep their carriers.
pub static WATCHDOG: Lookout = Lookout::new();
/// For the monitor, which adds carriers.
pub(crate) static MONITOR: Lookout = Lookout::new();

impl Lookout {
    const fn new() -> Lookout {
        Lookout { rests: AtomicBool::new(false), bed: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Says where the thread sleeps.
    pub fn set(&self, bed: &'static Idle) {
        self.bed.store(ptr::from_ref(bed).cast_mut(), Ordering::SeqCst);
    }

    fn renew(&self) {
        self.rests.store(false, Ordering::SeqCst);
        self.bed.store(ptr::null_mut(), Ordering::SeqCst);
    }

    /// To be called by the thread: waits on `bed` until a carrier wakes, unless `all_sleep` says that one is
    /// awake. Returns whether it waited.
    pub fn rest(&self, bed: &Idle, all_sleep: impl FnOnce() -> bool) -> bool {
        self.rests.store(true, Ordering::SeqCst);
        let rests = all_sleep();
        if rests {
            bed.wait(None);
        }
        self.rests.store(false, Ordering::SeqCst);
        rests
    }

    #[inline]
    fn carrier_woke(&self) {
        if self.rests.load(Ordering::SeqCst) && self.rests.swap(false, Ordering::SeqCst) {
            // SAFETY: never freed.
            if let Some(bed) = unsafe { self.bed.load(Ordering::SeqCst).as_ref() } {
                bed.wake();
            }
        }
    }
}

/// Forgets the threads that watch: in the child of a fork.
pub(crate) fn renew() {
    WATCHDOG.renew();
    MONITOR.renew();
}

/// A carrier has got up.
///
/// It has just left the count of those that sleep, and what watches sets `rests` before it looks at that
/// count: both by sequentially consistent operations, so either this sees the flag or the watching
/// thread sees that the carrier is up.
#[inline]
pub(crate) fn carrier_woke() {
    WATCHDOG.carrier_woke();
    MONITOR.carrier_woke();
}
