//! The frame below a handler of the program's: it calls the handler on the stack that this is to run on.
//!
//! It is in assembly, for Rust has no other stack than the caller's. Its frame is found by a register that the
//! handler keeps, so the unwinder comes through it: a thread may exit or be cancelled within a handler, or leave
//! it by an exception.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};

/// Where a handler returns to: the stacks above are not amid anything, so another handler may be called.
pub(super) fn return_address() -> usize {
    unsafe extern "C" {
        static carefree_handler_return: u8;
    }
    &raw const carefree_handler_return as usize
}

/// Whether that address, found at `place` on the stack, is the one to which the innermost handler returns, which lies at
/// `noted`; and not one that an earlier handler has left there.
pub(super) fn is_of_innermost(place: usize, noted: usize) -> bool {
    // Elsewhere, a handler keeps it in a place of its own choice.
    !cfg!(target_arch = "x86_64") || place == noted
}

unsafe extern "C-unwind" {
    /// Calls `handler(signal, info, context)` on the stack that ends at `end`; on the caller's if that is 0. Notes in
    /// `place`, on x86-64, where on the stack the address lies to which the handler returns.
    pub(super) fn carefree_call_handler(
        handler: usize,
        signal: c_int,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
        end: usize,
        place: *mut usize,
    );
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".text",
    ".balign 16",
    ".globl carefree_call_handler",
    ".hidden carefree_call_handler",
    ".type carefree_call_handler, @function",
    "carefree_call_handler:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov edi, esi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "test r8, r8",
    "cmovnz rsp, r8",
    "and rsp, -16",
    "lea r10, [rsp - 8]",
    "mov [r9], r10",
    "call rax",
    ".globl carefree_handler_return",
    ".hidden carefree_handler_return",
    "carefree_handler_return:",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size carefree_call_handler, . - carefree_call_handler",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".text",
    ".balign 16",
    ".globl carefree_call_handler",
    ".hidden carefree_call_handler",
    ".type carefree_call_handler, @function",
    "carefree_call_handler:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    ".cfi_def_cfa_register x29",
    "mov x9, x0",
    "mov w0, w1",
    "mov x1, x2",
    "mov x2, x3",
    "and x4, x4, #-16",
    "cbz x4, 1f",
    "mov sp, x4",
    "1:",
    "blr x9",
    ".globl carefree_handler_return",
    ".hidden carefree_handler_return",
    "carefree_handler_return:",
    "mov sp, x29",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa sp, 0",
    "ret",
    ".cfi_endproc",
    ".size carefree_call_handler, . - carefree_call_handler",
);
