//! Locks on files: `flock`, `lockf`, and `fcntl`'s.
//!
//! A fiber asks for a lock again and again until it gets it (see [`polling`](crate::wait::polling)). It
//! is woken when a lock on the file is given back in this process, by unlocking or closing, and asks each
//! 20 ms at least for those that other processes hold. The kernel, which sees no waiter, finds
//! no deadlocks (`EDEADLK`) among such fibers, and no order in which they came.
//!
//! *Of those that ask for the same, one asks.* Where ten thousand wait for one lock, to wake all of them each
//! time that it is given back would take a hundred million attempts. So they take turns (see [`file_lock`]):
//! the one that has the turn asks, the others wait for the turn, which comes when that one has
//! the lock or is interrupted. Those that ask for another kind of lock, or for another part of the file, have
//! turns of their own. What the kernel would answer to one, it would answer to the others in its line,
//! except to one whose own open file has got a lock through another fiber meanwhile; so those that wait for
//! the turn ask too, but rarely ([`LOOKS`]).
//!
//! A close gives back all locks of its file, which therefore must be known before: it is looked for only if
//! some fiber waits for a lock then. A fiber that begins to wait between that look and the close is
//! woken with all others that have a turn.
//!
//! A lock of `fcntl`'s is the process's, so fibers do not exclude each other by it, as threads do not.

use std::ffi::{c_int, c_short};
use std::mem::MaybeUninit;

use carefree_reactor::clock::NEVER;
use carefree_runtime::{Reason, lot};
use libc::off_t;

use crate::call::answer::{Answer, answer};
use crate::call::fiber;
use crate::call::sys;
use crate::call::sys::Number;
use crate::call::user::User;
use crate::descriptor;
use crate::wait::file_lock::{self, FileId, FileLock, LockWait, Purpose};
use crate::wait::polling::Polled;

/// How often a fiber asks for a lock while another one's turn is to ask for it, in nanoseconds.
const LOOKS: u64 = 1_000_000_000;

static LOCKS: Polled = Polled::new();

system_call!(fn raw_flock(fd: c_int, operation: c_int) -> c_int = SYS_flock);

/// A file that is about to be closed, if some fiber waits for a lock.
#[derive(Clone, Copy, Debug)]
#[must_use = "the locks of the file are given back"]
pub(crate) struct Closing(Option<FileId>);

/// Looks for the file `fd` before it is closed.
#[inline]
pub(crate) fn closing(fd: c_int) -> Closing {
    Closing(if LOCKS.is_waited() { FileId::of(fd).ok() } else { None })
}

/// Several files are about to be closed.
pub(crate) fn closing_several() -> Closing {
    Closing(None)
}

impl Closing {
    /// It has been closed, and so its locks have been given back.
    #[inline]
    pub(crate) fn closed(self) {
        if LOCKS.is_waited() {
            given_back(self.0);
        }
    }
}

/// A lock on the open file `fd` may have been given back.
#[inline]
pub(crate) fn changed(fd: c_int) {
    if LOCKS.is_waited()
        && let Ok(file) = FileId::of(fd)
    {
        given_back(Some(file));
    }
}

/// A lock on `file` may have been given back, or on any file.
#[cold]
fn given_back(file: Option<FileId>) {
    LOCKS.note();
    match file {
        Some(file) => {
            lot::unpark(key(file), usize::MAX);
        }
        None => file_lock::for_each_held(|held| {
            if held.purpose != Purpose::Steps {
                lot::unpark(key(held.file), usize::MAX);
            }
        }),
    }
}

/// Names the waits for locks on `file`: not an address that anything could have, nor a turn's name.
/// That of another file may be the same, whose waiters then ask in vain.
fn key(file: FileId) -> usize {
    1 << 63 | 1 << 61 | 1 << 60 | (file.hash() >> 4) as usize
}

interpose! { anywhere
    /// `flock(2)`.
    safe fn flock(fd: c_int, operation: c_int) -> c_int, else raw_flock {
        let waits = operation & (libc::LOCK_NB | libc::LOCK_UN) == 0;
        if !waits || !fiber::on_fiber() {
            let result = original(fd, operation);
            if operation & libc::LOCK_UN == 0 {
                descriptor::claimed(fd);
            }
            changed(fd);
            return result;
        }
        descriptor::claimed(fd);
        let arguments = [fd.into(), (operation | libc::LOCK_NB).into()];
        let kind = operation & (libc::LOCK_SH | libc::LOCK_EX);
        let purpose =
            Purpose::Lock { command: libc::LOCK_UN, kind, start: 0, length: 0, from: libc::SEEK_SET };
        let locked = until_free(fd, purpose, || {
            sys::call(Number::FLOCK, arguments)
        });
        answer(locked) as c_int
    }
}

/// Defines both names of `lockf`.
macro_rules! lockf {
    ($($name:ident),*) => {$(
        interpose! { anywhere
            #[doc = concat!("`", stringify!($name), "(3)`.")]
            safe fn $name(fd: c_int, command: c_int, length: off_t) -> c_int, linked "__lockf64" {
                if command != libc::F_LOCK || !fiber::on_fiber() {
                    let result = original(fd, command, length);
                    changed(fd);
                    return result;
                }
                // SAFETY: zeros are a lock from the file's position on.
                let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
                lock.l_type = libc::F_WRLCK as c_short;
                lock.l_whence = libc::SEEK_CUR as c_short;
                lock.l_len = length;
                let locked = set(fd, libc::F_SETLKW, User::lend(&mut lock));
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
        descriptor::claimed(fd);
    }
}

/// `fcntl` with a command that [`waits`].
pub(crate) fn set(fd: c_int, command: c_int, lock: User<libc::flock>) -> Answer {
    let command = if command == libc::F_SETLKW { libc::F_SETLK } else { libc::F_OFD_SETLK };
    note(fd, command);
    let arguments = [fd.into(), command.into(), lock.into()];
    let attempt = || sys::call(Number::FCNTL, arguments);
    // The kernel says first whether there is a lock to be read.
    let answer = attempt();
    if !is_taken(answer) {
        changed(fd);
        return answer;
    }
    // SAFETY: the kernel has read it.
    let libc::flock { l_type, l_whence, l_start, l_len, .. } = unsafe { lock.read_seen() };
    // Relative to something of the open file's, it is the same only by the same number.
    let from = if l_whence == libc::SEEK_SET as c_short { -1 } else { fd << 2 | l_whence as c_int };
    let purpose =
        Purpose::Lock { command, kind: l_type.into(), start: l_start, length: l_len, from };
    until_free(fd, purpose, attempt)
}

fn is_taken(answer: Answer) -> bool {
    matches!(answer, Err(libc::EAGAIN | libc::EACCES))
}

/// Asks by `lock` until it is answered otherwise than that another has the lock.
fn until_free(fd: c_int, purpose: Purpose, lock: impl Fn() -> Answer) -> Answer {
    let attempt = || Some(lock()).filter(|answer| !is_taken(*answer));
    let answer = attempt();
    // One for writing may have become one for reading, or none: `flock` gives back what it had of another
    // kind even where it fails.
    changed(fd);
    if let Some(answer) = answer {
        return answer;
    }
    let held = FileLock { file: FileId::of(fd)?, purpose };
    let reason = Reason::FileLock;
    let wait = LockWait { reason, deadline: NEVER, late: libc::EINTR, looks: LOOKS };
    let answer = file_lock::with_lock_unless(held, &wait, attempt, || {
        LOCKS.poll_by(key(held.file), reason, NEVER, libc::EINTR, attempt)?
    })?;
    changed(fd);
    answer
}
