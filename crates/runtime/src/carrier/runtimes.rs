//! The runtimes of this process that are running.

use std::sync::atomic::Ordering;

use carefree_ground::lock::Lock;

use crate::carrier::carrier::Shared;

/// The first of the runtimes that are running, by its address, or 0; each knows the next. Nothing is
/// allocated under the lock, for reports must come though the program's allocator hangs.
static RUNTIMES: Lock<usize> = Lock::new(0);

pub(crate) fn register(runtime: &Shared) {
    let mut first = RUNTIMES.lock();
    runtime.next.store(0, Ordering::Relaxed);
    let address = std::ptr::from_ref(runtime) as usize;
    match listed(*first).last() {
        Some(last) => last.next.store(address, Ordering::Relaxed),
        None => *first = address,
    }
}

pub(crate) fn unregister(runtime: &Shared) {
    let address = std::ptr::from_ref(runtime) as usize;
    let mut first = RUNTIMES.lock();
    let next = runtime.next.load(Ordering::Relaxed);
    if *first == address {
        *first = next;
        return;
    }
    // Not there in the child of a fork, if it is the parent's.
    let mut others = listed(*first);
    if let Some(before) = others.find(|other| other.next.load(Ordering::Relaxed) == address) {
        before.next.store(next, Ordering::Relaxed);
    }
}

/// The runtimes from the one at `address` on. The caller holds [`RUNTIMES`], and `address` is from
/// there.
fn listed<'a>(address: usize) -> impl Iterator<Item = &'a Shared> {
    // SAFETY: registered while it lives, and unregistering waits for the lock.
    let at = |address: usize| unsafe { (address as *const Shared).as_ref() };
    std::iter::successors(at(address), move |other| at(other.next.load(Ordering::Relaxed)))
}

/// Keeps others from changing the list of runtimes until it is [released](release): see `fork`.
pub(crate) fn hold() {
    RUNTIMES.hold();
}

/// # Safety
/// The caller holds it.
pub(crate) unsafe fn release() {
    // SAFETY: the caller's promise.
    unsafe { RUNTIMES.release() };
}

/// Forgets the runtimes: in the child of a fork.
pub(crate) fn renew() {
    *RUNTIMES.lock() = 0;
}

/// Visits the runtimes of this process that are running. `visit` must not allocate.
pub(crate) fn for_each(visit: impl FnMut(&Shared)) {
    let first = RUNTIMES.lock();
    listed(*first).for_each(visit);
}
