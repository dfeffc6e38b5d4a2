//! One system call, without libc.

/// Enters the kernel for system call `number`. Unused arguments are ignored by the kernel.
///
/// # Errors
/// The `errno` value the kernel answered with.
///
/// # Safety
/// The arguments must be such that what the kernel does with them (to memory, to the thread) is
/// sound.
#[inline]
pub(crate) unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> Result<usize, i32> {
    #[cfg(not(all(test, loom)))]
    if let Some(hooks) = crate::faults::hooks() {
        // SAFETY: the caller's promise; a hook changes arguments only to what is as sound.
        return unsafe { hooked(hooks, number, args) };
    }
    // SAFETY: the caller's promise.
    unsafe { enter(number, args) }
}

/// [`syscall`] for tests.
///
/// # Safety
/// As there.
#[cfg(not(all(test, loom)))]
#[cold]
unsafe fn hooked(
    hooks: &crate::faults::Hooks,
    number: libc::c_long,
    mut args: [usize; 6],
) -> Result<usize, i32> {
    match (hooks.call)(number, &mut args) {
        Some(errno) => Err(errno),
        // SAFETY: the caller's promise.
        None => unsafe { enter(number, args) },
    }
}

/// The instruction.
///
/// # Safety
/// As for [`syscall`].
#[inline(always)]
unsafe fn enter(number: libc::c_long, args: [usize; 6]) -> Result<usize, i32> {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention on x86-64: number in rax, arguments in rdi, rsi,
    // rdx, r10, r8, r9, result in rax; `syscall` itself overwrites rcx and r11. The stack is left
    // alone. That the call is sound is the caller's promise.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention on aarch64: number in x8, arguments in x0 to x5,
    // result in x0, everything else preserved. That the call is sound is the caller's promise.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number as isize,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    // The last 4095 values of the address space are negated errors.
    if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result as usize) }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("carefree-reactor knows the system calls of x86_64 and aarch64 only");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_come_through() {
        // SAFETY: getpid takes nothing and touches nothing.
        let pid = unsafe { syscall(libc::SYS_getpid, [0; 6]) };
        assert_eq!(pid, Ok(std::process::id() as usize));
        // SAFETY: closing a file descriptor that cannot exist is refused.
        let refused = unsafe { syscall(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(refused, Err(libc::EBADF));
    }

    #[test]
    fn all_six_arguments_arrive() {
        let length = 4096;
        // SAFETY: a new private mapping at an address of the kernel's choice disturbs nobody. Its
        // fourth to sixth arguments (flags, no file, offset 0) must arrive for it to succeed.
        let mapped = unsafe {
            syscall(
                libc::SYS_mmap,
                [
                    0,
                    length,
                    libc::PROT_READ as usize,
                    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize,
                    usize::MAX,
                    0,
                ],
            )
        };
        let address = mapped.expect("mmap of one page");
        assert_eq!(address % 4096, 0);
        // SAFETY: the mapping made above, which nothing refers to.
        let unmapped = unsafe { syscall(libc::SYS_munmap, [address, length, 0, 0, 0, 0]) };
        assert_eq!(unmapped, Ok(0));
    }
}
