//! A pipe of a call's own.

use std::ffi::c_int;

use carefree_ground::kernel;

use crate::call::own_file::OwnFile;

/// An empty pipe in non-blocking mode: to copy into (`tee`), which shows what is in another pipe without
/// taking it.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// The end to read from.
    pub(crate) from: OwnFile,
    /// The end to write to.
    pub(crate) to: OwnFile,
}

impl Pipe {
    /// # Errors
    /// When there are no more files to be had.
    pub(crate) fn new() -> Result<Pipe, c_int> {
        let mut ends: [c_int; 2] = [0; 2];
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let arguments = [ends.as_mut_ptr() as usize, flags as usize, 0, 0, 0, 0];
        // SAFETY: there is room for the answer.
        unsafe { kernel::call(libc::SYS_pipe2, arguments) }?;
        let [from, to] = ends.map(|fd| OwnFile::kept(fd as usize));
        Ok(Pipe { from, to })
    }
}
