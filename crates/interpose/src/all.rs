//! Receiving all that was asked for: `MSG_WAITALL`.
//!
//! On streams alone: a message comes whole, and the next one is another. (io_uring would join those
//! of `SOCK_SEQPACKET`.) The call's time limit is for all of it.
//!
//! # What ends a part
//!
//! The reactor is asked for parts, save on `AF_UNIX`: io_uring, which goes on where it stopped, takes
//! the error that a part ended with (Linux 6.18). See [`part`].
//!
//! # Looking at all before any is taken
//!
//! With `MSG_PEEK` as well, a call on a TCP connection waits until that much has come. The reactor
//! cannot: data that has been looked at is still there, so the socket stays ready, and io_uring, which
//! goes on where it stopped, would copy the same bytes again behind themselves (Linux 6.18). So the
//! fiber looks again and again (see `patience`). On a stream of `AF_UNIX` one look is all.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::buffers::Buffers;
use crate::files::{self, Limit};
use crate::flow::blocking;
use crate::parking::{self, Answer, On, Parked};
use crate::patience::Matter;
use crate::plain::{or_so_far, plain_message, plain_receive};
use crate::socket::{is_urgent, is_worth_a_try, option, receive_from};
use crate::steps::Steps;
use crate::{glance, memory, part};

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

/// Receives until `length` bytes are there.
///
/// # Safety
/// As for `recvfrom`; these are its [`flags`].
#[cold]
pub(crate) unsafe fn receive(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> Answer {
    let seat = Seat::new();
    let mut steps = Steps::new(fd, &seat);
    let file = files::file(fd);
    let mut got = 0;
    if is_worth_a_try(file, fd) {
        let at_once = flags | libc::MSG_DONTWAIT;
        // SAFETY: the caller's promise.
        let tried = unsafe { plain_receive(fd, buffer, length, at_once, address, address_length) };
        if let Some(file) = file {
            file.tried(tried != Err(libc::EAGAIN));
        }
        match tried {
            Err(libc::EAGAIN) => {}
            Ok(part) if part != 0 && part < length => {
                if !steps.go_on() {
                    return tried;
                }
                got = part;
            }
            answer => return answer,
        }
    }
    if got == 0 && !address.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { receive_from(fd, buffer, length, flags, address, address_length) };
    }
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    if !part::takes_error(fd) {
        let mut buffer = iovec { iov_base: buffer, iov_len: length };
        // SAFETY: zeros are a header without anything; its padding differs between libcs.
        let mut message: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_iov = &raw mut buffer;
        message.msg_iovlen = 1;
        // SAFETY: built from what the caller has promised to be valid.
        return unsafe { receive_message(fd, &raw mut message, flags, got, deadline, &mut steps) };
    }
    if got > 0 && is_urgent(fd) {
        // SAFETY: the caller's promise.
        return unsafe { receive_before_mark(fd, buffer, length, flags, got, &mut steps) };
    }
    loop {
        let (rest, left) = (buffer.wrapping_byte_add(got), length - got);
        let op = Op::Receive { fd, buffer: rest.cast(), length: left, flags };
        // SAFETY: the caller's promise.
        let answer = match unsafe { parking::perform_until(&op, on, deadline) } {
            Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
                // SAFETY: the caller's promise, and the caller waits.
                unsafe { steps.elsewhere(|| receive_plainly(fd, rest, left, flags)) }
            }
            Parked::Answered(answer) => answer,
            Parked::Late => Err(libc::EAGAIN),
        };
        match answer {
            Ok(more) if more != 0 && more < left && steps.go_on() => got += more,
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
unsafe fn receive_before_mark(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    got: usize,
    steps: &mut Steps,
) -> Answer {
    if part::is_at_mark(fd) {
        return Ok(got);
    }
    let (rest, left) = (buffer.wrapping_byte_add(got), length - got);
    // SAFETY: the caller's promise, and the caller waits.
    or_so_far(got, unsafe { steps.elsewhere(|| receive_plainly(fd, rest, left, flags)) })
}

/// `recv(2)` as it is.
unsafe fn receive_plainly(fd: c_int, to: *mut c_void, length: usize, flags: c_int) -> Answer {
    // SAFETY: the caller's promise.
    unsafe { plain_receive(fd, to, length, flags, ptr::null_mut(), ptr::null_mut()) }
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
    steps: &mut Steps,
) -> Answer {
    // Nobody has looked at it: such a call is not tried.
    memory::check(message, 1)?;
    // SAFETY: the caller's promise.
    let message = unsafe { &mut *message };
    // SAFETY: as above.
    let mut buffers = unsafe { Buffers::new(message.msg_iov, message.msg_iovlen as _) };
    buffers.look()?;
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let takes_error = part::takes_error(fd);
    // Files that came along, for which there is no room, end it too. Elsewhere it is not files that
    // are without room.
    let lost_files = |part: &msghdr| takes_error && part.msg_flags & libc::MSG_CTRUNC != 0;
    let mut part = *message;
    if got > 0 {
        let is_over = got >= buffers.left() || lost_files(message);
        if is_over || !steps.go_on() {
            return Ok(got);
        }
        go_on(&mut part, &mut buffers, got);
    }
    loop {
        let each = flags & !libc::MSG_WAITALL;
        let op = Op::ReceiveMessage { fd, message: &raw mut part, flags: each };
        // SAFETY: as above.
        let parked = unsafe {
            match got > 0 && !takes_error {
                true => part::receive_more(on, &raw mut part, flags, deadline),
                false => parking::perform_until(&op, on, deadline),
            }
        };
        let answer = match parked {
            Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
                let receive = || {
                    // SAFETY: as above.
                    unsafe { plain_message(libc::SYS_recvmsg, fd, &raw const part, flags) }
                };
                // SAFETY: as above, and it waits.
                unsafe { steps.elsewhere(receive) }
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
            Ok(more)
                if more != 0 && more < buffers.left() && !lost_files(&part) && steps.go_on() =>
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
