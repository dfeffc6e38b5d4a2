//! A bell: how a thread is roused that sleeps in its ring or in epoll instead of on a futex.

use super::raw::syscall;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// An eventfd, once somebody listens. A ring could also wait for a futex, but only since Linux 6.7
/// and by a new entry for each wake-up; or be sent a message by another ring, but whoever wakes a
/// carrier need not have one. An eventfd serves epoll too.
///
/// It is never read. Ring and epoll alike are told to report each ring of it ("edge-triggered"),
/// and its counter takes 2^64 of them.
#[derive(Debug)]
pub(crate) struct Bell(OnceLock<OwnedFd>);

impl Bell {
    pub(crate) const fn new() -> Self {
        Bell(OnceLock::new())
    }

    /// Makes the descriptor unless it is there.
    pub(crate) fn hang(&self) -> io::Result<()> {
        if self.0.get().is_some() {
            return Ok(());
        }
        let flags = (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as usize;
        // SAFETY: eventfd2 touches no memory.
        let fd = unsafe { syscall(libc::SYS_eventfd2, [0, flags, 0, 0, 0, 0]) }
            .map_err(io::Error::from_raw_os_error)?;
        // SAFETY: just made, owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        // Somebody else was faster: one is enough, and ours is closed.
        let _ = self.0.set(fd);
        Ok(())
    }

    /// The descriptor to listen to.
    ///
    /// # Panics
    /// Before [`hang`](Bell::hang).
    pub(crate) fn fd(&self) -> RawFd {
        self.0.get().expect("hung before it is listened to").as_raw_fd()
    }

    /// Rouses the listener, also one who only begins to listen after this.
    pub(crate) fn ring(&self) {
        let one = 1u64;
        let args = [self.fd() as usize, &raw const one as usize, size_of::<u64>(), 0, 0, 0];
        // SAFETY: the kernel reads eight bytes that live until the call returns.
        match unsafe { syscall(libc::SYS_write, args) } {
            // Nothing to wait for: the counter is never full.
            Ok(_) => {}
            Err(errno) => panic!(
                "a carrier cannot be woken: writing to its eventfd failed with errno {errno}; has \
                 the program closed a descriptor that it did not open?"
            ),
        }
    }
}
