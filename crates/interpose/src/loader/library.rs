//! Libraries that are loaded while there are fibers: `__gmon_start__`.
//!
//! libc gives a library's thread-local variables their initial values in all threads that it knows, which does
//! not include fibers. That is done here, before any code of the library runs, its constructors included: the
//! linker begins each library with libc's function `_init` (`crti.o`), which calls `__gmon_start__`, meant for
//! profilers, if the process has one. What happens then, and what with libraries that do not call it:
//! `carefree_context::tls`, `libraries.rs`.
//!
//! `dlopen` itself is left to libc. It identifies its caller by the return address, and where it looks for a
//! library depends on that (`RUNPATH`, `$ORIGIN`). Nor could another thread make the call: a library whose
//! constructors register it takes locks that the caller of `dlopen` may hold, as the same thread.
//!
//! Programs see the symbol because libgcc's library beside them refers to it. It is weak, so that a program
//! linked with `-pg` gets the profiler's. A static program loads no libraries. `libcarefree.so` has its own.

use std::ffi::c_void;

use carefree_context::tls;
use carefree_ground::kernel;
use carefree_runtime::wait::without_parking;

use crate::loader::lock;

/// Makes the linker include the function below.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    unsafe extern "C" {
        fn carefree_library_begins();
    }
    extern "C" fn at_start() {
        std::hint::black_box(carefree_library_begins as unsafe extern "C" fn());
    }
    at_start
};

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.carefree_library_begins,\"ax\",@progbits",
    ".weak __gmon_start__",
    ".protected __gmon_start__",
    ".globl carefree_library_begins",
    ".hidden carefree_library_begins",
    ".type __gmon_start__,@function",
    "__gmon_start__:",
    "carefree_library_begins:",
    "mov rdi, [rsp]",
    "jmp {begins}",
    ".size __gmon_start__, .-__gmon_start__",
    ".popsection",
    begins = sym begins,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.carefree_library_begins,\"ax\",@progbits",
    ".weak __gmon_start__",
    ".protected __gmon_start__",
    ".globl carefree_library_begins",
    ".hidden carefree_library_begins",
    ".type __gmon_start__,@function",
    "__gmon_start__:",
    "carefree_library_begins:",
    "mov x0, x30",
    "b {begins}",
    ".size __gmon_start__, .-__gmon_start__",
    ".popsection",
    begins = sym begins,
);

/// To be called when the library that contains `caller` begins, by the loader and under its lock.
pub extern "C" fn begins(caller: *const c_void) {
    // Usually `None`: most libraries begin before the program does.
    let Some(layout) = tls::known() else { return };
    // A fiber that parked here would leave the loader's lock held.
    without_parking(|| {
        lock::learn();
        carefree_context::loader::tell_call();
        if let Err(error) = layout.begin(caller) {
            let text = format!(
                "carefree: a library was loaded, and fibers that are alive may not find the initial \
                 values of its thread-local variables: {error}\n"
            );
            // Not by std: a fiber that waits for this one may hold its lock.
            let text = text.as_bytes();
            // SAFETY: memory that is there during the call.
            let _ = unsafe {
                let arguments = [2, text.as_ptr() as usize, text.len(), 0, 0, 0];
                kernel::call(libc::SYS_write, arguments)
            };
        }
    });
}
