//! The watchdog's sleep: while all carriers sleep there is nothing to be watched, and the first that
//! wakes up wakes the watchdog.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use carefree_reactor::Idle;

/// Whether the watchdog is about to sleep until a carrier wakes.
static RESTS: AtomicBool = AtomicBool::new(false);
/// Where the watchdog sleeps, if there is one; never freed.
static BED: AtomicPtr<Idle> = AtomicPtr::new(ptr::null_mut());

/// Says where the watchdog sleeps.
pub fn set(bed: &'static Idle) {
    BED.store(ptr::from_ref(bed).cast_mut(), Ordering::SeqCst);
}

/// Forgets the watchdog: in the child of a fork.
pub(crate) fn renew() {
    RESTS.store(false, Ordering::SeqCst);
    BED.store(ptr::null_mut(), Ordering::SeqCst);
}

/// The watchdog waits on `bed` if `all_sleep` says so of the carriers, until one of them wakes.
pub fn rest(bed: &Idle, all_sleep: impl FnOnce() -> bool) {
    RESTS.store(true, Ordering::SeqCst);
    if all_sleep() {
        bed.wait(None);
    }
    RESTS.store(false, Ordering::SeqCst);
}

/// A carrier has got up.
///
/// It has just taken its bit out of those of the sleepers, and the watchdog sets [`RESTS`] before it
/// looks at those bits: both by sequentially consistent operations, so either this sees the flag or
/// the watchdog sees that the carrier is up.
#[inline]
pub(crate) fn carrier_woke() {
    if RESTS.load(Ordering::SeqCst) && RESTS.swap(false, Ordering::SeqCst) {
        // SAFETY: never freed.
        if let Some(bed) = unsafe { BED.load(Ordering::SeqCst).as_ref() } {
            bed.wake();
        }
    }
}
