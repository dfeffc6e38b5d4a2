//! Names of threads, as the kernel keeps them: 15 bytes.

use std::ffi::{CStr, c_char, c_int};

use carefree_ground::file;
use carefree_ground::kernel;
use carefree_ground::lock::Lock;
use carefree_runtime::hosted::{self, HostedThread};
use carefree_runtime::kernel_name::KernelName;
use carefree_runtime::wait::without_parking;
use libc::pthread_t;

use crate::signal;
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
    if thread.is_me() && signal::is_child() {
        // Its process's own.
        set_kernels(kept);
        return Some(0);
    }
    if thread.is_main() {
        keep_for_others();
    }
    thread.set_name(kept);
    if thread.is_main() {
        // What `ps` shows is the name of the first kernel thread. (With its NUL: std writes no empty text.)
        let _ = std::fs::write("/proc/self/comm", &kept[..=bytes.len()]);
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
    let is_childs = thread.is_me() && signal::is_child();
    let name = if is_childs { of_kernel_thread() } else { of(thread) };
    // The kernel says whether the place can be written to, by writing another name there.
    let arguments = [libc::PR_GET_NAME as usize, place as usize, 0, 0, 0, 0];
    // SAFETY: as this function demands, and there is room, as the kernel has found.
    unsafe {
        if let Err(errno) = kernel::call(libc::SYS_prctl, arguments) {
            return Some(errno);
        }
        place.cast::<KernelName>().write(name);
    }
    Some(0)
}

/// The program's name before the first thread was given another: that of the threads which existed then and have none of
/// their own.
static BEFORE: Lock<Option<KernelName>> = Lock::new(None);

/// The first thread is about to be renamed, and no other with it.
fn keep_for_others() {
    let before = programs();
    without_parking(|| _ = BEFORE.lock().get_or_insert(before));
}

fn before() -> Option<KernelName> {
    without_parking(|| *BEFORE.lock())
}

/// In the child of a fork, whose first thread has the name of the one that has forked.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: as this function demands.
    unsafe { BEFORE.renew(None) };
}

/// A thread has its creator's name until it is given one; nearly always that of the program.
pub(crate) fn of(thread: HostedThread) -> KernelName {
    if thread.is_main() {
        return programs();
    }
    thread.name().or_else(before).unwrap_or_else(programs)
}

/// What a thread that the caller creates is to be named; `None` if that is what it would have anyway. (For nearly all
/// threads: a name takes memory.)
pub(super) fn inherited() -> Option<KernelName> {
    match hosted::current() {
        Some(me) if me.is_main() => before().map(|_| programs()),
        Some(me) => me.name(),
        None => {
            let own = of_kernel_thread();
            (own != before().unwrap_or_else(programs)).then_some(own)
        }
    }
}

/// The name of the calling kernel thread.
fn of_kernel_thread() -> KernelName {
    let mut name = KernelName::default();
    let arguments = [libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: there is room for a name.
    let _ = unsafe { kernel::call(libc::SYS_prctl, arguments) };
    name
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

/// Names the calling kernel thread.
pub(crate) fn set_kernels(name: KernelName) {
    let arguments = [libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the name ends with a NUL.
    let _ = unsafe { kernel::call(libc::SYS_prctl, arguments) };
}
