//! `pthread_getattr_np` for fibers: garbage collectors and stack-depth checks ask it where the
//! stack of the thread they run on lies.
//!
//! libc's own would answer from the block, where the fiber's stack is noted, but on the way asks
//! the kernel for the thread's affinity by its id. The kernel does not know a fiber's id. So this
//! definition stands in front of libc's: it answers for fibers and hands over threads.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use super::block::is_fiber_id;
use super::layout::Layout;

type GetAttributes = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;

unsafe extern "C" {
    // Not in the libc crate for this target.
    pub(super) fn pthread_attr_setstack(
        attributes: *mut libc::pthread_attr_t,
        base: *mut c_void,
        size: usize,
    ) -> c_int;
}

/// The layout of fibers' blocks, once there may be any.
static KNOWN: OnceLock<&'static Layout> = OnceLock::new();

fn libcs() -> Option<GetAttributes> {
    static NEXT: OnceLock<usize> = OnceLock::new();
    let next = *NEXT.get_or_init(|| {
        // SAFETY: looks a C string up.
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_getattr_np".as_ptr()) as usize }
    });
    // SAFETY: libc's function has this type; a null pointer is None.
    unsafe { transmute::<usize, Option<GetAttributes>>(next) }
}

/// libc's `pthread_getattr_np`, which also knows fibers.
///
/// # Safety
/// As for libc's: `thread` is a live thread or fiber, `attributes` may be written.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "libc's callers reach it by its symbol")]
pub unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attributes: *mut libc::pthread_attr_t,
) -> c_int {
    if let Some(layout) = KNOWN.get() {
        let low = (thread as usize).wrapping_sub(layout.pthread.start) as *const u8;
        // SAFETY: every pthread_t is the address of a `struct pthread`, in which these lie.
        unsafe {
            if is_fiber_id(low.add(layout.tid).cast::<u32>().read()) {
                let base = low.add(layout.stack_base).cast::<*mut c_void>().read();
                let size = low.add(layout.stack_size).cast::<usize>().read();
                let failed = libc::pthread_attr_init(attributes);
                return if failed == 0 {
                    pthread_attr_setstack(attributes, base, size)
                } else {
                    failed
                };
            }
        }
    }
    match libcs() {
        // SAFETY: the caller's promises.
        Some(function) => unsafe { function(thread, attributes) },
        None => libc::ENOSYS,
    }
}

/// Makes fibers known to [`pthread_getattr_np`].
pub(super) fn know(layout: &'static Layout) {
    KNOWN.get_or_init(|| layout);
}
