//! Reading files without an allocator: see [`mapped`](crate::mapped).

use std::ffi::CStr;

use crate::kernel;
use crate::mapped::Mapped;

/// The least room for a read in bytes.
const LEAST: usize = 2048;

/// The contents of a file, such as one in `/proc`; `None` if it cannot be read.
pub fn read(path: &CStr) -> Option<Mapped<u8>> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let here = libc::AT_FDCWD as usize;
    // SAFETY: the kernel only reads the path.
    let file =
        unsafe { kernel::call(libc::SYS_openat, [here, path.as_ptr() as usize, flags, 0, 0, 0]) };
    let file = file.ok()?;
    let mut contents = Mapped::new();
    let whole = loop {
        let read = contents.fill(LEAST, |room| {
            let arguments = [file, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
            // SAFETY: the kernel only writes to `room`.
            unsafe { kernel::call(libc::SYS_read, arguments) }
        });
        match read {
            Some(Ok(0)) => break true,
            Some(Ok(_)) | Some(Err(libc::EINTR)) => {}
            _ => break false,
        }
    };
    // SAFETY: only this function knows the descriptor.
    let _ = unsafe { kernel::call(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    whole.then_some(contents)
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
}
