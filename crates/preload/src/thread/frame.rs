//! The frame below a thread's function, to which `pthread_exit` and cancellation unwind.
//!
//! libc unwinds a thread by forced unwinding until it comes to a buffer of `setjmp`'s that the thread has
//! registered, and continues there. In a thread of libc's, that lies in the frame that has called the
//! thread's function; here it lies in this one. So `pthread_exit`, cleanup handlers, cancellation and
//! destructors of C++ are libc's and the unwinder's, and unchanged.
//!
//! To the unwinder it is the outermost frame, as that of libc's is. So an exception that nothing catches ends
//! the program at the place where it is thrown, and its language says which it was.
//!
//! It is in assembly, for a function that returns twice has no place in Rust.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use crate::thread::record::Record;

impl Record {
    /// [`carefree_hosted_call`] for the record's thread.
    ///
    /// # Safety
    /// The caller is the thread; the function takes these arguments, or fewer.
    pub(super) unsafe fn call(
        &self,
        function: usize,
        a: *mut c_void,
        b: *mut c_void,
        c: *mut c_void,
        exited: *mut c_int,
    ) -> *mut c_void {
        self.inside.store(true, Ordering::Relaxed);
        // SAFETY: as this function demands.
        let value = unsafe { carefree_hosted_call(function, a, b, c, exited) };
        self.inside.store(false, Ordering::Relaxed);
        value
    }
}

/// Where a thread's function returns to.
pub(super) fn return_address() -> usize {
    unsafe extern "C" {
        static carefree_hosted_return: u8;
    }
    &raw const carefree_hosted_return as usize
}

unsafe extern "C-unwind" {
    /// Calls `function(a, b, c)` and returns its result. If the thread exits within, returns null and sets
    /// `exited` to 1.
    fn carefree_hosted_call(
        function: usize,
        a: *mut c_void,
        b: *mut c_void,
        c: *mut c_void,
        exited: *mut c_int,
    ) -> *mut c_void;
}

// The buffer is libc's `__pthread_unwind_buf_t`: a jump buffer (64 bytes), an int, four pointers.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".text",
    ".balign 16",
    ".globl carefree_hosted_call",
    ".hidden carefree_hosted_call",
    ".type carefree_hosted_call, @function",
    "carefree_hosted_call:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rbx, -16",
    "sub rsp, 160",
    ".cfi_adjust_cfa_offset 160",
    "mov [rsp + 112], rdi",
    "mov [rsp + 120], rsi",
    "mov [rsp + 128], rdx",
    "mov [rsp + 136], rcx",
    "mov [rsp + 144], r8",
    "mov rdi, rsp",
    "xor esi, esi",
    "call __sigsetjmp@PLT",
    "test eax, eax",
    "jnz 1f",
    "mov rdi, rsp",
    "call __pthread_register_cancel@PLT",
    "mov rdi, [rsp + 120]",
    "mov rsi, [rsp + 128]",
    "mov rdx, [rsp + 136]",
    "call [rsp + 112]",
    ".globl carefree_hosted_return",
    ".hidden carefree_hosted_return",
    "carefree_hosted_return:",
    "mov rbx, rax",
    "mov rdi, rsp",
    "call __pthread_unregister_cancel@PLT",
    "mov rax, rbx",
    "jmp 2f",
    "1:",
    "mov rdi, rsp",
    "call __pthread_unregister_cancel@PLT",
    "mov rdx, [rsp + 144]",
    "mov dword ptr [rdx], 1",
    "xor eax, eax",
    "2:",
    "add rsp, 160",
    ".cfi_adjust_cfa_offset -160",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size carefree_hosted_call, . - carefree_hosted_call",
);

// The same, with a jump buffer of 312 bytes (22 registers, an int, 16 words of signals): libc uses the first
// 216 of them.
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".text",
    ".balign 16",
    ".globl carefree_hosted_call",
    ".hidden carefree_hosted_call",
    ".type carefree_hosted_call, @function",
    "carefree_hosted_call:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-32]!",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset x29, -32",
    ".cfi_undefined x30",
    "str x19, [sp, #16]",
    ".cfi_offset x19, -16",
    "mov x29, sp",
    "sub sp, sp, #384",
    ".cfi_def_cfa x29, 32",
    "stp x0, x1, [sp, #320]",
    "stp x2, x3, [sp, #336]",
    "str x4, [sp, #352]",
    "mov x0, sp",
    "mov w1, #0",
    "bl __sigsetjmp",
    "cbnz w0, 1f",
    "mov x0, sp",
    "bl __pthread_register_cancel",
    "ldp x9, x0, [sp, #320]",
    "ldp x1, x2, [sp, #336]",
    "blr x9",
    ".globl carefree_hosted_return",
    ".hidden carefree_hosted_return",
    "carefree_hosted_return:",
    "mov x19, x0",
    "mov x0, sp",
    "bl __pthread_unregister_cancel",
    "mov x0, x19",
    "b 2f",
    "1:",
    "mov x0, sp",
    "bl __pthread_unregister_cancel",
    "ldr x9, [sp, #352]",
    "mov w10, #1",
    "str w10, [x9]",
    "mov x0, #0",
    "2:",
    "mov sp, x29",
    "ldr x19, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    ".cfi_def_cfa sp, 0",
    "ret",
    ".cfi_endproc",
    ".size carefree_hosted_call, . - carefree_hosted_call",
);
