//! Accepting without waiting, whatever the listener's mode.
//!
//! Only io_uring can do that, with `IORING_ACCEPT_DONTWAIT` (Linux 6.10). The accept is submitted
//! to a small ring in which nothing ever waits: it is complete when the call that submits
//! it returns. So the ring holds no listener when its process is killed.
//!
//! # In the child of a fork
//!
//! While one thread forks, another may be replacing this ring. So the child reads one word,
//! [`Acceptor::number`], which is the ring's number only while the ring exists: it
//! is written after the ring is made and cleared before the ring is closed. Since the kernel copies
//! the table of files and the memory at different times, the child also asks the kernel whether the
//! number is a ring's. At worst the child keeps a descriptor that it does not need.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use carefree_ground::{fatal, number};
use io_uring::{opcode, squeue::Entry, types};

use super::make_ring::{OwnRing, make_ring};
use super::raw::syscall;
use crate::op::Attempt;

/// `IORING_ACCEPT_DONTWAIT`, a flag of accepting that is passed in `ioprio`.
const DONTWAIT: u16 = 1 << 1;

/// Not a descriptor.
const NONE: RawFd = -1;

pub(crate) struct Acceptor {
    /// `None` until [`make`](Acceptor::make) has succeeded.
    ring: Option<OwnRing>,
    /// The ring's number, for the child of a fork.
    number: AtomicI32,
    /// Whether the kernel has left an entry in the ring, which it would execute at the next call.
    stuck: bool,
}

/// Whether the kernel was found to be older than Linux 6.10.
static IS_OLD: AtomicBool = AtomicBool::new(false);

fn ring() -> io::Result<OwnRing> {
    make_ring(1, 0, 0)
}

impl Acceptor {
    /// An acceptor without a ring.
    pub(crate) fn none() -> Acceptor {
        Acceptor { ring: None, number: AtomicI32::new(NONE), stuck: false }
    }

    /// This acceptor, if it has a ring.
    pub(crate) fn as_mut(&mut self) -> Option<&mut Acceptor> {
        Some(self).filter(|acceptor| acceptor.is_there())
    }

    pub(crate) fn is_there(&self) -> bool {
        self.ring.is_some()
    }

