//! Reading files without an allocator: see [`mapped`](crate::mapped).

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::kernel;
use crate::mapped::Mapped;
use crate::number::Own;

/// The least room for a read in bytes.
const LEAST: usize = 2048;

/// The contents of a file, such as one in `/proc`; `None` if it cannot be read.
pub fn read(path: &CStr) -> Option<Mapped<u8>> {
    let file = open(path)?;
    let mut contents = Mapped::new();
    loop {
        match contents.fill(LEAST, |room| read_into(&file, room)) {
            Some(Ok(0)) => break Some(contents),
            Some(Ok(_)) | Some(Err(libc::EINTR)) => {}
            _ => break None,
        }
    }
}

/// The beginning of a file in `/proc`, as far as there is room and one call of the kernel returns it; empty if it cannot
/// be read. Costs less than [`read`], which maps memory.
pub fn read_start<'a>(path: &CStr, room: &'a mut [u8]) -> &'a [u8] {
    let read = open(path).and_then(|file| read_into(&file, room).ok());
    &room[..read.unwrap_or(0)]
}

fn open(path: &CStr) -> Option<Own> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let here = libc::AT_FDCWD as usize;
    // SAFETY: the kernel only reads the path.
    let file =
        unsafe { kernel::call(libc::SYS_openat, [here, path.as_ptr() as usize, flags, 0, 0, 0]) };
    // The number that it gets is one that the program may have closed this moment, with a fiber about to read from it.
    // SAFETY: a new descriptor, which nothing else owns.
    Some(Own::new(unsafe { OwnedFd::from_raw_fd(file.ok()? as RawFd) }))
}

/// One call of `read`.
fn read_into(file: &Own, room: &mut [u8]) -> Result<usize, i32> {
    let arguments = [file.as_raw_fd() as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
    // SAFETY: the kernel only writes to `room`.
    unsafe { kernel::call(libc::SYS_read, arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_are_read() {
        let status = read(c"/proc/self/status").unwrap();
        assert!(status.starts_with(b"Name:"));
        let program = std::env::current_exe().unwrap();
        let path = std::ffi::CString::new(program.to_str().unwrap()).unwrap();
        assert!(*read(&path).unwrap() == *std::fs::read(program).unwrap());
        assert!(read(c"/nowhere").is_none());
        assert!(read(c"/proc").is_none(), "a folder");
    }

    #[test]
    fn the_beginning_of_a_file_is_read_as_far_as_there_is_room() {
        let mut room = [0; 5];
        assert_eq!(read_start(c"/proc/self/status", &mut room), b"Name:");
        assert_eq!(read_start(c"/nowhere", &mut room), b"");
        assert_eq!(read_start(c"/proc", &mut room), b"", "a folder");
    }
}
