//! Processors of threads.
//!
//! A fiber runs where a carrier takes it. The processors that a hosted thread asks for have no effect on it, but they are
//! stored, inherited and told, and refused where the kernel refuses them. (What is created in the kernel has them:
//! [`settings`](crate::thread::settings).)
//!
//! Which processors the kernel allows is known to it alone: a program may have tied its first thread to one, and tie each
//! of its others to another. So a carrier asks the kernel for them itself, and takes its own again. If a thread may run on
//! one that the carriers may not run on, because they began with what the first thread had, all of them get it.

use std::ffi::{c_int, c_void};
use std::fs;
use std::ptr;

use carefree_ground::kernel;
use carefree_runtime::wait::without_parking;
use libc::pthread_t;

use crate::thread::identity::with_number;
use crate::thread::processors::Set;
use crate::thread::record::{self, Record, set_errno};

/// Has the kernel say on which processors of a set a thread of this process may run; `None` if there are more than are
/// stored.
///
/// # Errors
/// With the `errno` that the kernel answers.
///
/// # Safety
/// As for the system call.
unsafe fn allowed(bytes: usize, set: *const c_void) -> Result<Option<Set>, c_int> {
    let before = Set::of_kernel_thread(0);
    // SAFETY: as this function demands.
    unsafe { kernel::call(libc::SYS_sched_setaffinity, [0, bytes, set as usize, 0, 0, 0]) }?;
    let Ok(before) = before else { return Ok(None) };
    let allowed = Set::of_kernel_thread(0);
    // (It fails if the process has lost all of these meanwhile. Then it has others, and so has this thread.)
    let _ = before.give_to(0);
    let allowed = allowed?;
    let all = before.united(&allowed);
    if all != before {
        widen(&before, &all);
    }
    Ok(Some(allowed))
}

/// Gives the carriers, and what starts more of them, all of these processors in place of those that they have from the
/// first thread.
fn widen(from: &Set, to: &Set) {
    without_parking(|| {
        let Ok(tasks) = fs::read_dir("/proc/self/task") else { return };
        for task in tasks.flatten() {
            let is_own =
                fs::read(task.path().join("comm")).is_ok_and(|name| name.starts_with(b"carefree-"));
            let number = task.file_name().to_str().and_then(|number| number.parse().ok());
            if let (true, Some(number)) = (is_own, number) {
                if Set::of_kernel_thread(number).as_ref() == Ok(from) {
                    let _ = to.give_to(number);
                }
            }
        }
    });
}

/// Stores what a thread is to have: an `errno`, or 0.
///
/// # Safety
/// As for the system call.
unsafe fn set(record: &Record, bytes: usize, set: *const c_void) -> c_int {
    // SAFETY: as this function demands.
    match unsafe { allowed(bytes, set) } {
        Ok(None) => 0,
        Ok(Some(allowed)) => match allowed.stored() {
            Some(stored) => {
                record.settings.set_processors(Some(stored));
                0
            }
            None => libc::ENOMEM,
        },
        Err(errno) => errno,
    }
}

/// Tells what a thread has, as the system call does: how many bytes.
///
/// # Errors
/// With the `errno`.
///
/// # Safety
/// As for the system call.
unsafe fn tell(has: Option<&Set>, bytes: usize, set: *mut c_void) -> Result<usize, c_int> {
    // The process's number is that of the first kernel thread, which has those that the threads began with.
    // SAFETY: no preconditions.
    let first = unsafe { libc::getpid() } as usize;
    // SAFETY: as this function demands.
    let told = unsafe {
        kernel::call(libc::SYS_sched_getaffinity, [first, bytes, set as usize, 0, 0, 0])
    }?;
    if let Some(has) = has {
        let there = told.min(size_of::<Set>());
        // SAFETY: the kernel has written as many bytes to the caller's set, which the own one has as well.
        unsafe { ptr::copy_nonoverlapping(ptr::from_ref(has).cast::<u8>(), set.cast(), there) };
    }
    Ok(told)
}

/// [`tell`], as libc's functions have it: with zeros behind what the kernel knows. An `errno`, or 0.
///
/// # Safety
/// `bytes` may be written at `set`, if the kernel may write there.
pub(super) unsafe fn tell_all(record: &Record, bytes: usize, set: *mut c_void) -> c_int {
    // SAFETY: as this function demands.
    match unsafe { tell(record.settings.processors(), bytes, set) } {
        Ok(told) => {
            // SAFETY: behind what was written there are so many bytes more.
            unsafe { set.cast::<u8>().add(told).write_bytes(0, bytes - told) };
            0
        }
        Err(errno) => errno,
    }
}

/// `sched_setaffinity` and `sched_getaffinity` by their numbers, for a hosted thread: what `syscall(2)` returns.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn by_number(
    number: libc::c_long,
    process: c_int,
    bytes: usize,
    place: usize,
) -> Option<c_int> {
    let answer = with_number(process, |record| {
        if number == libc::SYS_sched_setaffinity {
            // SAFETY: as this function demands.
            match unsafe { set(record, bytes, place as *const c_void) } {
                0 => Ok(0),
                errno => Err(errno),
            }
        } else {
            // SAFETY: as this function demands.
            unsafe { tell(record.settings.processors(), bytes, place as *mut c_void) }
        }
    })?;
    Some(answer.map_or_else(failed, |told| told as c_int))
}

fn failed(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

stand_in! {
    /// `pthread_setaffinity_np(3)`.
    fn pthread_setaffinity_np(thread: pthread_t, bytes: usize, processors: *const c_void) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match record::find(thread) {
                Some((_, record)) => set(record, bytes, processors),
                None => next(thread, bytes, processors),
            }
        }
    }

    /// `pthread_getaffinity_np(3)`.
    fn pthread_getaffinity_np(thread: pthread_t, bytes: usize, processors: *mut c_void) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match record::find(thread) {
                Some((_, record)) => tell_all(record, bytes, processors),
                None => next(thread, bytes, processors),
            }
        }
    }

    /// `sched_setaffinity(2)`.
    fn sched_setaffinity(process: c_int, bytes: usize, processors: *const c_void) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match with_number(process, |record| set(record, bytes, processors)) {
                Some(0) => 0,
                Some(errno) => failed(errno),
                None => next(process, bytes, processors),
            }
        }
    }

    /// `sched_getaffinity(2)`.
    fn sched_getaffinity(process: c_int, bytes: usize, processors: *mut c_void) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match with_number(process, |record| tell_all(record, bytes, processors)) {
                Some(0) => 0,
                Some(errno) => failed(errno),
                None => next(process, bytes, processors),
            }
        }
    }
}
