//! One system call, without libc, that tests can have fail.

use carefree_ground::kernel;

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
    unsafe { kernel::call(number, args) }
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
        None => unsafe { kernel::call(number, args) },
    }
}

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
