//! The two ends of a transfer, and what is waited for at them.

use std::ffi::{c_int, c_uint};

use carefree_runtime::{Reason, yield_now};
use libc::off_t;

use crate::call::answer::{Answer, interruption};
use crate::call::sys;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::Limit;
use crate::descriptor::kind::Seen;
use crate::descriptor::storage::Storage;
use crate::io::call::At;
use crate::io::seekable;
use crate::wait::multi_step::Named;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness::is_ready;
use crate::wait::user_op::UserOp;

/// Bytes that are copied at a time.
pub(crate) const CHUNK: usize = 64 * 1024;

/// Asks the kernel what `fd` refers to now.
pub(crate) fn look(fd: c_int) -> Seen {
    let file = descriptor::file(fd);
    if let Some(file) = file {
        // Asked again: with a stale answer the carrier could block.
        file.look(fd);
    }
    descriptor::seen(file, fd)
}

pub(crate) fn mode(fd: c_int) -> c_int {
    sys::mode(fd).unwrap_or(0)
}

/// Whether `fd` was opened to be written.
pub(crate) fn can_write(fd: c_int) -> bool {
    mode(fd) & libc::O_ACCMODE != libc::O_RDONLY
}

/// Whether the kernel moves data to `fd`: not to a file with `O_APPEND`, even if it is a socket.
pub(crate) fn is_sent_to(fd: c_int) -> bool {
    let mode = mode(fd);
    mode & libc::O_ACCMODE != libc::O_RDONLY && mode & libc::O_APPEND == 0
}

pub(crate) fn blocking(fd: c_int) -> bool {
    descriptor::blocking(descriptor::file(fd), fd)
}

/// Parks until `events` happen on `fd`.
pub(crate) fn until_ready(fd: c_int, events: i16) -> Result<(), c_int> {
    let (reason, limit) = match events {
        libc::POLLIN => (Reason::Read, Limit::Receive),
        _ => (Reason::Write, Limit::Send),
    };
    let op = UserOp::poll(fd, events);
    let on = On { fd, reason, limit: Some(limit) };
    let deadline = parking::deadline(fd, on.limit);
    let parked = match events {
        libc::POLLIN => parking::perform_until(&op, on, deadline),
        _ => parking::perform_sending(&op, on, deadline),
    };
    match parked {
        Parked::Answered(answer) => answer.map(drop),
        Parked::Late => Err(libc::EAGAIN),
        Parked::Unsupported => {
            yield_now();
            Ok(())
        }
    }
}

/// An end of a transfer, if the fiber can wait for it, and the event that it waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct End {
    fd: Option<c_int>,
    events: i16,
}

pub(crate) fn input(fd: Option<c_int>) -> End {
    End { fd, events: libc::POLLIN }
}

pub(crate) fn output(fd: Option<c_int>) -> End {
    End { fd, events: libc::POLLOUT }
}

/// The files at the ends of a transfer. While it waits for one of them, the other's number may be closed, and given
/// to a file that must not get the data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files([Named; 2]);

impl Files {
    /// A transfer begins.
    pub(crate) fn new(ends: [c_int; 2]) -> Files {
        Files(ends.map(Named::new))
    }

    /// [`Named::attempt`] on both.
    pub(crate) fn attempt(self, attempt: impl FnOnce() -> Answer) -> Answer {
        let [one, other] = self.0;
        one.attempt(|| other.attempt(attempt))
    }
}

/// Calls `attempt`, which does not wait, until it need not wait or fails. In between, waits for the ends in the
/// kernel's order, unless the flags forbid it or `may_wait` does for an end that is not ready.
pub(crate) fn when_ready(
    ends: [End; 2],
    flags: c_uint,
    may_wait: impl Fn(c_int) -> bool,
    mut attempt: impl FnMut() -> Result<Answer, c_int>,
) -> Answer {
    loop {
        let tried = attempt()?;
        if tried != Err(libc::EAGAIN) || flags & libc::SPLICE_F_NONBLOCK != 0 {
            return tried;
        }
        let unready = ends.into_iter().find_map(|End { fd, events }| {
            fd.filter(|&fd| !is_ready(fd, events)).map(|fd| (fd, events))
        });
        match unready {
            Some((fd, _)) if !may_wait(fd) => return tried,
            Some((fd, events)) => until_ready(fd, events)?,
            // Both ends have become ready.
            None => {
                carefree_runtime::interrupted().map_err(interruption)?;
                yield_now();
            }
        }
    }
}

/// The end that a splice may have to wait for though the pipe is ready: a disk or a remote file.
pub(crate) fn slow_end(
    (from, source, place): (c_int, Seen, User<off_t>),
    (to, target): (c_int, Seen),
    length: usize,
) -> Option<c_int> {
    if matches!(target.storage, Storage::Device | Storage::Other) {
        return Some(to);
    }
    slow_source((from, source, place), length)
}

/// Where a call reads that was given this pointer to an offset.
pub(crate) fn place(offset: User<off_t>) -> At {
    // (A pointer that leads nowhere is the kernel's to report.)
    offset.read().map_or(At::Position, At::Offset)
}

/// Bytes of a regular file; 0 of what is none.
pub(crate) fn length_of(fd: c_int) -> off_t {
    sys::status(fd).map_or(0, |status| status.st_size)
}

/// The source, if the data at the offset or position may have to be fetched from a disk or a remote file.
pub(crate) fn slow_source(
    (from, source, offset): (c_int, Seen, User<off_t>),
    length: usize,
) -> Option<c_int> {
    let waits = match source.storage {
        Storage::None | Storage::Memory | Storage::Kernel => false,
        // Most pipes and sockets take no more at once.
        Storage::Disk => !seekable::is_in_memory(from, place(offset), length.min(CHUNK) as u64),
        Storage::Device | Storage::Other => true,
    };
    waits.then_some(from)
}
