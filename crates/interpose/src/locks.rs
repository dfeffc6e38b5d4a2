//! Locks on files: `flock`, `lockf`, and `fcntl`'s.
//!
//! A fiber asks for a lock again and again until it gets it (see `patience`). It
//! is woken when a lock is given back in this process, by unlocking or closing, and asks each
//! 20 ms at least for those that other processes hold. The kernel, which sees nobody waiting, finds
//! no deadlocks (`EDEADLK`) among such fibers, and no order in which they came.
//!
//! A lock of `fcntl`'s is the process's, so fibers do not exclude each other by it, as threads do not.

use std::ffi::{c_int, c_short};
use std::mem::MaybeUninit;

use carefree_context::kernel;
use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use libc::off_t;

use crate::fiber::{self, answer};
use crate::files;
use crate::parking::Answer;
use crate::patience::Matter;

static LOCKS: Matter = Matter::new();

system_call!(fn raw_flock(fd: c_int, operation: c_int) -> c_int = SYS_flock);

/// A lock on some file may have been given back.
#[inline]
pub(crate) fn given_back() {
    LOCKS.happened();
}

interpose! { anywhere
    /// `flock(2)`.
    fn flock(fd: c_int, operation: c_int) -> c_int, else raw_flock {
        let waits = operation & (libc::LOCK_NB | libc::LOCK_UN) == 0;
        if !waits || !fiber::on_fiber() {
            // SAFETY: no memory is involved.
            let result = unsafe { original(fd, operation) };
            if operation & libc::LOCK_UN == 0 {
                files::claimed(fd);
            }
            given_back();
            return result;
        }
        files::claimed(fd);
        let arguments = [fd as usize, (operation | libc::LOCK_NB) as usize, 0, 0, 0, 0];
        let locked = until_free(|| {
            // SAFETY: no memory is involved.
            unsafe { kernel::call(libc::SYS_flock, arguments) }
        });
        answer(locked) as c_int
    }
}

/// Defines both names of `lockf`.
macro_rules! lockf {
    ($($name:ident),*) => {$(
        interpose! { anywhere
            #[doc = concat!("`", stringify!($name), "(3)`.")]
            fn $name(fd: c_int, command: c_int, length: off_t) -> c_int, linked "__lockf64" {
                if command != libc::F_LOCK || !fiber::on_fiber() {
                    // SAFETY: no memory is involved.
                    let result = unsafe { original(fd, command, length) };
                    given_back();
                    return result;
                }
                // SAFETY: zeros are a lock from the file's position on.
                let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
                lock.l_type = libc::F_WRLCK as c_short;
                lock.l_whence = libc::SEEK_CUR as c_short;
                lock.l_len = length;
                // SAFETY: a lock that stays as long as this.
                let locked = unsafe { set(fd, libc::F_SETLKW, (&raw const lock) as usize) };
                answer(locked) as c_int
            }
        }
    )*};
}

lockf!(lockf, lockf64);

/// Whether a command of `fcntl`'s waits for a lock.
pub(crate) fn waits(command: c_int) -> bool {
    matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW)
}

/// Whether a command of `fcntl`'s may give a lock back.
pub(crate) fn may_give_back(command: c_int) -> bool {
    matches!(command, libc::F_SETLK | libc::F_OFD_SETLK) || waits(command)
}

/// Takes note of a command of `fcntl`'s that may lock an open file.
pub(crate) fn note(fd: c_int, command: c_int) {
    if matches!(command, libc::F_OFD_SETLK | libc::F_OFD_SETLKW) {
        files::claimed(fd);
    }
}

/// `fcntl` with a command that [`waits`].
///
/// # Safety
/// As for libc's.
pub(crate) unsafe fn set(fd: c_int, command: c_int, lock: usize) -> Answer {
    let command = if command == libc::F_SETLKW { libc::F_SETLK } else { libc::F_OFD_SETLK };
    note(fd, command);
    let locked = until_free(|| {
        // SAFETY: the caller's promise.
        unsafe { kernel::call(libc::SYS_fcntl, [fd as usize, command as usize, lock, 0, 0, 0]) }
    });
    // A lock for writing may have become one for reading, or none.
    given_back();
    locked
}

fn until_free(mut lock: impl FnMut() -> Answer) -> Answer {
    LOCKS.pursue(Reason::FileLock, NEVER, libc::EINTR, || match lock() {
        Err(libc::EAGAIN | libc::EACCES) => None,
        answer => Some(answer),
    })?
}