    /// Makes the ring.
    ///
    /// # Errors
    /// The kernel's error; [`Unsupported`](io::ErrorKind::Unsupported) before Linux 6.10.
    pub(crate) fn make(&mut self) -> io::Result<()> {
        if IS_OLD.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.put(Some(ring()?));
        // SAFETY: with null pointers no address is written.
        match unsafe { self.accept(-1, std::ptr::null_mut(), std::ptr::null_mut(), 0) } {
            Attempt::Done(result) if result == -libc::EBADF => Ok(()),
            tried => {
                self.put(None);
                // EINVAL: the flag is unknown. Other errors may not occur again.
                IS_OLD.fetch_or(tried == Attempt::Done(-libc::EINVAL), Ordering::Relaxed);
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// Replaces the ring by another, or none.
    fn put(&mut self, ring: Option<OwnRing>) {
        self.number.store(NONE, Ordering::SeqCst);
        self.ring = ring;
        self.stuck = false;
        if let Some(ring) = &self.ring {
            self.number.store(ring.as_raw_fd(), Ordering::SeqCst);
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
        // An accept that is executed after its caller has given up would lose a connection, so a ring
        // with an entry left in it is not used again.
        if self.stuck {
            match ring() {
                Ok(ring) => self.put(Some(ring)),
                Err(error) => return Attempt::Done(-error.raw_os_error().unwrap_or(libc::ENOMEM)),
            }
        }
        let ring = self.ring.as_mut().expect("the ring was made");
        let mut entry = opcode::Accept::new(types::Fd(fd), address, length).flags(flags).build();
        const { assert!(size_of::<Entry>() == 64) };
        // SAFETY: an entry is a `struct io_uring_sqe`, of which `ioprio` is the second half-word.
        unsafe { (&raw mut entry).cast::<u16>().add(1).write(DONTWAIT) };
        // SAFETY: the pointers are valid for the system call, which is complete when this function
        // returns, unless the ring is never entered again.
        let queued = unsafe { ring.submission().push(&entry) };
        queued.expect("the ring is empty");
        let args = [ring.as_raw_fd() as usize, 1, 0, 0, 0, 0];
        // SAFETY: submits the entry queued above.
        if unsafe { syscall(libc::SYS_io_uring_enter, args) } != Ok(1) {
            self.stuck = true;
            return Attempt::Done(-libc::ENOMEM);
        }
        match ring.completion().next().map(|done| done.result()) {
            Some(result) if result == -libc::EAGAIN => Attempt::Again,
            Some(result) => Attempt::Done(result),
            // No panic: the kernel still has the caller's pointers.
            None => {
                fatal::abort(format_args!("the kernel waits with an accept that must not wait"))
            }
        }
    }

    /// Discards the parent's ring in the child of a fork. A thread of the parent may have been
    /// replacing it.
    pub(crate) fn abandon(self) {
        // The ring stays mapped here, two pages: which ring's mapping the memory names is not known.
        let acceptor = ManuallyDrop::new(self);
        let number = acceptor.number.load(Ordering::SeqCst);
        number::forget(number);
        let number = number as usize;
        // SAFETY: enters the ring, if the number is a ring's, to do nothing; then closes this
        // process's copy of the descriptor, which nothing else uses.
        unsafe {
            if syscall(libc::SYS_io_uring_enter, [number, 0, 0, 0, 0, 0]) == Ok(0) {
                let _ = syscall(libc::SYS_close, [number, 0, 0, 0, 0, 0]);
            }
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.put(None);
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Acceptor").field("stuck", &self.stuck).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::AtomicBool;
    use std::{fs, ptr, thread};

    use super::*;

    /// The files of this process by number.
    fn files() -> Vec<Option<std::path::PathBuf>> {
        (0..256).map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).ok()).collect()
    }

    /// Whether the child of a fork closes no file but the ring, at whatever point the thread was
    /// that makes the ring.
    fn close_in_child(acceptor: *const Acceptor) -> bool {
        let before = files();
        // SAFETY: the child's copy, which no thread of the child uses.
        unsafe { acceptor.read() }.abandon();
        let after = files();
        let is_ring = |path: &std::path::Path| path.to_string_lossy().contains("io_uring");
        let mut closed = before.iter().zip(&after).filter(|(before, after)| before != after);
        closed.all(|(before, _)| before.as_deref().is_some_and(is_ring))
    }

    #[test]
    fn a_child_closes_no_other_file() {
        // Leaked, so that it stays where children read it.
        let acceptor = Box::leak(Box::new(Acceptor::none()));
        if let Err(error) = acceptor.make() {
            return println!("skipped: no ring that accepts without waiting: {error}");
        }
        let stop = AtomicBool::new(false);
        let place = &raw const *acceptor as usize;
        thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // As if the kernel had left an entry.
                    acceptor.stuck = true;
                    // SAFETY: with null pointers no address is written.
                    unsafe { acceptor.accept(-1, ptr::null_mut(), ptr::null_mut(), 0) };
                }
            });
            scope.spawn(|| {
                let other = File::open("/dev/null").unwrap();
                while !stop.load(Ordering::Relaxed) {
                    drop(other.try_clone().unwrap());
                }
            });
            for _ in 0..200 {
                // SAFETY: the child only reads links and exits.
                let child = unsafe { libc::fork() };
                assert!(child >= 0);
                if child == 0 {
                    let right = close_in_child(place as *const Acceptor);
                    // SAFETY: no preconditions.
                    unsafe { libc::_exit(if right { 0 } else { 1 }) };
                }
                let mut status = 0;
                // SAFETY: only writes the status.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                stop.fetch_or(status != 0, Ordering::Relaxed);
                assert_eq!(status, 0, "another file was closed");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
