//! What a thread is told of its attributes, besides its stack.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use libc::{pthread_attr_t, pthread_t};

use crate::thread::affinity;
use crate::thread::record::{self, DETACHED};

unsafe extern "C" {
    fn pthread_attr_setdetachstate(attributes: *mut pthread_attr_t, detached: c_int) -> c_int;
    fn pthread_attr_setaffinity_np(
        attributes: *mut pthread_attr_t,
        bytes: usize,
        set: *const c_void,
    ) -> c_int;
}

/// Completes what `pthread_getattr_np` tells of a hosted thread: its guard, its processors, and whether it is
/// detached. Other fibers' attributes stay as they are. Returns an `errno`, or 0.
///
/// # Safety
/// The `pthread_t` of a fiber, and attributes that were initialised.
pub(crate) unsafe fn complete(thread: pthread_t, attributes: *mut pthread_attr_t) -> c_int {
    // SAFETY: as this function demands.
    let hosted = unsafe { record::find(thread) }.filter(|(thread, _)| !thread.is_main());
    let Some((_, record)) = hosted else { return 0 };
    let is_detached = record.state.load(Ordering::Relaxed) & DETACHED != 0;
    let mut set = [0u64; 128];
    // SAFETY: as this function demands, and there is room for a set.
    unsafe {
        let told = libc::pthread_attr_setguardsize(attributes, record.guard);
        if is_detached {
            pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        }
        if told != 0 || affinity::tell_all(record, size_of_val(&set), set.as_mut_ptr().cast()) != 0
        {
            return told;
        }
        pthread_attr_setaffinity_np(attributes, size_of_val(&set), set.as_ptr().cast())
    }
}
