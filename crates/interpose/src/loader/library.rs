//! Libraries that are loaded while there are fibers: `__gmon_start__`.
//!
//! libc gives the thread-local variables of a library their initial values for all threads that it
//! knows, and does not know fibers. This is where it is made good for, before any code of the library
//! has run, its constructors included: the linker begins each library with a function `_init` of libc's
//! (`crti.o`) that calls `__gmon_start__`, once meant for profilers, if the process has one. What is
//! done then, and what about libraries that do not call it: `carefree_context::tls`, `libraries.rs`.
//!
//! `dlopen` itself is left to libc. It tells its caller by the return address, and what it looks
//! for and where depends on that (`RUNPATH`, `$ORIGIN`). Nor could another thread make the call: a library
//! whose constructors register it takes locks that its loader holds, as the same thread.
//!
//! Programs see the symbol because a library beside them, libgcc's, refers to it. It is a weak one, so
//! that a program linked with `-pg` has the profiler's; and a static program loads no libraries.

use std::ffi::c_void;

use carefree_context::tls;
use carefree_ground::kernel;
use carefree_runtime::wait::without_parking;

use crate::loader::lock;

/// Has the linker take what is below.
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

/// The library that the code at `caller` is of begins. Called by the loader, under its lock.
extern "C" fn begins(caller: *const c_void) {
    // None as a rule: libraries begin before the program does.
    let Some(layout) = tls::known() else { return };
    // A fiber that parked would leave the loader locked, and what libraries are told by.
    without_parking(|| {
        lock::learn();
        if let Err(error) = layout.begin(caller) {
            let text = format!(
                "carefree: a library was loaded, and fibers that are alive may not find the initial \
                 values of its thread-local variables: {error}\n"
            );
            // Not by std, whose lock another fiber may hold that waits for this one.
            let text = text.as_bytes();
            // SAFETY: memory that is there during the call.
            let _ = unsafe {
                let arguments = [2, text.as_ptr() as usize, text.len(), 0, 0, 0];
                kernel::call(libc::SYS_write, arguments)
            };
        }
    });
}
