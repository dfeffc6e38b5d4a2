//! Names of threads as the kernel keeps them: a fiber has one of its own, not its carrier's.
//!
//! A program that reads `/proc` sees carriers, with their names.

use std::ffi::{CStr, c_char, c_int, c_ulong};

use carefree_runtime::kernel_name::{KernelName, kernel_name, set_kernel_name};

use crate::call::answer::answer;
use crate::call::memory;

type Thread = libc::pthread_t;

fn is_self(thread: Thread) -> bool {
    // SAFETY: no preconditions.
    thread == unsafe { libc::pthread_self() }
}

/// The name in `bytes`, cut to the kernel's length.
fn cut(bytes: &[u8]) -> KernelName {
    let mut name = KernelName::default();
    let length = bytes.len().min(name.len() - 1);
    name[..length].copy_from_slice(&bytes[..length]);
    name
}

interpose! {
    /// `pthread_setname_np(3)`.
    fn pthread_setname_np(thread: Thread, name: *const c_char) -> c_int,
        linked "__pthread_setname_np"
    {
        // SAFETY: the caller's promise: a string.
        unsafe {
            if !is_self(thread) {
                return original(thread, name);
            }
            let bytes = CStr::from_ptr(name).to_bytes();
            if bytes.len() >= size_of::<KernelName>() {
                return libc::ERANGE;
            }
            set_kernel_name(cut(bytes));
        }
        0
    }
}

interpose! {
    /// `pthread_getname_np(3)`.
    fn pthread_getname_np(thread: Thread, place: *mut c_char, length: usize) -> c_int,
        linked "__pthread_getname_np"
    {
        let name = if is_self(thread) { kernel_name() } else { None };
        // SAFETY: the caller's promise: `length` bytes may be written at `place`.
        unsafe {
            let Some(name) = name else { return original(thread, place, length) };
            if length < name.len() {
                return libc::ERANGE;
            }
            place.cast::<KernelName>().write(name);
        }
        0
    }
}

unsafe extern "C-unwind" fn raw_prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    let arguments = [option as usize, a as usize, b as usize, c as usize, d as usize, 0];
    // SAFETY: the caller's promise.
    let returned = unsafe { carefree_ground::kernel::call(libc::SYS_prctl, arguments) };
    answer(returned) as c_int
}

/// Reads a name as the kernel does: up to a NUL, or as many bytes as it keeps.
///
/// # Errors
/// `EFAULT` if that cannot be read.
///
/// # Safety
/// Nothing writes to it meanwhile.
unsafe fn read(from: *const u8) -> Result<KernelName, c_int> {
    let mut name = KernelName::default();
    for index in 0..name.len() - 1 {
        let place = from.wrapping_add(index);
        if index == 0 || place as usize % memory::PAGE == 0 {
            memory::check(place, 1)?;
        }
        // SAFETY: it lies in a page that can be read.
        name[index] = unsafe { place.read() };
        if name[index] == 0 {
            break;
        }
    }
    Ok(name)
}

// (Variadic in C: see `syscall` for why that is the same.)
interpose! {
    /// `prctl(2)`.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int,
        else raw_prctl
    {
        // SAFETY: the caller's promise; what is written to was found to be writable.
        let done = unsafe {
            match (option, kernel_name()) {
                (libc::PR_SET_NAME, _) => read(a as *const u8).map(|name| {
                    set_kernel_name(name);
                }),
                (libc::PR_GET_NAME, Some(name)) => {
                    let place = a as *mut KernelName;
                    memory::check_writable(place).map(|()| place.write(name))
                }
                _ => return original(option, a, b, c, d),
            }
        };
        answer(done.map(|()| 0)) as c_int
    }
}
