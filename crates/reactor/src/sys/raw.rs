//! One system call, without libc, that tests can make fail.

use carefree_ground::kernel;

/// Enters the kernel for system call `number`, which ignores arguments that it does not take.
///
/// # Errors
/// The `errno` value returned by the kernel.
///
/// # Safety
/// What the kernel does with these arguments, to memory and to the thread, must be sound.
#[inline]
pub(crate) unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> Result<usize, i32> {
    #[cfg(not(all(test, loom)))]
    if let Some(hooks) = crate::faults::hooks() {
        // SAFETY: both functions require the same.
        return unsafe { hooked(hooks, number, args) };
    }
    // SAFETY: both functions require the same.
    unsafe { kernel::call(number, args) }
}

/// [`syscall`] with hooks of a test.
///
/// # Safety
/// As for [`syscall`].
#[cfg(not(all(test, loom)))]
#[cold]
unsafe fn hooked(
    hooks: &crate::faults::Hooks,
    number: libc::c_long,
    mut args: [usize; 6],
) -> Result<usize, i32> {
    match (hooks.call)(number, &mut args) {
        Some(errno) => Err(errno),
        // SAFETY: what the kernel does with the arguments is sound; a hook changes them only to
        // others for which this holds.
        None => unsafe { kernel::call(number, args) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_come_through() {
        // SAFETY: getpid has no arguments and accesses no memory.
        let pid = unsafe { syscall(libc::SYS_getpid, [0; 6]) };
        assert_eq!(pid, Ok(std::process::id() as usize));
        // SAFETY: no such file descriptor can exist.
        let refused = unsafe { syscall(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(refused, Err(libc::EBADF));
    }

    #[test]
    fn all_six_arguments_arrive() {
        let length = 4096;
        // It only succeeds if the fourth to sixth arguments (flags, no file, offset 0) arrive.
        // SAFETY: a new private mapping, which replaces none.
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
        // SAFETY: the mapping made above, which nothing uses.
        let unmapped = unsafe { syscall(libc::SYS_munmap, [address, length, 0, 0, 0, 0]) };
        assert_eq!(unmapped, Ok(0));
    }
}
