//! The watchdog's rest: while all carriers sleep there is nothing to watch, and the first carrier to wake
//! wakes the watchdog. (The watchdog itself is in the crate `insight`.)

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use carefree_reactor::Idle;

/// Whether the watchdog rests, or is about to.
static RESTS: AtomicBool = AtomicBool::new(false);
/// Where the watchdog sleeps; null if there is none. Never freed.
static BED: AtomicPtr<Idle> = AtomicPtr::new(ptr::null_mut());

/// Sets where the watchdog sleeps.
pub fn set(bed: &'static Idle) {
    BED.store(ptr::from_ref(bed).cast_mut(), Ordering::SeqCst);
}

/// Forgets the watchdog: in the child of a fork.
pub(crate) fn renew() {
    RESTS.store(false, Ordering::SeqCst);
    BED.store(ptr::null_mut(), Ordering::SeqCst);
}

/// Lets the calling watchdog wait on `bed` until a carrier wakes, if `all_sleep` says that all carriers
/// sleep.
pub fn rest(bed: &Idle, all_sleep: impl FnOnce() -> bool) {
    RESTS.store(true, Ordering::SeqCst);
    if all_sleep() {
        bed.wait(None);
    }
    RESTS.store(false, Ordering::SeqCst);
}

/// To be called by a carrier that has just woken, and cleared its bit among the sleepers'.
///
/// The watchdog sets [`RESTS`] before it looks at those bits. All these are sequentially consistent
/// operations, so either this sees the flag, or the watchdog sees that the carrier is awake.
#[inline]
pub(crate) fn carrier_woke() {
    if RESTS.load(Ordering::SeqCst) && RESTS.swap(false, Ordering::SeqCst) {
        // SAFETY: `set` has put it there, a reference to what is never freed.
        if let Some(bed) = unsafe { BED.load(Ordering::SeqCst).as_ref() } {
            bed.wake();
        }
    }
}
