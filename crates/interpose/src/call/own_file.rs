//! Files that a call opens for itself, and closes.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::IntoRawFd;

use carefree_ground::number;

use crate::call::sys::{self, Number};

/// A file that only the call that opened it knows: it is closed when this is dropped.
///
/// The close is plain: no fiber waits on the number, and nothing is remembered of it.
#[derive(Debug)]
pub(crate) struct OwnFile(c_int);

impl OwnFile {
    /// The file that the system call with this answer has opened.
    pub(crate) fn opened(fd: usize) -> OwnFile {
        OwnFile(fd as c_int)
    }

    /// The same, under a [number](number) that the program does not expect: for a file that a fiber keeps while it
    /// waits.
    pub(crate) fn kept(fd: usize) -> OwnFile {
        match number::raised(fd as c_int) {
            Some(high) => {
                drop(OwnFile::opened(fd));
                OwnFile(high.into_raw_fd())
            }
            None => OwnFile::opened(fd),
        }
    }

    /// Its number.
    pub(crate) fn fd(&self) -> c_int {
        self.0
    }

    /// Leaves it open, for the caller of the call.
    pub(crate) fn keep(self) -> c_int {
        ManuallyDrop::new(self).0
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let _ = sys::call(Number::CLOSE, [self.0.into()]);
    }
}
