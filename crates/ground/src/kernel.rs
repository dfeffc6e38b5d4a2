//! One system call, without libc.
//!
//! Carefree interposes libc's blocking calls, `syscall` among them, to park fibers there. Code that
//! must not enter the scheduler (above all the scheduler itself) enters the kernel here. Such a
//! call does not change `errno`.

/// Enters the kernel for system call `number`. Arguments that it does not take are ignored.
///
/// ```
/// use carefree_ground::kernel;
///
/// // SAFETY: getpid has no arguments and accesses no memory.
/// let pid = unsafe { kernel::call(libc::SYS_getpid, [0; 6]) };
/// assert_eq!(pid, Ok(std::process::id() as usize));
/// ```
///
/// # Errors
/// The `errno` value returned by the kernel.
///
/// # Safety
/// What the kernel does with these arguments, to memory and to the thread, must be sound.
#[inline]
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, i32> {
    let returned: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's contract for `syscall`: number in rax, arguments in rdi, rsi, rdx, r10,
    // r8, r9; it overwrites rax, rcx and r11 and no other register, and uses no user stack. The
    // call's effect on memory is sound, as this function requires.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => returned,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's contract for `svc 0`: number in x8, arguments in x0 to x5; it overwrites
    // x0 and no other register, and uses no user stack. The call's effect on memory is sound, as
    // this function requires.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => returned,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    // The kernel returns errors as numbers in the last page of the address space.
    if (-4095..0).contains(&returned) { Err(-returned as i32) } else { Ok(returned as usize) }
}
