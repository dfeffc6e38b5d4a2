//! Hands on what the kernel has done for fibers whose carriers are kept, when the monitor asks for it.
//!
//! A driver may ask the program's allocator for memory, and wait: a fiber that is queued behind those that keep
//! the carriers may have that one's lock. The [monitor](super::monitor), which adds the carrier on which that
//! fiber goes on, must not wait for it. So this is done by a thread of its own, which is started when it is
//! needed first, and sleeps while it is not.

use std::ffi::c_void;
use std::ptr;

use carefree_ground::own::Own;
use carefree_reactor::Idle;

use crate::carrier::carrier::{Carrier, Shared};
use crate::carrier::launch::{launch_bare, set_name};
use crate::carrier::runtimes::Visits;
use crate::fiber::names;
use crate::protocol::sync::{AtomicBool, AtomicPtr, Ordering};

/// Where the thread sleeps, if there is one; never freed.
static BED: AtomicPtr<Idle> = AtomicPtr::new(ptr::null_mut());
/// Where it is to sleep, from a start that failed.
static VACANT: AtomicPtr<Idle> = AtomicPtr::new(ptr::null_mut());
/// Its thread runs.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Its stack.
const BYTES: usize = 2 << 20;

/// Forgets the thread: in the child of a fork.
pub(crate) fn renew() {
    BED.store(ptr::null_mut(), Ordering::SeqCst);
    RUNS.store(false, Ordering::SeqCst);
}

/// Threads of this kind.
pub(crate) fn threads() -> usize {
    usize::from(RUNS.load(Ordering::SeqCst))
}

/// Has the thread look at kept carriers. For the monitor alone, whose mask of signals it gets.
pub(crate) fn ask() {
    // SAFETY: never freed.
    if let Some(bed) = unsafe { BED.load(Ordering::SeqCst).as_ref() } {
        return bed.wake();
    }
    let bed = match VACANT.swap(ptr::null_mut(), Ordering::SeqCst) {
        bed if bed.is_null() => Own::new(Idle::new()).into_raw(),
        bed => bed,
    };
    // The first round is to be at once.
    // SAFETY: never freed.
    unsafe { (*bed).wake() };
    // SAFETY: `watch` may be called with a bed in which no other thread sleeps.
    match unsafe { launch_bare(watch, bed.cast(), BYTES) } {
        // It is never joined.
        Ok(thread) => {
            drop(thread);
            BED.store(bed, Ordering::SeqCst);
        }
        // The next look asks again.
        Err(_) => VACANT.store(bed, Ordering::SeqCst),
    }
}

/// The thread.
extern "C" fn watch(bed: *mut c_void) -> *mut c_void {
    // SAFETY: `ask` has passed an `Idle`, which is never freed.
    let bed = unsafe { &*bed.cast::<Idle>().cast_const() };
    set_name(names::cut("carefree-res"));
    RUNS.store(true, Ordering::SeqCst);
    let mut visits = Visits::new();
    loop {
        bed.wait(None);
        visits.for_each(|runtime| needing(runtime).for_each(Carrier::rescue));
    }
}

/// Kept carriers with operations under way.
pub(crate) fn needing(runtime: &Shared) -> impl Iterator<Item = &Carrier> {
    let needs = |carrier: &&Carrier| {
        carrier.looks.is_kept.load(Ordering::Relaxed) && carrier.has_operations()
    };
    runtime.carriers.iter().filter(needs)
}
