//! Files that a call opens for itself, and closes.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};

use carefree_ground::number::{self, Own};

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

    /// The same under a [number of Carefree's own](number): for a file that is open while a fiber waits, when the
    /// program may open and close others.
    pub(crate) fn kept(fd: usize) -> OwnFile {
        // SAFETY: the system call has just opened it, and the caller gives it away.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as c_int) };
        OwnFile(Own::new(fd).into_raw_fd())
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
        number::forget(self.0);
        let _ = sys::call(Number::CLOSE, [self.0.into()]);
    }
}
