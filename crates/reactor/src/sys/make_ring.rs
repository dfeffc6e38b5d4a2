//! Making a ring under a [high number](carefree_ground::number).
//!
//! `io_uring::Builder` leaves the ring under the lowest free number, and an [`IoUring`] cannot change its number
//! later. So this module calls the kernel itself, and makes the [`IoUring`] from the kernel's answer.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use carefree_ground::number::{self, Own};
use io_uring::{IoUring, Parameters};

use super::raw::syscall;

/// `IORING_SETUP_` flags.
pub(crate) const CQSIZE: u32 = 1 << 3;
pub(crate) const CLAMP: u32 = 1 << 4;
pub(crate) const SUBMIT_ALL: u32 = 1 << 7;
pub(crate) const COOP_TASKRUN: u32 = 1 << 8;
pub(crate) const TASKRUN_FLAG: u32 = 1 << 9;
pub(crate) const SINGLE_ISSUER: u32 = 1 << 12;
pub(crate) const DEFER_TASKRUN: u32 = 1 << 13;

/// `struct io_uring_params`: what is asked for, and what the kernel adds about the ring that it has made.
#[repr(C)]
struct Asked {
    submissions: u32,
    completions: u32,
    flags: u32,
    answered: [u32; 27],
}

/// A ring under a number of Carefree's own.
pub(crate) struct OwnRing(IoUring);

impl Deref for OwnRing {
    type Target = IoUring;

    fn deref(&self) -> &IoUring {
        &self.0
    }
}

impl DerefMut for OwnRing {
    fn deref_mut(&mut self) -> &mut IoUring {
        &mut self.0
    }
}

impl Drop for OwnRing {
    fn drop(&mut self) {
        // It closes its number by libc's `close`, which passes over those that are Carefree's own.
        number::forget(self.0.as_raw_fd());
    }
}

/// Makes a ring with room for so many `submissions`, and with [`CQSIZE`] for so many `completions`.
///
/// It is mapped in the child of a fork as well, which has to drop it.
///
/// # Errors
/// The kernel's error.
pub(crate) fn make_ring(submissions: u32, completions: u32, flags: u32) -> io::Result<OwnRing> {
    let mut asked = Asked { submissions: 0, completions, flags, answered: [0; 27] };
    let arguments = [submissions as usize, (&raw mut asked) as usize, 0, 0, 0, 0];
    const { assert!(size_of::<Asked>() == size_of::<Parameters>() && size_of::<Asked>() == 120) };
    // SAFETY: the kernel reads and writes a `struct io_uring_params`.
    let fd = unsafe { syscall(libc::SYS_io_uring_setup, arguments) }
        .map_err(io::Error::from_raw_os_error)?;
    // SAFETY: a new descriptor, which nothing else owns; the kernel closes it on exec.
    let fd = Own::new(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
    // SAFETY: `Parameters` is a transparent `struct io_uring_params`: integers, all of which are initialised. The
    // kernel has filled them in for this ring. The descriptor is owned here and given away.
    unsafe {
        let parameters = std::mem::transmute::<Asked, Parameters>(asked);
        IoUring::from_fd(fd.into_raw_fd(), parameters).map(OwnRing)
    }
}
