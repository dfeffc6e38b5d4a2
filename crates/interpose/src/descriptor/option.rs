//! A socket's options.

use std::ffi::c_int;

use carefree_ground::kernel;
use libc::socklen_t;

/// A socket's option whose value is a number.
pub(crate) fn option(fd: c_int, name: c_int) -> Result<c_int, c_int> {
    let mut value: c_int = 0;
    let mut length = size_of_val(&value) as socklen_t;
    let [value_at, length_at] = [&raw mut value as usize, &raw mut length as usize];
    let arguments = [fd as usize, libc::SOL_SOCKET as usize, name as usize, value_at, length_at, 0];
    // SAFETY: the kernel writes a number and its length, which live until the call returns.
    unsafe { kernel::call(libc::SYS_getsockopt, arguments) }.map(|_| value)
}
