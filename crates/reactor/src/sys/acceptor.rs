//! Accepting without waiting, whatever the listener's mode.
//!
//! The only call for that is io_uring's, with `IORING_ACCEPT_DONTWAIT` (Linux 6.10). It is made
//! through a small ring in which nothing ever waits: the answer is there when the call that submits
//! it returns. So the ring holds no listener when its process is killed.

//!
//! # In the child of a fork
//!
//! The thread that forks is another one than that which may be making this ring anew just then. So the
//! child looks at one word, [`Acceptor::number`], which is the ring's number while that is the ring's: it
//! is written after the ring is made and wiped before the ring is closed. And since the kernel copies
//! the table of files and the memory at two moments, it asks the kernel whether the number is a ring's.
//! At worst the child keeps a number that it has no use for.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use io_uring::{IoUring, opcode, squeue::Entry, types};

use super::raw::syscall;
use crate::op::Attempt;

/// `IORING_ACCEPT_DONTWAIT`, one of the flags of accepting that stand in `ioprio`.
const DONTWAIT: u16 = 1 << 1;

/// Not a descriptor.
const NONE: RawFd = -1;

pub(crate) struct Acceptor {
    /// None until it is wanted, and where it cannot be had.
    ring: Option<IoUring>,
    /// The ring's number, for the child of a fork.
    number: AtomicI32,
    /// The kernel has not taken an entry, and would answer it at the next call.
    stuck: bool,
}

/// Whether the kernel was found to be older than Linux 6.10, so that it need not be asked again.
static IS_OLD: AtomicBool = AtomicBool::new(false);

fn ring() -> io::Result<IoUring> {
    IoUring::builder().dontfork().build(1)
}

impl Acceptor {
    /// One that is not made yet.
    pub(crate) fn none() -> Acceptor {
        Acceptor { ring: None, number: AtomicI32::new(NONE), stuck: false }
    }

    /// Itself, if it was made.
    pub(crate) fn as_mut(&mut self) -> Option<&mut Acceptor> {
        Some(self).filter(|acceptor| acceptor.is_there())
    }

    pub(crate) fn is_there(&self) -> bool {
        self.ring.is_some()
    }

    /// Makes it.
    ///
    /// # Errors
    /// What the kernel said; that it is older than Linux 6.10.
    pub(crate) fn make(&mut self) -> io::Result<()> {
        if IS_OLD.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.put(Some(ring()?));
        // SAFETY: null pointers, so that no address is written.
        match unsafe { self.accept(-1, std::ptr::null_mut(), std::ptr::null_mut(), 0) } {
            Attempt::Done(result) if result == -libc::EBADF => Ok(()),
            tried => {
                self.put(None);
                // The flag is unknown. Whatever else it said, the next one may be told otherwise.
                IS_OLD.fetch_or(tried == Attempt::Done(-libc::EINVAL), Ordering::Relaxed);
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// Has another ring from now on, or none.
    fn put(&mut self, ring: Option<IoUring>) {
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
        // An accept that is answered when its caller has gone would lose a connection, so a ring in
        // which one is left is not used again.
        if self.stuck {
            match ring() {
                Ok(ring) => self.put(Some(ring)),
                Err(error) => return Attempt::Done(-error.raw_os_error().unwrap_or(libc::ENOMEM)),
            }
        }
        let ring = self.ring.as_mut().expect("it was made");
        let mut entry = opcode::Accept::new(types::Fd(fd), address, length).flags(flags).build();
        const { assert!(size_of::<Entry>() == 64) };
        // SAFETY: an entry is a `struct io_uring_sqe`, whose second half-word is `ioprio`.
        unsafe { (&raw mut entry).cast::<u16>().add(1).write(DONTWAIT) };
        // SAFETY: the caller's promise; the call is over when this function returns.
        let queued = unsafe { ring.submission().push(&entry) };
        queued.expect("the ring is empty");
        let args = [ring.as_raw_fd() as usize, 1, 0, 0, 0, 0];
        // SAFETY: hands over the entry queued above.
        if unsafe { syscall(libc::SYS_io_uring_enter, args) } != Ok(1) {
            self.stuck = true;
            return Attempt::Done(-libc::ENOMEM);
        }
        let done = ring.completion().next().expect("an accept that does not wait is over");
        match done.result() {
            result if result == -libc::EAGAIN => Attempt::Again,
            result => Attempt::Done(result),
        }
    }

    /// Lets go of a ring that belongs to the parent process, where a thread may just have been making it
    /// anew.
    pub(crate) fn abandon(self) {
        // The ring is not mapped here (`dontfork`), so it is not unmapped either.
        let acceptor = ManuallyDrop::new(self);
        let number = acceptor.number.load(Ordering::SeqCst) as usize;
        // SAFETY: asks a ring, if it is one, to do nothing; then closes this process's own copy of it.
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

    /// What the numbers of this process are.
    fn files() -> Vec<Option<std::path::PathBuf>> {
        (0..256).map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).ok()).collect()
    }

    /// What the child of a fork closes: no other file, whatever the thread was at that makes the ring.
    fn close_in_child(acceptor: *const Acceptor) -> bool {
        let before = files();
        // SAFETY: the child's own copy, of which it has no thread that makes it.
        unsafe { acceptor.read() }.abandon();
        let after = files();
        let is_ring = |path: &std::path::Path| path.to_string_lossy().contains("io_uring");
        let mut closed = before.iter().zip(&after).filter(|(before, after)| before != after);
        closed.all(|(before, _)| before.as_deref().is_some_and(is_ring))
    }

    #[test]
    fn a_child_closes_no_other_file() {
        // It stays where children look for it.
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
                    // As when the kernel has not taken an entry.
                    acceptor.stuck = true;
                    // SAFETY: no address is written.
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
                // SAFETY: the child looks at files and ends.
                let child = unsafe { libc::fork() };
                assert!(child >= 0);
                if child == 0 {
                    let right = close_in_child(place as *const Acceptor);
                    // SAFETY: leaves at once.
                    unsafe { libc::_exit(if right { 0 } else { 1 }) };
                }
                let mut status = 0;
                // SAFETY: our own child, and a place for its status.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                stop.fetch_or(status != 0, Ordering::Relaxed);
                assert_eq!(status, 0, "another file was closed");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
