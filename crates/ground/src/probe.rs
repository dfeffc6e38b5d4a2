//! Memory that a caller names, before it is read here and not by the kernel.
//!
//! A system call answers `EFAULT` for a pointer that leads nowhere; if we read through it ourselves, the
//! program would crash instead. So either the kernel has read it before us (most calls are tried first),
//! or we ask the kernel whether it can be read. What lies in the same page as our own frame can be: callers
//! have most of what they pass on the stack, close by.

use std::ffi::c_int;
use std::ptr;

use crate::kernel;

/// Bytes of the kernel's set of signals, which is what it is asked to read.
const WORD: usize = 8;
/// The smallest page there is.
pub const PAGE: usize = 4096;

/// Whether `count` values at `first` can be read; they need not be aligned.
///
/// # Errors
/// `EFAULT` if not.
pub fn check<T>(first: *const T, count: usize) -> Result<(), c_int> {
    let bytes = size_of::<T>().checked_mul(count).ok_or(libc::EFAULT)?;
    if bytes == 0 {
        return Ok(());
    }
    let begin = first as usize;
    let last = begin.checked_add(bytes - 1).ok_or(libc::EFAULT)?;
    if first.is_null() {
        return Err(libc::EFAULT);
    }
    // A word of each page: aligned, so none of them reaches into the next one.
    let mut place = begin;
    loop {
        ask(place & !(WORD - 1), 0)?;
        let next = (place & !(PAGE - 1)).saturating_add(PAGE);
        if next > last {
            return Ok(());
        }
        place = next;
    }
}

/// Whether a value can be written to `place`. Asking overwrites a part of it.
///
/// # Errors
/// `EFAULT` if not.
///
/// # Safety
/// What is there is not needed any more.
pub unsafe fn check_writable<T>(place: *mut T) -> Result<(), c_int> {
    const { assert!(size_of::<T>() >= WORD && size_of::<T>() <= PAGE) };
    ask(0, place as usize)?;
    // It may reach into one more page.
    ask(0, place as usize + size_of::<T>() - WORD)
}

/// Has the kernel read a word at `from`, or write one to `to`, and do nothing else.
///
/// Profilers use `rt_sigprocmask` for this too: it reads the set of signals before it looks at what is to
/// be done with it, and the command given here is none that it knows.
fn ask(from: usize, to: usize) -> Result<(), c_int> {
    let how = if from == 0 { libc::SIG_BLOCK } else { -1 };
    if from == 0 && to == 0 {
        return Err(libc::EFAULT);
    }
    if is_beside_own_frame(from | to) {
        return Ok(());
    }
    let arguments = [how as usize, from, to, WORD, 0, 0];
    // SAFETY: without a set of signals, or with one and no way to change them by it, none are
    // changed; what is written to is the caller's to be written.
    match unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) } {
        Err(libc::EFAULT) => Err(libc::EFAULT),
        _ => Ok(()),
    }
}

/// Whether a word at `place` is in the page of this function's frame, which can be read and written.
#[inline]
fn is_beside_own_frame(place: usize) -> bool {
    let own = 0_u8;
    (ptr::from_ref(&own) as usize ^ place) < PAGE && place % PAGE <= PAGE - WORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_from_what_can() {
        // SAFETY: two new pages at an address of the kernel's choice, of which the second is made
        // inaccessible.
        let page = unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            let next = memory.wrapping_byte_add(PAGE);
            assert_eq!(libc::mprotect(next, PAGE, libc::PROT_NONE), 0);
            memory.cast::<u8>()
        };
        let end = page.wrapping_add(PAGE);
        for bytes in [1, 2, 3, 8, 100, PAGE] {
            let first = end.wrapping_sub(bytes).cast_const();
            assert_eq!(check(first, bytes), Ok(()), "{bytes}");
            assert_eq!(check(first, bytes + 1), Err(libc::EFAULT), "{bytes}");
        }
        assert_eq!(check(std::ptr::null::<u8>(), 0), Ok(()));
        for wrong in [0, 8, usize::MAX - 7] {
            assert_eq!(check(wrong as *const u64, 1), Err(libc::EFAULT), "{wrong:#x}");
        }
        assert_eq!(check(page.cast::<u64>(), usize::MAX), Err(libc::EFAULT));
        // SAFETY: what is in the page is not needed.
        unsafe {
            assert_eq!(check_writable(page.cast::<[u64; 16]>()), Ok(()));
            assert_eq!(check_writable(end.wrapping_sub(8).cast::<[u64; 16]>()), Err(libc::EFAULT));
            assert_eq!(libc::mprotect(page.cast(), PAGE, libc::PROT_READ), 0);
            assert_eq!(check_writable(page.cast::<[u64; 16]>()), Err(libc::EFAULT));
            libc::munmap(page.cast(), 2 * PAGE);
        }
    }
}
