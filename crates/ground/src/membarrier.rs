//! `membarrier(2)`, private expedited: every processor that runs a thread of this process executes a
//! full fence.

use crate::kernel;

const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

/// Registers the process, which [`everywhere`] asks for. A child of a fork has to be registered anew.
///
/// # Errors
/// The `errno` value of a kernel that has no such call, or denies it.
pub fn register() -> Result<(), i32> {
    command(REGISTER_PRIVATE_EXPEDITED)
}

/// Has every processor that runs a thread of this process execute a full fence: a system call, which
/// interrupts them.
///
/// # Errors
/// The `errno` value; none once the process was [registered](register).
pub fn everywhere() -> Result<(), i32> {
    command(PRIVATE_EXPEDITED)
}

fn command(command: usize) -> Result<(), i32> {
    // SAFETY: no pointers are passed.
    unsafe { kernel::call(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) }.map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_registered_process_is_not_refused() {
        match super::register() {
            Ok(()) => assert_eq!(super::everywhere(), Ok(())),
            Err(errno) => eprintln!("skipped: the kernel refuses membarrier with errno {errno}"),
        }
    }
}
