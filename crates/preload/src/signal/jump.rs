//! Jumps that restore the mask (`sigsetjmp`, `siglongjmp`), as those out of a handler of a signal do.
//!
//! libc would save the kernel's mask, which is the carrier's, and put that in force on whichever carrier the jump
//! is made. So for a hosted thread its own is saved, where libc has room for the kernel's; a mark beside it, in a
//! word that libc leaves alone, tells which of them it is. (What C compiles `pthread_cleanup_push` to calls
//! `__sigsetjmp`, too, with a buffer that ends behind that word. It asks for no mask.)
//!
//! A function that returns twice cannot be Rust's: the register and stack that libc saves are its caller's. And
//! this library exports no symbols of assembly. So the exported functions are Rust's and consist of a jump to
//! assembly, as `tests/library.rs` makes sure.

use std::arch::{asm, global_asm};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::next::Next;
use crate::signal::mask;
use crate::signal::set::change_kernels;
use crate::thread::record;

/// Bytes that libc uses for registers. Behind them lie: an `int`, whether a mask was saved; as many bytes for
/// alignment; the mask.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 64;
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 176;

const SAVED: usize = REGISTERS;
const MARK: usize = REGISTERS + 4;
const MASK: usize = REGISTERS + 8;

/// The mark of a hosted thread's mask.
const HOSTED: u32 = 0xca5e_f4ee;

/// libc's `__sigsetjmp`; 0 until it was looked up.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Looks up what is called in the end. To be called before there are threads: the loader may wait.
pub(crate) extern "C" fn find() -> usize {
    static SET: Next = Next::new(c"__sigsetjmp");
    let address = SET.address() as usize;
    NEXT.store(address, Ordering::Relaxed);
    address
}

/// Saves the calling hosted thread's mask. Returns whether libc is to save the kernel's.
///
/// # Safety
/// A buffer with room for a mask.
unsafe extern "C" fn save(buffer: *mut u8) -> c_int {
    // (That of a child of `vfork` or `_Fork`, too, is not its parent's.)
    let own = mask::for_program();
    // SAFETY: as this function demands; the places are aligned as the buffer is.
    unsafe {
        if let Some(own) = own {
            buffer.add(MASK).cast::<u64>().write(own);
        }
        let mark = if own.is_some() { HOSTED } else { 0 };
        buffer.add(MARK).cast::<u32>().write(mark);
    }
    c_int::from(own.is_none())
}

