//! `membarrier(2)`, private expedited: every processor that runs a thread of this process executes a
//! full fence.

use crate::kernel;

const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

/// Registers the process, which [`everywhere`] requires. A child of a fork must register again.
///
/// # Errors
/// The `errno` value if the kernel does not support or permit the call.
pub fn register() -> Result<(), i32> {
    command(REGISTER_PRIVATE_EXPEDITED)
}

/// Makes every processor that runs a thread of this process execute a full fence, by an interrupt.
///
/// # Errors
/// The `errno` value; never once the process was [registered](register).
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
