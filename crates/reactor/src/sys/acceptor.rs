//! Accepting without waiting, whatever the listener's mode.
//!
//! The only call for that is io_uring's, with `IORING_ACCEPT_DONTWAIT` (Linux 6.10). It is made
//! through a small ring in which nothing ever waits: the answer is there when the call that submits
//! it returns. So the ring holds no listener when its process is killed.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, opcode, squeue::Entry, types};

use super::raw::syscall;
use crate::op::Attempt;

/// `IORING_ACCEPT_DONTWAIT`, one of the flags of accepting that stand in `ioprio`.
const DONTWAIT: u16 = 1 << 1;

pub(crate) struct Acceptor {
    ring: IoUring,
    /// The kernel has not taken an entry, and would answer it at the next call.
    stuck: bool,
}

/// Whether the kernel was found to be older than Linux 6.10, so that it need not be asked again.
static IS_OLD: AtomicBool = AtomicBool::new(false);

fn ring() -> io::Result<IoUring> {
    IoUring::builder().dontfork().build(1)
}

impl Acceptor {
    /// # Errors
    /// What the kernel said; that it is older than Linux 6.10.
    pub(crate) fn new() -> io::Result<Acceptor> {
        if IS_OLD.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut acceptor = Acceptor { ring: ring()?, stuck: false };
        // SAFETY: null pointers, so that no address is written.
        match unsafe { acceptor.accept(-1, std::ptr::null_mut(), std::ptr::null_mut(), 0) } {
            Attempt::Done(result) if result == -libc::EBADF => Ok(acceptor),
            tried => {
                // The flag is unknown. Whatever else it said, the next one may be told otherwise.
                IS_OLD.fetch_or(tried == Attempt::Done(-libc::EINVAL), Ordering::Relaxed);
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// `accept4(2)`, if it need not wait.
    ///
    /// # Safety
    /// The pointers are valid for the system call.
    pub(crate) unsafe fn accept(
        &mut self,
        fd: RawFd,
        address: *mut libc::sockaddr,
        length: *mut libc::socklen_t,
        flags: i32,
    ) -> Attempt {
        // An accept that is answered when its caller has gone would lose a connection, so a ring in
        // which one is left is not used again.
        if self.stuck {
            match ring() {
                Ok(ring) => *self = Acceptor { ring, stuck: false },
                Err(error) => return Attempt::Done(-error.raw_os_error().unwrap_or(libc::ENOMEM)),
            }
        }
        let mut entry = opcode::Accept::new(types::Fd(fd), address, length).flags(flags).build();
        const { assert!(size_of::<Entry>() == 64) };
        // SAFETY: an entry is a `struct io_uring_sqe`, whose second half-word is `ioprio`.
        unsafe { (&raw mut entry).cast::<u16>().add(1).write(DONTWAIT) };
        // SAFETY: the caller's promise; the call is over when this function returns.
        let queued = unsafe { self.ring.submission().push(&entry) };
        queued.expect("the ring is empty");
        let args = [self.ring.as_raw_fd() as usize, 1, 0, 0, 0, 0];
        // SAFETY: hands over the entry queued above.
        if unsafe { syscall(libc::SYS_io_uring_enter, args) } != Ok(1) {
            self.stuck = true;
            return Attempt::Done(-libc::ENOMEM);
        }
        let done = self.ring.completion().next().expect("an accept that does not wait is over");
        match done.result() {
            result if result == -libc::EAGAIN => Attempt::Again,
            result => Attempt::Done(result),
        }
    }

    /// Lets go of a ring that belongs to the parent process.
    pub(crate) fn abandon(self) {
        // SAFETY: the descriptor is this process's own copy. The ring is not mapped here
        // (`dontfork`), so it is not unmapped either.
        unsafe {
            let _ = syscall(libc::SYS_close, [self.ring.as_raw_fd() as usize, 0, 0, 0, 0, 0]);
        }
        std::mem::forget(self);
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Acceptor").field("stuck", &self.stuck).finish_non_exhaustive()
    }
}
