//! A bell: wakes a thread that sleeps in its ring or in epoll instead of on a futex.

use super::raw::syscall;
use carefree_ground::fatal;
use carefree_ground::number::Own;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// An eventfd, made when a driver first listens. A ring could also wait for a futex, but only since
/// Linux 6.7 and with a new entry for each wake-up; or get a message from another ring, but a waker
/// need not have one. An eventfd works with epoll too.
///
/// It is never read. Rings and epoll instances watch it edge-triggered, so each write is reported,
/// and its counter takes 2^64 of them.
#[derive(Debug)]
pub(crate) struct Bell(OnceLock<Own>);

impl Bell {
    pub(crate) const fn new() -> Self {
        Bell(OnceLock::new())
    }

    /// Makes the descriptor, unless it exists.
    pub(crate) fn hang(&self) -> io::Result<()> {
        if self.0.get().is_some() {
            return Ok(());
        }
        let flags = (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as usize;
        // SAFETY: eventfd2 accesses no memory.
        let fd = unsafe { syscall(libc::SYS_eventfd2, [0, flags, 0, 0, 0, 0]) }
            .map_err(io::Error::from_raw_os_error)?;
        // SAFETY: a new descriptor, which nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        // If another thread was faster, this descriptor is closed again.
        let _ = self.0.set(Own::new(fd));
        Ok(())
    }

    /// The descriptor to watch.
    ///
    /// # Panics
    /// Before [`hang`](Bell::hang).
    pub(crate) fn fd(&self) -> RawFd {
        self.0.get().expect("the bell is hung first").as_raw_fd()
    }

    /// Wakes the listener, even if it begins to listen only afterwards.
    pub(crate) fn ring(&self) {
        let one = 1u64;
        let args = [self.fd() as usize, &raw const one as usize, size_of::<u64>(), 0, 0, 0];
        // SAFETY: the kernel reads the eight bytes of `one`.
        match unsafe { syscall(libc::SYS_write, args) } {
            // The counter is never full, so this does not wait.
            Ok(_) => {}
            // No panic: the caller has made a fiber ready that may use the frames above.
            Err(errno) => fatal::abort(format_args!(
                "a carrier cannot be woken: writing to its eventfd failed with errno {errno}: has \
                 the program closed a descriptor that it did not open?"
            )),
        }
    }
}
