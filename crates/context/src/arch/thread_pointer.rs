//! The thread pointer: the address from which every thread-local variable is found.

use core::arch::asm;

/// `arch_prctl`'s number and its sub-function that sets the FS base.
#[cfg(target_arch = "x86_64")]
pub(super) const SYS_ARCH_PRCTL: u32 = 158;
#[cfg(target_arch = "x86_64")]
pub(super) const ARCH_SET_FS: u32 = 0x1002;

/// The caller's thread pointer.
#[inline(always)]
pub fn thread_pointer() -> *mut u8 {
    let tp: *mut u8;
    // Not `pure`: the compiler must not reuse the value across a switch.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the x86-64 ABI for thread-local storage has the thread pointer in the word that it
    // points to, so every thread and every fiber has that word. (It saves a system call where
    // `rdfsbase` is not allowed.)
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) tp, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register that programs may read.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) tp, options(nostack, preserves_flags, nomem));
    }
    tp
}

/// Makes `tp` the caller's thread pointer.
///
/// # Safety
///
/// `tp` must point to a complete thread control block with its thread-local storage, and no other
/// thread may be running under it. Nothing that the compiler or a library derived from the old
/// thread pointer (the address of a thread-local variable, `errno`) may be used until it is set
/// back: only plain code may lie between.
#[inline(always)]
pub unsafe fn set_thread_pointer(tp: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if super::fsgsbase::fsgsbase() {
        // SAFETY: the kernel allows the instruction. Code that runs afterwards finds a complete
        // control block at `tp`, and by this function's contract uses no address derived from the
        // old one.
        unsafe { asm!("wrfsbase {}", in(reg) tp, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as for the instruction. The system call touches no memory of the program's, and
        // cannot fail for an address that user memory can have. It is written out because libc's
        // wrapper would write errno, a thread-local variable.
        unsafe {
            asm!(
                "syscall",
                inout("rax") u64::from(SYS_ARCH_PRCTL) => _,
                in("rdi") u64::from(ARCH_SET_FS),
                in("rsi") tp,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: programs may write the register. Code that runs afterwards finds a complete control
    // block at `tp`, and by this function's contract uses no address derived from the old one.
    unsafe {
        asm!("msr tpidr_el0, {}", in(reg) tp, options(nostack, preserves_flags));
    }
}
