//! Fibers that have yet to start, and have no stack until then.
//!
//! In a crowd, a fiber gets its stack when it is first entered, from the carrier that enters it. So of a crowd, only those
//! that have started take memory and room in the caches, and a fiber that is stolen before it starts brings
//! nothing but its header. A stack was [promised](crate::fiber::stock::Stock::promise) when it was spawned, so
//! that it is refused to the spawning caller, and not here.
//!
//! Until then the closure lies where the result will, or, if it is larger, a box of it. The header's `key`, which
//! says later what the fiber waits for, is the address of the function that takes it from there; and its `carrier`
//! is [`UNSTARTED`].

#[cfg(not(loom))]
use std::mem;
use std::ptr;

#[cfg(not(loom))]
use crate::fiber::furnish::Furnished;
use crate::fiber::glimpse::Opaque;
use crate::fiber::header::FiberRef;
#[cfg(not(loom))]
use crate::protocol::sync::Ordering;

/// The function that writes the closure and the first frame to the stack that the fiber has by then.
#[cfg(not(loom))]
type Place = unsafe fn(FiberRef);

static UNSTARTED: u8 = 0;

#[inline(always)]
fn mark() -> *const Opaque {
    (&raw const UNSTARTED).cast()
}

/// Makes `fiber` one that has yet to start, for tests of queues.
#[cfg(all(test, not(loom), not(feature = "rejected-deque")))]
pub(crate) fn mark_unstarted(fiber: FiberRef) {
    fiber.carrier.set(mark());
}

/// Undoes [`mark_unstarted`].
#[cfg(all(test, not(loom), not(feature = "rejected-deque")))]
pub(crate) fn mark_started(fiber: FiberRef) {
    fiber.carrier.set(ptr::null());
}

/// Whether a closure fits into the header.
#[cfg(not(loom))]
pub(crate) const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<[usize; 2]>() && align_of::<F>() <= align_of::<usize>()
}

/// Whether `fiber` has no stack yet.
#[inline(always)]
pub(crate) fn is_unstarted(fiber: FiberRef) -> bool {
    ptr::eq(fiber.carrier.get(), mark())
}

/// Leaves a closure for [`start`].
///
/// # Panics
/// If it does not [fit](fits).
///
/// # Safety
/// The fiber is new and known to the caller alone. `place` [takes](take) a closure of this type.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) unsafe fn leave<F>(fiber: FiberRef, f: F, place: Place) {
    assert!(fits::<F>());
    fiber.stack.store(ptr::null_mut(), Ordering::Relaxed);
    fiber.carrier.set(mark());
    fiber.key.store((place as *const ()).expose_provenance(), Ordering::Relaxed);
    // SAFETY: nothing else accesses the result of a new fiber, which has room for the closure.
    unsafe { fiber.result.get().cast::<F>().write(f) };
}

/// Takes the closure of a fiber that starts.
///
/// # Safety
/// To be called once, by the function that was given to [`leave`] for this type.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) unsafe fn take<F>(fiber: FiberRef) -> F {
    // SAFETY: `leave` has written it there, and as this function demands nothing has read it.
    unsafe { fiber.result.get().cast::<F>().read() }
}

/// Gives the fiber its stack and first frame.
///
/// # Safety
/// The fiber [is unstarted](is_unstarted), and in no queue. The caller assigns it to a carrier, which enters it.
#[cfg(not(loom))]
#[inline]
pub(crate) unsafe fn start(fiber: FiberRef, stack: Furnished) {
    // Released for `pin`, which may wait for it.
    fiber.stack.store(stack.into_raw(), Ordering::Release);
    let place = fiber.key.load(Ordering::Relaxed);
    fiber.key.store(0, Ordering::Relaxed);
    // SAFETY: `leave` has stored the function, whose closure it has left, and which is called this once.
    unsafe { mem::transmute::<*const (), Place>(ptr::with_exposed_provenance(place))(fiber) };
}
