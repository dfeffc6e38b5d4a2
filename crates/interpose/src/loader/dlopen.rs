//! `dlopen`, `dlmopen`: a wait for the loader's lock, and then libc's function.
//!
//! libc's functions identify their caller by the return address. So ours are written in assembly and jump to
//! libc's with the arguments and the return address unchanged. (A sanitizer's own `dlopen` is kept.)
//!
//! The symbols are weak: a shared library of Rust's exports none of assembly, so `libcarefree.so` has its own.

use std::ffi::{c_char, c_int, c_long, c_void};

use carefree_context::{loader, object};

use crate::call::fiber;
use crate::call::original::Original;
use crate::loader::lock;

/// libc's `dlopen`.
pub type Dlopen = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;
/// libc's `dlmopen`.
pub type Dlmopen = unsafe extern "C-unwind" fn(c_long, *const c_char, c_int) -> *mut c_void;

// SAFETY: the manual page of `dlopen` has this type.
static DLOPEN: Original<Dlopen> = unsafe { Original::new(c"dlopen", None, None) };
// SAFETY: the manual page of `dlmopen` has this type.
static DLMOPEN: Original<Dlmopen> = unsafe { Original::new(c"dlmopen", None, None) };

/// To be called by `dlopen` first; returns libc's.
pub extern "C-unwind" fn before_dlopen() -> Dlopen {
    await_turn();
    DLOPEN.get()
}

/// To be called by `dlmopen` first; returns libc's.
pub extern "C-unwind" fn before_dlmopen() -> Dlmopen {
    await_turn();
    DLMOPEN.get()
}

fn await_turn() {
    if fiber::on_fiber() {
        lock::await_turn();
    }
    loader::tell_call();
}

/// Looks the originals up when the program starts.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    unsafe extern "C" {
        /// Our `dlopen`, referred to so that the linker includes it.
        fn carefree_dlopen();
    }
    extern "C" fn at_start() {
        std::hint::black_box(carefree_dlopen as unsafe extern "C" fn());
        DLOPEN.resolve();
        DLMOPEN.resolve();
        if !object::own().is_behind_libc() {
            loader::tell_calls();
        }
    }
    at_start
};

/// Defines `name`, which calls `before` and jumps to the function that this returns, with its own arguments
/// and return address.
macro_rules! in_front {
    ($name:literal, $other:literal, $before:path) => {
        #[cfg(target_arch = "x86_64")]
        std::arch::global_asm!(
            concat!(".pushsection .text.", $other, ",\"ax\",@progbits"),
            concat!(".weak ", $name),
            concat!(".globl ", $other),
            concat!(".hidden ", $other),
            concat!(".protected ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            concat!($other, ":"),
            ".cfi_startproc",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "call {before}",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "jmp rax",
            ".cfi_endproc",
            concat!(".size ", $name, ", .-", $name),
            ".popsection",
            before = sym $before,
        );

        #[cfg(target_arch = "aarch64")]
        std::arch::global_asm!(
            concat!(".pushsection .text.", $other, ",\"ax\",@progbits"),
            concat!(".weak ", $name),
            concat!(".globl ", $other),
            concat!(".hidden ", $other),
            concat!(".protected ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            concat!($other, ":"),
            ".cfi_startproc",
            "stp x29, x30, [sp, #-48]!",
            ".cfi_def_cfa_offset 48",
            ".cfi_offset x29, -48",
            ".cfi_offset x30, -40",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "bl {before}",
            "mov x16, x0",
            "ldr x2, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            ".cfi_restore x29",
            ".cfi_restore x30",
            ".cfi_def_cfa_offset 0",
            "br x16",
            ".cfi_endproc",
            concat!(".size ", $name, ", .-", $name),
            ".popsection",
            before = sym $before,
        );
    };
}

in_front!("dlopen", "carefree_dlopen", before_dlopen);
in_front!("dlmopen", "carefree_dlmopen", before_dlmopen);
