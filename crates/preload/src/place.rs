//! Places that the program names in a call: the kernel answers `EFAULT` for one that is none, where reading or writing
//! it here would end the program.

use std::ffi::c_int;
use std::ptr;

use carefree_ground::probe;

/// What is at a place.
///
/// # Errors
/// `EFAULT` if it cannot be read.
///
/// # Safety
/// What can be read there is a `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Result<T, c_int> {
    probe::check(from, 1)?;
    // SAFETY: as this function demands, and the kernel has read it.
    Ok(unsafe { ptr::read_unaligned(from) })
}

/// Writes to a place.
///
/// # Errors
/// `EFAULT` if it cannot be written to.
///
/// # Safety
/// What can be written to there is the caller's.
pub(crate) unsafe fn write<T: Copy>(to: *mut T, value: T) -> Result<(), c_int> {
    // SAFETY: as this function demands, and the kernel has written there.
    unsafe {
        probe::check_writable(to)?;
        ptr::write_unaligned(to, value);
    }
    Ok(())
}
