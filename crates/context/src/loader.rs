//! What the dynamic loader tells of the libraries in the process.
//!
//! All of these rooms ask by [`any_object`], for the sake of children: the loader goes through its
//! list under a lock, and in the child of a `fork` that lock stays locked for ever if another thread
//! was going through the list just then. (glibc makes others of its locks new in a child, but not
//! this one.) Carriers ask often, in the child as in the parent. So a fork waits until nobody does:
//! see [`fork`](crate::fork). (A program's other threads may ask as well, for backtraces of panics
//! or exceptions of C++; those are not waited for.)

use std::ffi::{c_int, c_void};

use carefree_ground::lock::Lock;

/// Held while somebody asks.
static ASKING: Lock<()> = Lock::new(());

/// Calls `visit` with the loader's description of each object in the process, the program's own
/// first, until it says true; returns whether it did.
///
/// `visit` must not call this again, nor load or unload a library, and must not panic (the process
/// would be aborted). What the description points to stays as it is during its call.
///
/// ```
/// let mut objects = 0;
/// carefree_context::loader::any_object(|_| {
///     objects += 1;
///     false
/// });
/// assert!(objects > 1, "the program and its libraries");
/// ```
pub fn any_object<F: FnMut(&libc::dl_phdr_info) -> bool>(mut visit: F) -> bool {
    unsafe extern "C" fn call<F: FnMut(&libc::dl_phdr_info) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description is there during the call; the argument is the closure
        // given below, which outlives the call and which nobody else calls.
        let (info, visit) = unsafe { (&*info, &mut *visit.cast::<F>()) };
        c_int::from(visit(info))
    }
    let _asking = ASKING.lock();
    // SAFETY: the callback takes its argument for a closure of this type, which it is, and which
    // outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), (&raw mut visit).cast()) != 0 }
}

/// Waits until nobody asks, and keeps all from asking until [`release`].
pub(crate) fn hold() {
    ASKING.hold();
}

/// # Safety
/// The caller holds it.
pub(crate) unsafe fn release() {
    // SAFETY: the caller's promise.
    unsafe { ASKING.release() };
}
