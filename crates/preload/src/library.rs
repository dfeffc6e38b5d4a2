//! Libraries that are loaded while there are threads: `__gmon_start__`, which each of them calls first.
//!
//! `carefree_interpose::loader::library` says what it is for, and defines it in assembly for programs. A shared
//! library of Rust's exports no symbols of assembly, so here it is a function of Rust's, which wins over that
//! one. The unwinder tells which library has called it.

use std::ffi::{c_int, c_void};
use std::ptr;

use carefree_context::{object, tls};
use carefree_interpose::loader::library;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        note: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        caller: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// Called by a library's `_init`, by the loader and under its lock.
#[unsafe(no_mangle)]
extern "C" fn __gmon_start__() {
    // Usually: most libraries begin before the program does.
    if tls::known().is_none() {
        return;
    }
    let mut caller = ptr::null::<c_void>();
    // SAFETY: as the unwinder declares it; `caller` outlives the call.
    unsafe { _Unwind_Backtrace(note_caller, (&raw mut caller).cast()) };
    library::begins(caller);
}

/// Notes the innermost address that is not in this library, and has the unwinder end there.
unsafe extern "C" fn note_caller(context: *mut c_void, caller: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const END: c_int = 4;
    // SAFETY: the unwinder's context.
    let address = ptr::without_provenance::<c_void>(unsafe { _Unwind_GetIP(context) });
    if object::own().contains(address) {
        return GO_ON;
    }
    // SAFETY: what `__gmon_start__` has passed.
    unsafe { caller.cast::<*const c_void>().write(address) };
    END
}
