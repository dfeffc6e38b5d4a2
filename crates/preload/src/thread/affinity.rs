//! Processors of threads.
//!
//! A fiber runs where a carrier takes it. Affinity to processors that the process may run on is accepted, and has no effect.

use std::ffi::{c_int, c_void};

use libc::pthread_t;

use crate::signal;
use crate::thread::identity::find_number;
use crate::thread::record;

/// Whether `number` is 0 and the caller is a hosted thread, or that of a hosted thread. (A child of `vfork` is none.)
pub(super) fn is_hosted(number: c_int) -> bool {
    match number {
        _ if signal::is_child() => false,
        0 => record::current().is_some(),
        number => find_number(number).is_some_and(|thread| !thread.is_main()),
    }
}

/// The processors that the process may run on.
///
/// # Safety
/// `bytes` may be written at `set`.
pub(super) unsafe fn processors(bytes: usize, set: *mut c_void) -> c_int {
    // Of the first kernel thread, which has those that the process was started with.
    // SAFETY: as this function demands.
    unsafe { libc::sched_getaffinity(libc::getpid(), bytes, set.cast()) }
}

/// What the kernel answers where a thread is to run on the processors of a set: it must have one that the process may run
/// on.
///
/// # Safety
/// There are `bytes` at `set`.
unsafe fn answer_to(bytes: usize, set: *const c_void) -> c_int {
    /// Bytes for more processors than kernels have.
    const ROOM: usize = 1024;
    if set.is_null() {
        return libc::EFAULT;
    }
    // (The kernel writes whole words.)
    let mut own = [0_u64; ROOM / 8];
    // SAFETY: there is so much room.
    if unsafe { processors(ROOM, own.as_mut_ptr().cast()) } < 0 {
        return 0;
    }
    // SAFETY: as this function demands.
    let wanted = unsafe { std::slice::from_raw_parts(set.cast::<u8>(), bytes.min(ROOM)) };
    let own = own.iter().flat_map(|word| word.to_ne_bytes());
    if wanted.iter().zip(own).any(|(wanted, own)| wanted & own != 0) { 0 } else { libc::EINVAL }
}

stand_in! {
    /// `pthread_setaffinity_np(3)`.
    fn pthread_setaffinity_np(thread: pthread_t, bytes: usize, set: *const c_void) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match record::find(thread) {
                Some(_) => answer_to(bytes, set),
                None => next(thread, bytes, set),
            }
        }
    }

    /// `pthread_getaffinity_np(3)`.
    fn pthread_getaffinity_np(thread: pthread_t, bytes: usize, set: *mut c_void) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            if record::find(thread).is_none() {
                return next(thread, bytes, set);
            }
            set.cast::<u8>().write_bytes(0, bytes);
            if processors(bytes, set) < 0 { *libc::__errno_location() } else { 0 }
        }
    }

    /// `sched_setaffinity(2)`.
    fn sched_setaffinity(process: c_int, bytes: usize, set: *const c_void) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            if !is_hosted(process) {
                return next(process, bytes, set);
            }
            match answer_to(bytes, set) {
                0 => 0,
                errno => {
                    *libc::__errno_location() = errno;
                    -1
                }
            }
        }
    }

    /// `sched_getaffinity(2)`.
    fn sched_getaffinity(process: c_int, bytes: usize, set: *mut c_void) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let process = if is_hosted(process) { libc::getpid() } else { process };
            next(process, bytes, set)
        }
    }
}
