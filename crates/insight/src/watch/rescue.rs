//! Help for carriers that a fiber keeps busy: their fibers whose operations are done are made ready, so that
//! other carriers run them.
//!
//! That allocates, and waits while the carrier is in its driver. If the program hangs in its allocator, so
//! does the helping thread. So it is not the watchdog, which finds the carriers that need help, and goes on
//! reporting.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use carefree_reactor::{Idle, clock};
use carefree_runtime::inspect::{CarrierGlance, Visits};

use super::thread::start_thread;

/// Where the thread sleeps; null without it. Never freed.
static BED: AtomicPtr<Idle> = AtomicPtr::new(ptr::null_mut());

/// Starts the thread, which helps every half of `threshold` nanoseconds while a carrier needs it.
pub(super) fn start(threshold: u64) {
    let bed: &'static Idle = Box::leak(Box::new(Idle::new()));
    let helps = move || help(bed, Duration::from_nanos(threshold / 2));
    if start_thread("carefree-rescue", helps) {
        BED.store(ptr::from_ref(bed).cast_mut(), Ordering::Release);
    }
}

/// Forgets the thread: in the child of a fork.
pub(super) fn renew() {
    BED.store(ptr::null_mut(), Ordering::Release);
}

/// Has `carrier` helped until it makes another switch after its `switches`th.
pub(super) fn ask(carrier: CarrierGlance<'_>, switches: u64) {
    carrier.mark_held_up(switches);
    // SAFETY: never freed.
    match unsafe { BED.load(Ordering::Acquire).as_ref() } {
        Some(bed) => {
            bed.wake();
        }
        None => carrier.rescue(),
    }
}

fn help(bed: &Idle, pause: Duration) {
    let mut visits = Visits::new();
    loop {
        let mut any = false;
        visits.for_each_carrier(|carrier| {
            if carrier.is_held_up() {
                any = true;
                carrier.rescue();
            }
        });
        bed.wait(any.then(|| clock::after(pause)));
    }
}
