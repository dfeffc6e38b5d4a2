//! Locks on files: `flock`, `lockf`, and `fcntl`'s.
//!
//! A fiber polls for a lock until it gets it (see [`polling`](crate::wait::polling)). When a lock on the file
//! is released in this process, by unlocking or closing, the fiber is woken; for locks of other processes it
//! asks every 20 ms. Since the kernel sees no waiter, it detects no deadlocks (`EDEADLK`) among such fibers
//! and keeps no order among them.
//!
//! *Of fibers that want the same lock, one asks the kernel.* If ten thousand waited for one lock and each
//! release woke all of them, a hundred million attempts would be made. So the fiber that holds a lock of
//! our own ([`file_lock`]) asks, and the others wait for that lock, which is handed on when the fiber has
//! its lock on the file or is interrupted. Fibers that ask for another kind of lock, or for another part of
//! the file, use another one. The kernel would answer all fibers that want the same lock alike, except one
//! whose own open file has got a lock through another fiber meanwhile; so the waiters ask as well, but
//! rarely ([`LOOKS`]).
//!
//! A fiber names its file again each time it asks. If the number was closed meanwhile, it may refer to another
//! file, which must not get the lock: the call ends with `EBADF` then ([`Named`]), at once where it was the one to
//! ask.
//!
//! A close releases all locks of its file. Which file it is must be known before the close, so it is looked
//! up if any fiber waits for a lock. A fiber that begins to wait between that and the close is woken with
//! all others that are asking.
//!
//! A lock of `fcntl`'s belongs to the process, so it does not exclude fibers from each other, nor threads.

use std::ffi::{c_int, c_short};
use std::mem::MaybeUninit;

use carefree_reactor::clock::NEVER;
use carefree_runtime::{Reason, lot};
use libc::off_t;

use crate::call::answer::{Answer, answer};
use crate::call::fiber;
use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::descriptor;
use crate::wait::file_lock::{self, FileId, FileLock, LockWait, Purpose};
use crate::wait::multi_step::Named;
use crate::wait::polling::Polled;

/// How often a fiber asks for a lock while another one's turn is to ask for it, in nanoseconds.
const LOOKS: u64 = 1_000_000_000;

static LOCKS: Polled = Polled::new();

/// The file that is about to be closed, looked up if any fiber waits for a lock.
#[derive(Clone, Copy, Debug)]
#[must_use = "the locks of the file are released"]
pub(crate) struct Closing(Option<FileId>);

/// Looks up the file `fd` before it is closed.
#[inline]
pub(crate) fn closing(fd: c_int) -> Closing {
    Closing(if LOCKS.is_waited() { FileId::of(fd).ok() } else { None })
}

/// Several files are about to be closed.
pub(crate) fn closing_several() -> Closing {
    Closing(None)
}

impl Closing {
    /// The file was closed, which has released its locks.
    #[inline]
    pub(crate) fn closed(self) {
        if LOCKS.is_waited() {
            released(self.0);
        }
    }
}

/// A lock on the open file `fd` may have been released.
#[inline]
pub(crate) fn changed(fd: c_int) {
    if !LOCKS.is_waited() {
        return;
    }
    if let Ok(file) = FileId::of(fd) {
        released(Some(file));
    }
}

/// A lock on `file` may have been released; without `file`, a lock on any file.
#[cold]
fn released(file: Option<FileId>) {
    LOCKS.note();
    match file {
        Some(file) => {
            lot::unpark(key(file), usize::MAX);
        }
        None => file_lock::for_each_held(|held| {
            if matches!(held.purpose, Purpose::Lock { .. }) {
                lot::unpark(key(held.file), usize::MAX);
            }
        }),
    }
}

/// The key that fibers wait by for locks on `file`: no address, and no key of [`file_lock`]'s. Another file
/// may have the same; its waiters then ask in vain.
fn key(file: FileId) -> usize {
    1 << 63 | 1 << 61 | 1 << 60 | (file.hash() >> 4) as usize
}

interpose! { steady anywhere
    /// `flock(2)`.
    safe fn flock(fd: c_int, operation: c_int) -> c_int, number SYS_flock {
        let waits = operation & (libc::LOCK_NB | libc::LOCK_UN) == 0;
        if !waits || !fiber::on_fiber() {
            let result = original(fd, operation);
            if operation & libc::LOCK_UN == 0 {
                descriptor::claimed(fd);
            }
            changed(fd);
            return result;
        }
        let file = Named::new(fd);
        descriptor::claimed(fd);
        let arguments = [fd.into(), (operation | libc::LOCK_NB).into()];
        let kind = operation & (libc::LOCK_SH | libc::LOCK_EX);
        let purpose =
            Purpose::Lock { command: libc::LOCK_UN, kind, start: 0, length: 0 };
        let locked = until_free(fd, purpose, || {
            file.attempt(|| sys::call(Number::FLOCK, arguments))
        });
        answer(locked) as c_int
    }
}

