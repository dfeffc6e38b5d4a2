//! Names of threads, as the kernel keeps them: 15 bytes.

use std::ffi::{CStr, c_char, c_int};

use carefree_ground::file;
use carefree_runtime::hosted::HostedThread;
use carefree_runtime::kernel_name::KernelName;
use libc::pthread_t;

use crate::thread::record;

/// `pthread_setname_np`; `None` if the thread is none of ours.
///
/// # Safety
/// As for `pthread_setname_np`.
pub(crate) unsafe fn set_name(thread: pthread_t, name: *const c_char) -> Option<c_int> {
    // SAFETY: as this function demands.
    let (thread, _) = unsafe { record::find(thread) }?;
    // SAFETY: as this function demands: a string.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    let mut kept = KernelName::default();
    if bytes.len() >= kept.len() {
        return Some(libc::ERANGE);
    }
    if thread.has_ended() {
        return Some(libc::ENOENT);
    }
    kept[..bytes.len()].copy_from_slice(bytes);
    thread.set_name(kept);
    if thread.is_main() {
        // What `ps` shows is the name of the first kernel thread.
        let _ = std::fs::write("/proc/self/comm", bytes);
    }
    Some(0)
}

/// `pthread_getname_np`; `None` if the thread is none of ours, or the kernel knows its name.
///
/// # Safety
/// As for `pthread_getname_np`.
pub(crate) unsafe fn get_name(
    thread: pthread_t,
    place: *mut c_char,
    length: usize,
) -> Option<c_int> {
    // SAFETY: as this function demands.
    let (thread, _) = unsafe { record::find(thread) }?;
    if length < KernelName::default().len() {
        return Some(libc::ERANGE);
    }
    if thread.has_ended() {
        return Some(libc::ENOENT);
    }
    let name = of(thread);
    // SAFETY: as this function demands, and there is room.
    unsafe { place.cast::<KernelName>().write(name) };
    Some(0)
}

/// A thread has its creator's name until it is given one; nearly always that of the program.
pub(crate) fn of(thread: HostedThread) -> KernelName {
    thread.name().unwrap_or_else(programs)
}

/// The name of the first kernel thread.
pub(crate) fn programs() -> KernelName {
    let mut name = KernelName::default();
    // (A fork asks, where the program's allocator may be locked.)
    let told = file::read(c"/proc/self/comm").unwrap_or_default();
    let told = told.strip_suffix(b"\n").unwrap_or(&told);
    let length = told.len().min(name.len() - 1);
    name[..length].copy_from_slice(&told[..length]);
    name
}
