//! The call of the program's `main`, which need not return as functions do.
//!
//! libc needs nothing of its stack when `main` returns: it calls `exit` with the result. So code may jump to the place
//! that `main` returns to, from any depth and any thread. The programs of FreePascal all end in this way. Here more is
//! to be done after a `main` that returns, for which the stack has to be the one that called it; if it is another one,
//! `exit` is all.
//!
//! It is in assembly, because only there is it known what a call leaves on the stack.

use std::arch::global_asm;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::thread::cancel::begin_return;

/// The program's `main`.
static MAIN: AtomicUsize = AtomicUsize::new(0);

/// Where the stack was when it was called.
static STACK: AtomicUsize = AtomicUsize::new(0);

/// The address of a function that calls `main` with its own arguments, and returns if that does.
pub(super) fn caller_of(main: usize) -> usize {
    MAIN.store(main, Ordering::Relaxed);
    carefree_main_call as *const () as usize
}

/// Where `main` returns to.
pub(super) fn return_address() -> usize {
    unsafe extern "C" {
        static carefree_main_return: u8;
    }
    &raw const carefree_main_return as usize
}

unsafe extern "C-unwind" {
    /// Calls [`MAIN`] with these arguments, and notes [`STACK`].
    fn carefree_main_call(
        count: c_int,
        arguments: *mut *mut c_char,
        environment: *mut *mut c_char,
    ) -> c_int;
}

/// What a jump to where `main` returns to has come to.
extern "C" fn jumped(status: c_int) -> ! {
    begin_return();
    // SAFETY: libc does the same, whatever lies on the stack.
    unsafe { libc::exit(status) }
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".text",
    ".balign 16",
    ".globl carefree_main_call",
    ".hidden carefree_main_call",
    ".type carefree_main_call, @function",
    "carefree_main_call:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov [rip + {stack}], rsp",
    "call [rip + {main}]",
    ".globl carefree_main_return",
    ".hidden carefree_main_return",
    "carefree_main_return:",
    "cmp rsp, [rip + {stack}]",
    "jne 2f",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    "2:",
    ".cfi_undefined rip",
    "mov edi, eax",
    "and rsp, -16",
    "call {jumped}",
    "ud2",
    ".cfi_endproc",
    ".size carefree_main_call, . - carefree_main_call",
    main = sym MAIN,
    stack = sym STACK,
    jumped = sym jumped,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".text",
    ".balign 16",
    ".globl carefree_main_call",
    ".hidden carefree_main_call",
    ".type carefree_main_call, @function",
    "carefree_main_call:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    "adrp x9, {stack}",
    "mov x10, sp",
    "str x10, [x9, :lo12:{stack}]",
    "adrp x9, {main}",
    "ldr x9, [x9, :lo12:{main}]",
    "blr x9",
    ".globl carefree_main_return",
    ".hidden carefree_main_return",
    "carefree_main_return:",
    "adrp x9, {stack}",
    "ldr x9, [x9, :lo12:{stack}]",
    "mov x10, sp",
    "cmp x9, x10",
    "b.ne 2f",
    "ldp x29, x30, [sp], #16",
    ".cfi_restore x29",
    ".cfi_restore x30",
    ".cfi_def_cfa_offset 0",
    "ret",
    "2:",
    ".cfi_undefined x30",
    "bl {jumped}",
    "brk #1",
    ".cfi_endproc",
    ".size carefree_main_call, . - carefree_main_call",
    main = sym MAIN,
    stack = sym STACK,
    jumped = sym jumped,
);