/// Defines both names of `lockf`.
macro_rules! lockf {
    ($($name:ident),*) => {$(
        interpose! { steady unless lockf_waits anywhere
            #[doc = concat!("`", stringify!($name), "(3)`.")]
            safe fn $name(fd: c_int, command: c_int, length: off_t) -> c_int, linked "__lockf64" {
                if !lockf_waits(command) || !fiber::on_fiber() {
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

/// Whether a command of `lockf`'s waits for a lock.
fn lockf_waits(command: c_int) -> bool {
    command == libc::F_LOCK
}

/// Whether a command of `fcntl`'s waits for a lock.
pub(crate) fn waits(command: c_int) -> bool {
    matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW)
}

/// Whether a command of `fcntl`'s may release a lock.
pub(crate) fn may_release(command: c_int) -> bool {
    matches!(command, libc::F_SETLK | libc::F_OFD_SETLK) || waits(command)
}

/// Notes a command of `fcntl`'s that may lock an open file.
pub(crate) fn note(fd: c_int, command: c_int) {
    if matches!(command, libc::F_OFD_SETLK | libc::F_OFD_SETLKW) {
        descriptor::claimed(fd);
    }
}

/// `fcntl` with a command that [`waits`].
pub(crate) fn set(fd: c_int, command: c_int, lock: User<libc::flock>) -> Answer {
    let command = if command == libc::F_SETLKW { libc::F_SETLK } else { libc::F_OFD_SETLK };
    let file = Named::new(fd);
    note(fd, command);
    // The kernel finds out which range is meant when the call is made, and waits for that one, wherever the position
    // or the end is later.
    let mut own = lock.read().ok().and_then(|lock| from_the_beginning(fd, lock));
    let range = own.as_ref().map(|lock| (lock.l_type, lock.l_start, lock.l_len));
    let place = if own.is_some() { User::lend_some(&mut own) } else { lock };
    let arguments = [fd.into(), command.into(), place.into()];
    let attempt = || file.attempt(|| sys::call(Number::FCNTL, arguments));
    let answer = attempt();
    let Some((kind, start, length)) = range.filter(|_| is_taken(answer)) else {
        changed(fd);
        return answer;
    };
    let purpose = Purpose::Lock { command, kind: kind.into(), start, length };
    until_free(fd, purpose, attempt)
}

/// A lock with its range told from the file's beginning. None where there is none: the kernel says what is wrong.
fn from_the_beginning(fd: c_int, lock: libc::flock) -> Option<libc::flock> {
    let from = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => descriptor::storage::position(fd).ok()? as i64,
        libc::SEEK_END => sys::status(fd).ok()?.st_size,
        _ => return None,
    };
    let l_start = from.checked_add(lock.l_start)?;
    Some(libc::flock { l_whence: libc::SEEK_SET as c_short, l_start, ..lock })
}

fn is_taken(answer: Answer) -> bool {
    matches!(answer, Err(libc::EAGAIN | libc::EACCES))
}

/// Calls `lock` until it does not answer that another has the lock. No hosted thread is cancelled in `flock`.
fn until_free(fd: c_int, purpose: Purpose, lock: impl Fn() -> Answer) -> Answer {
    let attempt = || Some(lock()).filter(|answer| !is_taken(*answer));
    let answer = attempt();
    // A lock for writing may have become one for reading, or none: even where `flock` fails, it releases a
    // lock of another kind.
    changed(fd);
    if let Some(answer) = answer {
        return answer;
    }
    let steady = matches!(purpose, Purpose::Lock { command: libc::LOCK_UN, .. });
    let held = FileLock { file: FileId::of(fd)?, purpose };
    let reason = Reason::FileLock;
    let wait = LockWait { reason, deadline: NEVER, late: libc::EINTR, looks: LOOKS, steady };
    let answer = file_lock::with_lock_unless(held, &wait, attempt, || {
        LOCKS.poll_by(key(held.file), steady, reason, NEVER, libc::EINTR, attempt)?
    })?;
    changed(fd);
    answer
}
