//! Carriers that the [monitor](super::monitor) adds: from the reserve, or new ones.

use std::ffi::c_void;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use carefree_ground::memory;
use carefree_ground::own::Own;
use carefree_ground::slice::{self, Slice};
use carefree_reactor::clock;

use crate::carrier::carrier::{Carrier, Shared};
use crate::carrier::launch::{launch_bare, set_name};
use crate::fiber::names::KernelName;
use crate::protocol::sync::{AtomicU64, Ordering};

/// No carrier could be started: none is tried before this time.
static REFUSED_UNTIL: AtomicU64 = AtomicU64::new(0);
/// How long to leave it alone then.
const PAUSE: Duration = Duration::from_secs(1);

/// The slices of a processor that the program's threads have.
static USUAL: OnceLock<Slice> = OnceLock::new();

/// Gives the calling thread, the monitor's, short slices of a processor: new carriers have them as well, until they run
/// a fiber.
pub(super) fn hurry() {
    if let Some(usual) = slice::shorten() {
        let _ = USUAL.set(usual);
    }
}

/// Has another carrier run, and counts it. False: none can be had now.
pub(super) fn add(runtime: &Shared) -> bool {
    match recall_or_start(runtime) {
        Ok(added) => {
            runtime.added.fetch_add(u64::from(added), Ordering::Relaxed);
            added
        }
        Err(_) => {
            REFUSED_UNTIL.store(clock::after(PAUSE), Ordering::Relaxed);
            false
        }
    }
}

/// Has one from the reserve run, or a new one. False: there can be no more.
///
/// # Errors
/// When no thread can be started, or there is no memory for it.
fn recall_or_start(runtime: &Shared) -> io::Result<bool> {
    if let Some(recalled) = runtime.sleepers.recall() {
        runtime.wake(Some(recalled));
        return Ok(true);
    }
    if clock::now() < REFUSED_UNTIL.load(Ordering::Relaxed) {
        return Ok(false);
    }
    /// Bytes for another carrier with its thread and reactor, and for something besides: one that is refused
    /// memory ends the process.
    const ENOUGH: usize = 16 << 20;
    if !memory::is_at_hand(ENOUGH) {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    let _adding = runtime.adding.lock();
    // Once it has stopped, no more are started, and those that were are joined. (While it only is to stop,
    // its fibers go on.)
    if runtime.has_stopped() {
        return Ok(false);
    }
    let carriers = &runtime.carriers;
    let is_vacant = |carrier: &&Carrier| carrier.added.load(Ordering::Relaxed) == 0;
    let vacant = carriers.iter().skip(carriers.base()).find(is_vacant);
    let added = vacant.or_else(|| {
        carriers.add(|index| {
            let new = Own::new(Carrier::new(index, true, None));
            new.join_runtime(runtime);
            new
        })
    });
    let Some(carrier) = added else { return Ok(false) };
    runtime.starting.fetch_add(1, Ordering::Relaxed);
    // For the thread, until it owns a part of the runtime. (A part that was made here for it would be the last one, if
    // the thread cannot be started and all others have gone: the runtime would be freed here, in the middle of a visit.)
    runtime.visit();
    let argument = ptr::from_ref(carrier).cast_mut().cast();
    // SAFETY: `begin` is called with a carrier of a runtime that is not freed before the thread has left it.
    match unsafe { launch_bare(begin, argument, runtime.stack_bytes) } {
        Ok(thread) => {
            carrier.added.store(thread.into_raw(), Ordering::Relaxed);
            Ok(true)
        }
        Err(error) => {
            runtime.leave();
            runtime.starting.fetch_sub(1, Ordering::Relaxed);
            Err(error)
        }
    }
}

/// The start function of an added carrier's thread.
extern "C" fn begin(carrier: *mut c_void) -> *mut c_void {
    // SAFETY: `add` has passed a carrier, which is there as long as its runtime; and that is there until this thread
    // leaves, or as long as it owns a part.
    let carrier = unsafe { &*carrier.cast::<Carrier>().cast_const() };
    let visited = carrier.runtime();
    let owned = visited.this.upgrade();
    visited.leave();
    // Without a part of it: it has stopped, and waits in its drop for visitors.
    let Some(runtime) = owned else { return ptr::null_mut() };
    let mut name = KernelName::default();
    let room = name.len() - 1;
    // What does not fit is left out.
    let _ = write!(&mut name[..room], "{}-{}", runtime.name, carrier.index());
    set_name(name);
    runtime.signals.block();
    runtime.sleepers.set_out();
    runtime.starting.fetch_sub(1, Ordering::Relaxed);
    carrier.run(USUAL.get().copied());
    drop(runtime);
    ptr::null_mut()
}