/// Puts the mask in force that was saved in a buffer, if one was.
///
/// # Safety
/// `sigsetjmp` or its kin has filled the buffer.
unsafe fn restore(buffer: *mut u8) {
    // SAFETY: as this function demands.
    unsafe {
        let (saved, mark) = (buffer.add(SAVED).cast::<c_int>(), buffer.add(MARK).cast::<u32>());
        let is_hosted = mark.read() == HOSTED;
        if saved.read() == 0 && !is_hosted {
            return;
        }
        let set = buffer.add(MASK).cast::<u64>().read();
        if record::current().is_some() {
            // It may have been saved before there were hosted threads. libc is not to put it in force.
            saved.write(0);
            mark.write(HOSTED);
            mask::change(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
        } else if is_hosted {
            // In the child of a fork.
            change_kernels(libc::SIG_SETMASK, Some(set));
        }
    }
}

unsafe extern "C" {
    fn carefree_sigsetjmp();
    fn carefree_setjmp();
    fn carefree_setjmp_with_mask();
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".text",
    ".balign 16",
    ".type carefree_setjmp_with_mask, @function",
    "carefree_setjmp_with_mask:",
    ".cfi_startproc",
    "mov esi, 1",
    "jmp carefree_sigsetjmp",
    ".cfi_endproc",
    ".size carefree_setjmp_with_mask, . - carefree_setjmp_with_mask",
    ".balign 16",
    ".type carefree_setjmp, @function",
    "carefree_setjmp:",
    ".cfi_startproc",
    "xor esi, esi",
    ".cfi_endproc",
    ".size carefree_setjmp, . - carefree_setjmp",
    ".globl carefree_sigsetjmp",
    ".hidden carefree_sigsetjmp",
    ".type carefree_sigsetjmp, @function",
    "carefree_sigsetjmp:",
    ".cfi_startproc",
    "cmp qword ptr [rip + {next}], 0",
    "je 3f",
    "1:",
    "test esi, esi",
    "jne 2f",
    "mov dword ptr [rdi + {mark}], 0",
    "jmp qword ptr [rip + {next}]",
    "2:",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "call {save}",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "mov esi, eax",
    "jmp qword ptr [rip + {next}]",
    "3:",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {find}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "jmp 1b",
    ".cfi_endproc",
    ".size carefree_sigsetjmp, . - carefree_sigsetjmp",
    next = sym NEXT,
    save = sym save,
    find = sym find,
    mark = const MARK,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".text",
    ".balign 16",
    ".type carefree_setjmp_with_mask, @function",
    "carefree_setjmp_with_mask:",
    ".cfi_startproc",
    "mov w1, #1",
    "b carefree_sigsetjmp",
    ".cfi_endproc",
    ".size carefree_setjmp_with_mask, . - carefree_setjmp_with_mask",
    ".balign 16",
    ".type carefree_setjmp, @function",
    "carefree_setjmp:",
    ".cfi_startproc",
    "mov w1, #0",
    ".cfi_endproc",
    ".size carefree_setjmp, . - carefree_setjmp",
    ".globl carefree_sigsetjmp",
    ".hidden carefree_sigsetjmp",
    ".type carefree_sigsetjmp, @function",
    "carefree_sigsetjmp:",
    ".cfi_startproc",
    "adrp x16, {next}",
    "ldr x16, [x16, :lo12:{next}]",
    "cbz x16, 3f",
    "1:",
    "cbnz w1, 2f",
    "str wzr, [x0, #{mark}]",
    "br x16",
    "2:",
    "stp x0, x30, [sp, #-32]!",
    ".cfi_adjust_cfa_offset 32",
    ".cfi_rel_offset x30, 8",
    "str x16, [sp, #16]",
    "bl {save}",
    "mov w1, w0",
    "ldr x16, [sp, #16]",
    "ldp x0, x30, [sp], #32",
    ".cfi_adjust_cfa_offset -32",
    ".cfi_restore x30",
    "br x16",
    "3:",
    "stp x0, x30, [sp, #-32]!",
    ".cfi_adjust_cfa_offset 32",
    ".cfi_rel_offset x30, 8",
    "str x1, [sp, #16]",
    "bl {find}",
    "mov x16, x0",
    "ldr x1, [sp, #16]",
    "ldp x0, x30, [sp], #32",
    ".cfi_adjust_cfa_offset -32",
    ".cfi_restore x30",
    "b 1b",
    ".cfi_endproc",
    ".size carefree_sigsetjmp, . - carefree_sigsetjmp",
    next = sym NEXT,
    save = sym save,
    find = sym find,
    mark = const MARK,
);

/// Goes to `target` with the caller's registers and stack.
macro_rules! goes_to {
    ($($(#[$meta:meta])* $name:ident => $target:ident;)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name() -> ! {
                // SAFETY: nothing is on the stack but the return address, and no register was changed.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    asm!("jmp {}", sym $target, options(noreturn, nostack));
                    #[cfg(target_arch = "aarch64")]
                    asm!("b {}", sym $target, options(noreturn, nostack));
                }
            }
            // As those of `interpose`.
            global_asm!(concat!(".protected ", stringify!($name)));
        )*
    };
}

goes_to! {
    /// `sigsetjmp(3)`, which is a macro.
    __sigsetjmp => carefree_sigsetjmp;
    /// `setjmp(3)` as it is compiled: without the mask.
    _setjmp => carefree_setjmp;
    /// `setjmp(3)` of BSD: with the mask.
    setjmp => carefree_setjmp_with_mask;
}

stand_in! {
    /// `siglongjmp(3)`.
    fn siglongjmp(buffer: *mut c_void, value: c_int) -> ! {
        // SAFETY: the caller's arguments.
        unsafe {
            restore(buffer.cast());
            next(buffer, value)
        }
    }

    /// `longjmp(3)`: libc's restores what was saved as well.
    fn longjmp(buffer: *mut c_void, value: c_int) -> ! {
        // SAFETY: the caller's arguments.
        unsafe {
            restore(buffer.cast());
            next(buffer, value)
        }
    }

    /// `longjmp(3)` by its name of BSD's.
    fn _longjmp(buffer: *mut c_void, value: c_int) -> ! {
        // SAFETY: the caller's arguments.
        unsafe {
            restore(buffer.cast());
            next(buffer, value)
        }
    }

    /// What `_FORTIFY_SOURCE` makes of all three.
    fn __longjmp_chk(buffer: *mut c_void, value: c_int) -> ! {
        // SAFETY: the caller's arguments.
        unsafe {
            restore(buffer.cast());
            next(buffer, value)
        }
    }
}
