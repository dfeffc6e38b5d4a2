//! Numbers of descriptors that are Carefree's own: not the lowest.
//!
//! The kernel gives a new file the lowest free number, and programs rely on it: a program that closes 0 and opens
//! a file expects that file to be its standard input. Worse, one fiber may close a number while another is about to
//! wait for its file. If the carrier makes its ring at that moment, the ring gets the number, and the fiber waits
//! for the ring. So what the runtime keeps open is moved to higher numbers. Each file has its first number for a
//! moment, because the kernel has no call that opens a file under another.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use crate::kernel;

/// The lowest number that a file is moved to. Above 63 the kernel would have to
/// make the process's table of files larger, for which it waits until no processor uses the old one:
/// milliseconds, where there are several threads.
const LEAST: RawFd = 32;

/// Moves a file to a number of 32 or more, if it has a lower one; the kernel then closes it on exec. Where the
/// kernel refuses (no descriptor is left, or `RLIMIT_NOFILE` is lower), the file keeps its number.
#[must_use]
pub fn raise(fd: OwnedFd) -> OwnedFd {
    let Some(high) = copy(fd.as_raw_fd(), LEAST) else { return fd };
    // Not by libc's `close`: Carefree's stand-in for it waits until all fibers that wait for this number have
    // left, and one of them may be the caller's own.
    // SAFETY: the descriptor is owned here.
    let _ = unsafe { kernel::call(libc::SYS_close, [fd.into_raw_fd() as usize, 0, 0, 0, 0, 0]) };
    high
}

/// The same file under a number of `least` or more; `None` if it has one, or where the kernel refuses.
fn copy(fd: RawFd, least: RawFd) -> Option<OwnedFd> {
    if fd >= least {
        return None;
    }
    let arguments = [fd as usize, libc::F_DUPFD_CLOEXEC as usize, least as usize, 0, 0, 0];
    // SAFETY: no memory is involved.
    let high = unsafe { kernel::call(libc::SYS_fcntl, arguments) }.ok()?;
    // SAFETY: a new descriptor, which nothing else owns.
    Some(unsafe { OwnedFd::from_raw_fd(high as RawFd) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_is_moved() {
        let file = OwnedFd::from(File::open("/dev/null").unwrap());
        let low = file.as_raw_fd();
        let high = copy(low, 300).unwrap();
        assert!(high.as_raw_fd() >= 300);
        // SAFETY: no memory is involved.
        let flags = unsafe { libc::fcntl(high.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        assert!(copy(high.as_raw_fd(), 300).is_none(), "it is there");
        let raised = raise(file);
        assert!(raised.as_raw_fd() >= LEAST);
    }

    #[test]
    fn a_file_that_cannot_be_moved_stays() {
        let file = File::open("/dev/null").unwrap();
        assert!(copy(file.as_raw_fd(), RawFd::MAX).is_none());
    }
}
