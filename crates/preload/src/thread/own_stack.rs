//! Threads on stacks that the program provides itself: they are the kernel's.
//!
//! A program is not told when a detached thread has left its stack. Some give the stack to another thread
//! when the first has said that it is about to end, and rely on threads' being slow to start. A fiber
//! creates threads in a fraction of that time. So no thread is created on a stack before the kernel has
//! ended those that were created there before.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree_context::tls;
use carefree_ground::{kernel, nap};
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Reason, clock, hosted};
use libc::pthread_attr_t;

unsafe extern "C" {
    fn pthread_attr_getstack(a: *const pthread_attr_t, p: *mut *mut c_void, n: *mut usize)
    -> c_int;
}

/// How many threads are remembered. A thread that is created on the same stack takes the place of the last one.
const KEPT: usize = 64;
/// Between two looks at a thread that ends.
const LOOK: Duration = Duration::from_micros(20);
/// After which a thread is created all the same, as it would be natively.
const PATIENCE: Duration = Duration::from_secs(1);

/// The `pthread_t` of each: where on its stack libc keeps what it knows of the thread. 0 is for none. (Without a
/// lock: the child of a fork has them, too.)
static RESIDENTS: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);

/// Where the stack lies that attributes name, if they do.
///
/// # Safety
/// Null, or attributes that were initialised.
pub(super) unsafe fn named_by(attributes: *const pthread_attr_t) -> Option<Range<usize>> {
    if attributes.is_null() {
        return None;
    }
    let (mut base, mut bytes) = (std::ptr::null_mut(), 0usize);
    // SAFETY: as this function demands; there is room for the answers.
    unsafe { pthread_attr_getstack(attributes, &raw mut base, &raw mut bytes) };
    let base = base as usize;
    // Without a stack of its own, libc computes its base from an end of 0.
    let end = base.wrapping_add(bytes);
    (base != 0 && end != 0).then_some(base..end)
}

/// Notes the `pthread_t` of a thread that was created on a stack of the program's: in an empty place if there is
/// one, so that a stack that is used often does not push out the others.
pub(super) fn remember(resident: usize) {
    let empty = |place: &&AtomicUsize| {
        place.compare_exchange(0, resident, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    if RESIDENTS.iter().find(empty).is_none() {
        let place = NEXT_PLACE.fetch_add(1, Ordering::Relaxed) % KEPT;
        RESIDENTS[place].store(resident, Ordering::Relaxed);
    }
}

/// Waits until the kernel has ended the threads that were created on `stack`, which is mapped.
pub(super) fn await_departures(stack: &Range<usize>) {
    // Known from when there are fibers. Before, threads are created as natively.
    let Some(layout) = tls::known() else { return };
    for place in &RESIDENTS {
        let resident = place.load(Ordering::Relaxed);
        // Those of other stacks stay.
        if !stack.contains(&resident) {
            continue;
        }
        if place.compare_exchange(resident, 0, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            continue;
        }
        let control_block = std::ptr::with_exposed_provenance_mut(resident);
        let deadline = clock::now().saturating_add(PATIENCE.as_nanos() as u64);
        // The kernel clears the thread's number there when it has ended the thread. If the program has used
        // the memory since, it holds anything, and hardly ever the number of a thread.
        // SAFETY: the control block lies on the stack, which the program has given for a thread to run on.
        while is_thread(unsafe { layout.id_of(control_block) }) && clock::now() < deadline {
            if hosted::current().is_none() {
                nap::sleep(LOOK);
                continue;
            }
            let next = clock::now().saturating_add(LOOK.as_nanos() as u64);
            let until = Until { deadline: next, cancellable: false };
            wait::park(std::ptr::from_ref(place) as usize, || true, Reason::Thread, until);
        }
    }
}

/// Whether the kernel has a thread of this number in this process.
fn is_thread(number: u32) -> bool {
    if number == 0 {
        return false;
    }
    let arguments = [std::process::id() as usize, number as usize, 0, 0, 0, 0];
    // SAFETY: accesses no memory; signal 0 is none.
    unsafe { kernel::call(libc::SYS_tgkill, arguments) }.is_ok()
}
