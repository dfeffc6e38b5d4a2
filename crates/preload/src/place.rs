//! Places that the program names in a call: the kernel answers `EFAULT` for one that is none, where reading or writing
//! it here would end the program.

use std::ffi::c_int;
use std::ptr;

use carefree_ground::kernel;

const WORD: usize = size_of::<u64>();

/// Has the kernel read a word, or write one, and do nothing else.
fn ask(from: usize, to: usize) -> Result<(), c_int> {
    const NO_CHANGE: usize = usize::MAX;
    let how = if from == 0 { libc::SIG_BLOCK as usize } else { NO_CHANGE };
    if from == 0 && to == 0 {
        return Err(libc::EFAULT);
    }
    // SAFETY: the kernel reads a set before it finds that there is no such change, or changes nothing for want of one;
    // what it writes to is the caller's to be written.
    match unsafe { kernel::call(libc::SYS_rt_sigprocmask, [how, from, to, WORD, 0, 0]) } {
        Err(libc::EFAULT) => Err(libc::EFAULT),
        _ => Ok(()),
    }
}

/// What is at a place.
///
/// # Errors
/// `EFAULT` if it cannot be read.
///
/// # Safety
/// What can be read there is a `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Result<T, c_int> {
    let last = from.addr().checked_add(size_of::<T>() - 1).ok_or(libc::EFAULT)?;
    // Words that are aligned reach into no other page.
    ask(from.addr() & !(WORD - 1), 0)?;
    ask(last & !(WORD - 1), 0)?;
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
    const { assert!(size_of::<T>() >= WORD) };
    let last = to.addr().checked_add(size_of::<T>() - WORD).ok_or(libc::EFAULT)?;
    ask(0, to.addr())?;
    ask(0, last)?;
    // SAFETY: as this function demands, and the kernel has written there.
    unsafe { ptr::write_unaligned(to, value) };
    Ok(())
}
