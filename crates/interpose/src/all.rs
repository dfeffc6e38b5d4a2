//! Receiving all that was asked for: `MSG_WAITALL`.
//!
//! On streams alone: a message comes whole, and the next one is another. (io_uring would join those
//! of `SOCK_SEQPACKET`.) The call's time limit is for all of it.
//!
//! # Looking at all before any is taken
//!
//! With `MSG_PEEK` as well, a call on a TCP connection waits until that much has come. The reactor
//! cannot: data that has been looked at is still there, so the socket stays ready, and io_uring, which
//! goes on where it stopped, would copy the same bytes again behind themselves (Linux 6.18). So the
//! fiber looks again and again (see `patience`). On a stream of `AF_UNIX` one look is all.

use std::ffi::{c_int, c_void};
use std::ptr;

use carefree_context::kernel;
use carefree_reactor::Op;
use carefree_runtime::Reason;
use libc::msghdr;

use crate::buffers::Buffers;
use crate::files::{self, Limit};
use crate::flow::blocking;
use crate::parking::{self, Answer, On, Parked};
use crate::patience::Matter;
use crate::socket::{offload_message, offload_receive, option, or_so_far};
use crate::{glance, memory};

/// Asks whether what comes next is behind a mark of urgent data.
const SIOCATMARK: usize = 0x8905;
const BOTH: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;

/// The flags that a receiving call on `fd` really has: `MSG_WAITALL` is left where it means
/// something.
#[inline]
pub(crate) fn flags(fd: c_int, flags: c_int) -> c_int {
    if flags & libc::MSG_WAITALL == 0 { flags } else { look_at(fd, flags) }
}

#[cold]
fn look_at(fd: c_int, flags: c_int) -> c_int {
    let waits = option(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
        && blocking(files::file(fd), fd)
        && (flags & BOTH != BOTH || option(fd, libc::SO_DOMAIN) != Ok(libc::AF_UNIX));
    if waits { flags } else { flags & !libc::MSG_WAITALL }
}

/// Whether a call with these [`flags`] is for [`until_all`].
#[inline]
pub(crate) fn peeks(flags: c_int) -> bool {
    flags & BOTH == BOTH
}

/// Receives until `length` bytes are there, of which `got` are already.
///
/// # Safety
/// As for `recv`; these are its [`flags`].
#[cold]
pub(crate) unsafe fn receive(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    mut got: usize,
) -> Answer {
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    loop {
        let (rest, left) = (buffer.wrapping_byte_add(got), length - got);
        let op = Op::Receive { fd, buffer: rest.cast(), length: left, flags };
        // SAFETY: the caller's promise.
        let answer = match unsafe { parking::perform_until(&op, on, deadline) } {
            Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
                // SAFETY: the caller's promise.
                unsafe { offload_receive(fd, rest, left, flags) }
            }
            Parked::Answered(answer) => answer,
            Parked::Late => Err(libc::EAGAIN),
        };
        match answer {
            Ok(more) if more != 0 && more < left => got += more,
            answer => return or_so_far(got, answer),
        }
    }
}

/// Receives what is left of `length` bytes of which `got` are there, but none beyond a mark of urgent
/// data, which ends the call if it is reached.
///
/// # Safety
/// As for `recv`.
#[cold]
pub(crate) unsafe fn receive_before_mark(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    got: usize,
) -> Answer {
    let mut at_mark: c_int = 0;
    let arguments = [fd as usize, SIOCATMARK, (&raw mut at_mark) as usize, 0, 0, 0];
    // SAFETY: room for the answer.
    let asked = unsafe { kernel::call(libc::SYS_ioctl, arguments) };
    if asked.is_ok() && at_mark != 0 {
        return Ok(got);
    }
    let (rest, left) = (buffer.wrapping_byte_add(got), length - got);
    // SAFETY: the caller's promise.
    or_so_far(got, unsafe { offload_receive(fd, rest, left, flags) })
}

/// Receives until a message's buffers are full, where the reactor can only receive what is there, or
/// has received a part: of `got` bytes, which the header tells of.
///
/// # Safety
/// As for `recvmsg`; these are its [`flags`].
#[cold]
pub(crate) unsafe fn receive_message(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    mut got: usize,
    deadline: u64,
) -> Answer {
    // Nobody has looked at it: such a call is not tried.
    memory::check(message, 1)?;
    // SAFETY: the caller's promise.
    let message = unsafe { &mut *message };
    // SAFETY: as above.
    let mut buffers = unsafe { Buffers::new(message.msg_iov, message.msg_iovlen as _) };
    buffers.look()?;
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let mut part = *message;
    if got > 0 {
        if got >= buffers.left() || message.msg_flags & libc::MSG_CTRUNC != 0 {
            return Ok(got);
        }
        go_on(&mut part, &mut buffers, got);
    }
    loop {
        let each = flags & !libc::MSG_WAITALL;
        let op = Op::ReceiveMessage { fd, message: &raw mut part, flags: each };
        // SAFETY: as above.
        let answer = match unsafe { parking::perform_until(&op, on, deadline) } {
            Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
                // SAFETY: as above.
                unsafe { offload_message(libc::SYS_recvmsg, fd, &raw const part, flags) }
            }
            Parked::Answered(answer) => answer,
            Parked::Late => Err(libc::EAGAIN),
        };
        if answer.is_ok() {
            if got == 0 {
                message.msg_namelen = part.msg_namelen;
            }
            message.msg_controllen = part.msg_controllen;
            message.msg_flags = part.msg_flags;
        }
        match answer {
            // Files that came along, for which there is no room, end it too.
            Ok(more)
                if more != 0 && more < buffers.left() && part.msg_flags & libc::MSG_CTRUNC == 0 =>
            {
                got += more;
                go_on(&mut part, &mut buffers, more);
            }
            answer => return or_so_far(got, answer),
        }
    }
}

/// Makes `part` the header for what is left in `buffers` after `more` bytes.
fn go_on(part: &mut msghdr, buffers: &mut Buffers, more: usize) {
    buffers.advance(more);
    part.msg_iov = buffers.first().cast_mut();
    part.msg_iovlen = buffers.count() as _;
    part.msg_name = ptr::null_mut();
    part.msg_namelen = 0;
}

/// Calls `look`, which does not wait, until it finds `length` bytes or the end.
#[cold]
pub(crate) fn until_all(fd: c_int, length: usize, mut look: impl FnMut() -> Answer) -> Answer {
    static ARRIVALS: Matter = Matter::new();
    let mut seen = Err(libc::EAGAIN);
    let deadline = parking::deadline(fd, Some(Limit::Receive));
    let ended = ARRIVALS.pursue(Reason::Read, deadline, libc::EAGAIN, || {
        // Before the look: what comes in between is looked at.
        let over = is_over(fd);
        seen = look();
        match seen {
            Err(libc::EAGAIN) => None,
            Ok(bytes) if bytes < length && !over => None,
            answer => Some(answer),
        }
    });
    match ended {
        Ok(answer) => answer,
        Err(_) if seen.is_ok() => seen,
        Err(errno) => Err(errno),
    }
}

/// Whether nothing more will come.
fn is_over(fd: c_int) -> bool {
    let mut file = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    glance::one(&mut file, Some(0)) != Ok(0)
}
