//! Numbers of descriptors that are Carefree's own: not the lowest.
//!
//! The kernel gives a new file the lowest free number, and programs rely on it: a program that closes 0 and opens
//! a file expects that file to be its standard input. Worse, one fiber may close a number while another is about to
//! wait for its file. If the carrier makes its ring at that moment, the ring gets the number, and the fiber waits
//! for the ring. So what the runtime keeps open is moved to higher numbers. Each file has its first number for a
//! moment, because the kernel has no call that opens a file under another.
//!
//! They are marked as well: a program may close all numbers from some on (`close_range`, `closefrom`, a loop), and no
//! number that it does not know of should be among them. The calls that close ask [`is_own`] and [`first_own`].

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::kernel;

/// The lowest number that a file is moved to. Above 63 the kernel would have to
/// make the process's table of files larger, for which it waits until no processor uses the old one:
/// milliseconds, where there are several threads.
const LEAST: RawFd = 32;

/// Numbers that can be marked: as many as the kernel gives a process by default (`fs.nr_open`).
const NUMBERS: usize = 1 << 20;

/// A bit for each number: whether it is Carefree's. (Pages of it that no mark is on take no memory.)
static MARKS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// All marked numbers are below this one.
static END: AtomicUsize = AtomicUsize::new(0);

/// The word with a number's mark, and the mark; `None` beyond the marks.
fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((MARKS.get(number / 64)?, 1 << (number % 64)))
}

fn mark(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
        END.fetch_max(fd as usize + 1, Ordering::Relaxed);
    }
}

/// Ends that `fd` is Carefree's own, before it is closed: the next file of that number may be the program's.
pub fn forget(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Ends that of all files: in the child of a fork, which has none of its own yet.
pub fn forget_all() {
    let end = END.load(Ordering::Relaxed);
    for word in MARKS.iter().take(end.div_ceil(64)) {
        word.store(0, Ordering::Relaxed);
    }
}

/// Whether `fd` is the number of a file of Carefree's own. (In the child of a `vfork`, of its parent's.)
#[inline]
#[must_use]
pub fn is_own(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// The first of Carefree's own numbers from `first` to `last`.
#[must_use]
pub fn first_own(first: u32, last: u32) -> Option<u32> {
    let end = END.load(Ordering::Relaxed).min((last as usize).saturating_add(1));
    let mut number = first as usize;
    while number < end {
        let left = MARKS[number / 64].load(Ordering::Relaxed) >> (number % 64);
        if left != 0 {
            let own = number + left.trailing_zeros() as usize;
            return (own < end).then_some(own as u32);
        }
        number = (number / 64 + 1) * 64;
    }
    None
}

/// A file of Carefree's own, which is closed when this is dropped.
#[derive(Debug)]
pub struct Own(RawFd);

impl Own {
    /// Moves a file to a number of 32 or more, if it has a lower one; the kernel then closes it on exec. Where the
    /// kernel refuses (no descriptor is left, or `RLIMIT_NOFILE` is lower), the file keeps its number.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Own {
        let high = copy(fd.as_raw_fd(), LEAST);
        let own = match high {
            Some(high) => {
                close(fd.into_raw_fd());
                high.into_raw_fd()
            }
            None => fd.into_raw_fd(),
        };
        mark(own);
        Own(own)
    }

    /// The number, which the caller [forgets](forget) before it closes it.
    #[must_use]
    pub fn into_raw_fd(self) -> RawFd {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl AsRawFd for Own {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        forget(self.0);
        close(self.0);
    }
}

/// Not libc's `close`: Carefree's stand-in for it waits until all fibers that wait for this number have
/// left, and one of them may be the caller's own.
fn close(fd: RawFd) {
    // SAFETY: the callers own the descriptor.
    let _ = unsafe { kernel::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
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
        let own = Own::new(file);
        assert!(own.as_raw_fd() >= LEAST);
    }

    #[test]
    fn own_files_are_marked_while_they_are_open() {
        let own = Own::new(OwnedFd::from(File::open("/dev/null").unwrap()));
        let fd = own.as_raw_fd();
        let number = fd as u32;
        assert!(is_own(fd));
        assert_eq!(first_own(number, u32::MAX), Some(number));
        assert_eq!(first_own(number, number), Some(number));
        assert!(first_own(0, number).is_some_and(|first| first <= number));
        assert_ne!(first_own(number + 1, u32::MAX), Some(number));
        drop(own);
        // (Another test may have opened one of that number.)
        let given = Own::new(OwnedFd::from(File::open("/dev/null").unwrap())).into_raw_fd();
        forget(given);
        assert!(!is_own(given));
        close(given);
        for beyond in [-1, NUMBERS as RawFd, RawFd::MAX] {
            mark(beyond);
            assert!(!is_own(beyond));
        }
    }

    #[test]
    fn a_file_that_cannot_be_moved_stays() {
        let file = File::open("/dev/null").unwrap();
        assert!(copy(file.as_raw_fd(), RawFd::MAX).is_none());
    }
}
