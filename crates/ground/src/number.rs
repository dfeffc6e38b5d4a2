//! Numbers of descriptors that are Carefree's own: not the lowest.
//!
//! The kernel gives a new file the lowest free number, and programs rely on it: who closes 0 and opens a
//! file means that to be the new standard input. Worse, a number that one fiber closes while another is about
//! to wait for its file would become, say, that of the ring which the wait needs, and the wait be for the ring.
//! So what the runtime keeps open is moved out of the way. The file has its first number for a moment, for
//! the kernel has no call that opens at another.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use crate::kernel;

/// The numbers that files of the runtime's own are moved to begin here. Above 63 the kernel would have to
/// make the process's table of files larger, for which it waits until no processor uses the old one:
/// milliseconds, where there are several threads.
const LEAST: RawFd = 32;

/// Moves a file to a number above those that a program uses as a rule. It is closed on exec then. Where that
/// fails, for want of descriptors or for a limit below, it keeps its number.
#[must_use]
pub fn raise(fd: OwnedFd) -> OwnedFd {
    let Some(high) = raised(fd.as_raw_fd()) else { return fd };
    // Not by libc's `close`, in whose place Carefree drives out the fibers that wait for a file of that number: such
    // as one that is about to learn that its file was closed.
    // SAFETY: the descriptor is owned here.
    let _ = unsafe { kernel::call(libc::SYS_close, [fd.into_raw_fd() as usize, 0, 0, 0, 0, 0]) };
    high
}

/// The same file under a high number; `None` if its own is high, or where [`raise`] would fail.
pub fn raised(fd: RawFd) -> Option<OwnedFd> {
    copy(fd, LEAST)
}

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
