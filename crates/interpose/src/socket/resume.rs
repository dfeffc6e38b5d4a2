//! Going on after a part of a stream's bytes.
//!
//! A connection that its peer has reset has an error for its next call. On a thread a call that has sent
//! or received a part ends with that part, for the kernel looks at the error only when nothing was done,
//! and the next call is told. A try to move the rest is such a next call: it would take the error away,
//! to which the part is the answer. The program would then hear `EPIPE` where a thread hears
//! `ECONNRESET`, or that the stream has ended, as if that was in order. So the connection is looked at
//! before each try, by what takes nothing, and the reactor only waits.
//!
//! When sending, an error that comes between the look and the try is lost all the same. (When receiving,
//! none is: there are bytes to be had, and they come first.) So is one that leaves the connection as it
//! is (of `IP_RECVERR`), which a look cannot tell from a message in the queue of errors.
//!
//! On `AF_UNIX` the kernel itself takes the error when it has received a part: see [`takes_error`].

use std::ffi::c_int;

use libc::msghdr;

use crate::call::sys;
use crate::call::sys::Number;
use crate::call::user::User;
use crate::descriptor::option::option;
use crate::socket::plain::plain_message;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness::{is_hung_up, look};
use crate::wait::user_op::UserOp;

/// Asks whether what comes next is behind a mark of urgent data.
const SIOCATMARK: usize = 0x8905;
/// What a receiving call goes on for, or ends with. (An error, and the end of both directions, are told
/// unasked.)
const NEWS: i16 = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP;

/// Sends more of a stream's bytes after a part, when there is room. It is tried at first: the part may
/// have ended at a pointer that leads nowhere, which is not waited for.
pub(crate) fn send_more(on: On, message: User<msghdr>, flags: c_int, deadline: u64) -> Parked {
    let fd = on.fd;
    let at_once = flags | libc::MSG_DONTWAIT;
    let mut had_room = false;
    loop {
        if is_hung_up(fd) {
            return Parked::Answered(Err(libc::EPIPE));
        }
        match plain_message(Number::SENDMSG, fd, message, at_once) {
            Err(libc::EAGAIN) => {}
            answer => return Parked::Answered(answer),
        }
        if had_room {
            break;
        }
        match parking::perform_until(&UserOp::poll(fd, libc::POLLOUT), on, deadline) {
            Parked::Answered(Ok(_)) => had_room = true,
            ended => return ended,
        }
    }
    // Another writer was faster, or the kernel has no memory now, of which no look tells.
    let op = UserOp::send_message(fd, message, flags);
    parking::perform_until(&op, on, deadline)
}

/// Whether a receiving call on the stream `fd` takes the error that ended it after a part, so that the
/// next call is not told.
pub(crate) fn takes_error(fd: c_int) -> bool {
    option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
}

/// Receives more of a stream's bytes after a part, when they come: some of them, or none if it is over.
/// `Unsupported` as well if urgent data lies ahead: where a call ends before it, the kernel knows.
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
    // Another reader was faster, or there is a message in the queue of errors.
    let op = UserOp::receive_message(fd, message, flags & !libc::MSG_WAITALL);
    parking::perform_until(&op, on, deadline)
}

/// Whether what comes next on `fd` is behind a mark of urgent data.
pub(crate) fn is_at_mark(fd: c_int) -> bool {
    sys::ioctl_number(fd, SIOCATMARK).is_ok_and(|mark| mark != 0)
}
