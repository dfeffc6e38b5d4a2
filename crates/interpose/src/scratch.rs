//! A pipe of a call's own.

use std::ffi::c_int;

use carefree_ground::kernel;

/// A pipe to copy to (`tee`), so that one can look at what is in another without taking it.
pub(crate) struct Scratch {
    pub(crate) from: c_int,
    pub(crate) to: c_int,
}

impl Scratch {
    /// # Errors
    /// When there are no more files to be had.
    pub(crate) fn new() -> Result<Scratch, c_int> {
        let mut ends = [0; 2];
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let arguments = [ends.as_mut_ptr() as usize, flags as usize, 0, 0, 0, 0];
        // SAFETY: there is room for the answer.
        unsafe { kernel::call(libc::SYS_pipe2, arguments) }?;
        Ok(Scratch { from: ends[0], to: ends[1] })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        close(self.from);
        close(self.to);
    }
}

/// Closes a file that nobody else knows.
pub(crate) fn close(fd: c_int) {
    // SAFETY: no memory is involved.
    let _ = unsafe { kernel::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}
