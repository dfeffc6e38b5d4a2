//! The number of threads that `/proc/self/stat` shows to a program that opens it by `fopen`.
//!
//! Python 3.12 and later reads it so at each fork, and warns of more than one thread. The kernel's number counts
//! carriers and the runtime's other threads, so the program's own is put in its place.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree_ground::text::Text;
use carefree_ground::{file, kernel};
use carefree_runtime::hosted;

use crate::thread;

const PATH: &CStr = c"/proc/self/stat";

/// The threads that there were, beside the first, before threads became fibers: those that constructors of libraries
/// have created, as a rule for as long as the process lives.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// Threads become fibers now. The kernel's number is still the program's.
pub(crate) fn note_start() {
    let number = || {
        let contents = file::read(PATH)?;
        std::str::from_utf8(contents.get(place(&contents)?)?).ok()?.parse::<u64>().ok()
    };
    BEFORE.store(number().unwrap_or(1).saturating_sub(1), Ordering::Relaxed);
}

/// Where the number of threads stands: the 18th word behind the name, which is in brackets and may hold anything.
fn place(contents: &[u8]) -> Option<Range<usize>> {
    let mut start = contents.iter().rposition(|&byte| byte == b')')? + 2;
    let word = |from: usize| contents.get(from..)?.iter().position(|&byte| byte == b' ');
    for _ in 0..17 {
        start += word(start)? + 1;
    }
    Some(start..start + word(start)?)
}

/// A stream of what the file says, with the program's number of threads; `None` if that is what the kernel says, for
/// any other file, and where there can be none.
///
/// # Safety
/// Two strings, or null, with which libc does what it does.
unsafe fn open(path: *const c_char, mode: *const c_char) -> Option<*mut c_void> {
    if path.is_null() || mode.is_null() {
        return None;
    }
    // SAFETY: as this function demands.
    let (path, mode) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(mode)) };
    let reads = || mode.to_bytes().first() == Some(&b'r') && !mode.to_bytes().contains(&b'+');
    if path != PATH || !hosted::is_hosting() || !reads() {
        return None;
    }
    let contents = file::read(PATH)?;
    let place = place(&contents)?;
    let number = Text::of(format_args!("{}", BEFORE.load(Ordering::Relaxed) + thread::alive()));
    let closes = if mode.to_bytes().contains(&b'e') { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: the kernel reads the name.
    let file = unsafe {
        kernel::call(
            libc::SYS_memfd_create,
            [c"stat".as_ptr() as usize, closes as usize, 0, 0, 0, 0],
        )
    };
    let file = file.ok()?;
    let parts = [&contents[..place.start], number.as_str().as_bytes(), &contents[place.end..]];
    let is_written = parts.iter().all(|part| {
        // SAFETY: the kernel reads the part, and writes to a new file.
        let written = unsafe {
            kernel::call(libc::SYS_write, [file, part.as_ptr() as usize, part.len(), 0, 0, 0])
        };
        written == Ok(part.len())
    });
    // SAFETY: a new file, which the stream owns; if there is none, this does.
    unsafe {
        let seek = kernel::call(libc::SYS_lseek, [file, 0, libc::SEEK_SET as usize, 0, 0, 0]);
        let stream = if is_written && seek.is_ok() {
            libc::fdopen(file as c_int, mode.as_ptr())
        } else {
            ptr::null_mut()
        };
        if stream.is_null() {
            let _ = kernel::call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
            return None;
        }
        Some(stream.cast())
    }
}

stand_in! {
    /// `fopen(3)`.
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
        // SAFETY: the caller's arguments.
        unsafe { open(path, mode).unwrap_or_else(|| next(path, mode)) }
    }

    /// `fopen(3)` of a file of any size.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
        // SAFETY: the caller's arguments.
        unsafe { open(path, mode).unwrap_or_else(|| next(path, mode)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 20 0 17\n";
        for name in ["sh", "a) S 1 (b", "( ("] {
            let contents = format!("7 ({name}) {rest}");
            assert_eq!(&contents[place(contents.as_bytes()).unwrap()], "20");
        }
        assert_eq!(place(b"7 (sh) S 1 2"), None);
        assert_eq!(place(b""), None);
    }
}
