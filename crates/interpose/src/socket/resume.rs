//! Moving the rest of a stream's bytes after a part.
//!
//! A connection that its peer has reset keeps an error for its next call. On a thread, a call that has sent or
//! received a part ends with that part, because the kernel looks at the error only if nothing was done; the
//! next call reports it. Here, a try to move the rest would be that next call: it would take the error from
//! the socket, and the program, whose call answers with the part, would see `EPIPE` next where a thread sees
//! `ECONNRESET`, or an orderly end of the stream. So the connection is polled before each try, which takes
//! nothing, and the reactor only waits.
//!
//! When sending, an error that comes between the poll and the try is still lost. (When receiving, none is:
//! there are bytes, which come first.) So is an error that leaves the connection intact (`IP_RECVERR`): a poll
//! cannot tell it from a message in the error queue.
//!
//! On `AF_UNIX` the kernel itself takes the error when it has received a part: see [`takes_error`].

use std::ffi::c_int;

use libc::msghdr;

use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::descriptor::option::option;
use crate::socket::plain::plain_message;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness::{is_hung_up, look};
use crate::wait::user_op::UserOp;

/// Asks whether the next byte is behind a mark of urgent data.
const SIOCATMARK: usize = 0x8905;
/// The events that a receiving call goes on or ends at. (Errors and hang-ups are always reported.)
pub(crate) const NEWS: i16 = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP;

/// Sends a part of a stream's bytes when there is room; `begun` says that a part was sent before.
///
/// It tries first: that part may have ended at a pointer that leads nowhere, and then the call must not wait. The calling
/// fiber makes the call, not the reactor: a ring tries a send again at each event of its socket, and a peer that has
/// closed its direction is an event all the time. After a hundred tries such a send would keep a kernel thread.
pub(crate) fn send_when_ready(
    on: On,
    message: User<msghdr>,
    flags: c_int,
    deadline: u64,
    begun: bool,
) -> Parked {
    let fd = on.fd;
    let at_once = flags | libc::MSG_DONTWAIT;
    let mut had_room = false;
    loop {
        if begun && is_hung_up(fd) {
            return Parked::Answered(Err(libc::EPIPE));
        }
        match plain_message(Number::SENDMSG, fd, message, at_once) {
            Err(libc::EAGAIN) => {}
            answer => return Parked::Answered(answer),
        }
        if had_room {
            break;
        }
        match parking::perform_sending(&UserOp::poll(fd, libc::POLLOUT), on, deadline) {
            Parked::Answered(Ok(events)) => had_room = events != 0,
            ended => return ended,
        }
    }
    // Another writer was faster, or the kernel has no memory now, which a poll does not report.
    let op = UserOp::send_message(fd, message, flags);
    parking::perform_sending(&op, on, deadline)
}

/// Whether a receiving call on the stream `fd` that ends after a part because of an error takes the error from
/// the socket, so that the next call does not report it.
pub(crate) fn takes_error(fd: c_int) -> bool {
    option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
}

/// Receives more of a stream's bytes after a part, when they come: some of them, or none if the stream has
/// ended. `Unsupported` also if urgent data lies ahead: only the kernel knows where a call ends before it.
pub(crate) fn receive_more(on: On, message: User<msghdr>, flags: c_int, deadline: u64) -> Parked {
    let fd = on.fd;
    let mut woken = false;
    loop {
        let Ok(there) = look(fd, NEWS) else { return Parked::Unsupported };
        if there & libc::POLLPRI != 0 {
            return if is_at_mark(fd) { Parked::Answered(Ok(0)) } else { Parked::Unsupported };
        }
        if there & (libc::POLLHUP | libc::POLLRDHUP) != 0
            && sys::ioctl_number(fd, libc::FIONREAD as usize) == Ok(0)
        {
            return Parked::Answered(Ok(0));
        }
        if there != 0 {
            let at_once = flags | libc::MSG_DONTWAIT;
            match plain_message(Number::RECVMSG, fd, message, at_once) {
                Err(libc::EAGAIN) if woken => break,
                Err(libc::EAGAIN) => {}
                answer => return Parked::Answered(answer),
            }
        }
        match parking::perform_until(&UserOp::poll(fd, NEWS), on, deadline) {
            Parked::Answered(Ok(_)) => woken = true,
            ended => return ended,
        }
    }
    // Another reader was faster, or there is a message in the error queue.
    let op = UserOp::receive_message(fd, message, flags & !libc::MSG_WAITALL);
    parking::perform_until(&op, on, deadline)
}

/// Whether the next byte of `fd` is behind a mark of urgent data.
pub(crate) fn is_at_mark(fd: c_int) -> bool {
    sys::ioctl_number(fd, SIOCATMARK).is_ok_and(|mark| mark != 0)
}
