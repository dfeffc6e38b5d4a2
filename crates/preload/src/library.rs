//! Libraries that are loaded while there are threads: `__gmon_start__`, which each of them calls first; and
//! `dlopen` and `dlmopen`, which wait for the loader's lock.
//!
//! `carefree_interpose::loader` says what they are for, and defines them in assembly for programs. A shared
//! library of Rust's exports no symbols of assembly, so here they are functions of Rust's, which win over those.

use std::ffi::{c_char, c_int, c_long, c_void};

use carefree_context::tls;
use carefree_interpose::loader::{dlopen as front, library};

use crate::caller::Caller;
use crate::thread;

/// Called by a library's `_init`, by the loader and under its lock.
#[unsafe(no_mangle)]
extern "C" fn __gmon_start__() {
    thread::look_for_libraries();
    // Usually: most libraries begin before the program does.
    if tls::known().is_none() {
        return;
    }
    if let Some(caller) = Caller::of(__gmon_start__ as *const ()) {
        library::begins(caller.address());
    }
}

/// `dlopen(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    let libcs = front::before_dlopen();
    // SAFETY: the caller's arguments. Nothing here needs to be dropped.
    unsafe {
        match Caller::of(dlopen as *const ()) {
            Some(caller) => {
                caller.calls(libcs as *const c_void, [name.expose_provenance(), flags as usize, 0])
            }
            // For libc, this library is the caller then.
            None => libcs(name, flags),
        }
    }
}

/// `dlmopen(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dlmopen(
    space: c_long,
    name: *const c_char,
    flags: c_int,
) -> *mut c_void {
    let libcs = front::before_dlmopen();
    // SAFETY: as in `dlopen`.
    unsafe {
        match Caller::of(dlmopen as *const ()) {
            Some(caller) => {
                let arguments = [space as usize, name.expose_provenance(), flags as usize];
                caller.calls(libcs as *const c_void, arguments)
            }
            None => libcs(space, name, flags),
        }
    }
}

// As those of `interpose`.
std::arch::global_asm!(".protected dlopen", ".protected dlmopen");
