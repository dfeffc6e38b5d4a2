//! The process's runtime, which the first call to `spawn` starts.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use carefree_ground::lock::{Guard, Lock};

use crate::carrier::carrier::Shared;

/// Not a `OnceLock`, which cannot be cleared in the child of a fork.
static GLOBAL: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
/// Held while the runtime is started. Not a lock of std's, which might stay locked in the child of a fork.
static STARTING: Lock<()> = Lock::new(());

/// The process's runtime, if it was started.
#[inline]
pub(crate) fn started() -> Option<&'static Shared> {
    // SAFETY: null, or the `&'static` that `set` was given.
    unsafe { GLOBAL.load(Ordering::Acquire).as_ref() }
}

/// Keeps other threads from starting it. (Only plain threads start it: a fiber has a runtime.)
pub(crate) fn starting() -> Guard<'static, ()> {
    STARTING.lock()
}

/// Makes `runtime` the process's.
pub(crate) fn set(runtime: &'static Shared) {
    GLOBAL.store(ptr::from_ref(runtime).cast_mut(), Ordering::Release);
}

/// Forgets the process's runtime: in the child of a fork, where the next call starts another.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    GLOBAL.store(ptr::null_mut(), Ordering::Release);
    // SAFETY: there is one thread, and it does not have the lock.
    unsafe { STARTING.renew(()) };
}
