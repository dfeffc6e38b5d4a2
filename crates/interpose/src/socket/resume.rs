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

use carefree_ground::kernel;
use carefree_reactor::Op;
use libc::msghdr;

use crate::descriptor::option::option;
use crate::socket::plain::plain_message;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness::{is_hung_up, look};

/// Asks whether what comes next is behind a mark of urgent data.
const SIOCATMARK: usize = 0x8905;
/// What a receiving call goes on for, or ends with. (An error, and the end of both directions, are told
/// unasked.)
const NEWS: i16 = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP;

/// Sends more of a stream's bytes after a part, when there is room. It is tried at first: the part may
/// have ended at a pointer that leads nowhere, which is not waited for.
///
/// # Safety
/// As for `sendmsg`.
pub(crate) unsafe fn send_more(on: On, message: &msghdr, flags: c_int, deadline: u64) -> Parked {
    let fd = on.fd;
    let at_once = flags | libc::MSG_DONTWAIT;
    let mut had_room = false;
    loop {
        if is_hung_up(fd) {
            return Parked::Answered(Err(libc::EPIPE));
        }
        // SAFETY: the caller's promise.
        match unsafe { plain_message(libc::SYS_sendmsg, fd, message, at_once) } {
            Err(libc::EAGAIN) => {}
            answer => return Parked::Answered(answer),
        }
        if had_room {
            break;
        }
        // SAFETY: it points to nothing.
        match unsafe {
            parking::perform_until(&Op::Poll { fd, events: libc::POLLOUT as u32 }, on, deadline)
        } {
            Parked::Answered(Ok(_)) => had_room = true,
            ended => return ended,
        }
    }
    // Another writer was faster, or the kernel has no memory now, of which no look tells.
    let op = Op::SendMessage { fd, message, flags };
    // SAFETY: the caller's promise.
    unsafe { parking::perform_until(&op, on, deadline) }
}

/// Whether a receiving call on the stream `fd` takes the error that ended it after a part, so that the
/// next call is not told.
pub(crate) fn takes_error(fd: c_int) -> bool {
    option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
}

/// Receives more of a stream's bytes after a part, when they come: some of them, or none if it is over.
/// `Unsupported` as well if urgent data lies ahead: where a call ends before it, the kernel knows.
///
/// # Safety
/// As for `recvmsg`.
pub(crate) unsafe fn receive_more(
    on: On,
    message: *mut msghdr,
    flags: c_int,
    deadline: u64,
) -> Parked {
    let fd = on.fd;
    let mut woken = false;
    loop {
        let Ok(there) = look(fd, NEWS) else { return Parked::Unsupported };
        if there & libc::POLLPRI != 0 {
            return if is_at_mark(fd) { Parked::Answered(Ok(0)) } else { Parked::Unsupported };
        }
        if there & (libc::POLLHUP | libc::POLLRDHUP) != 0
            && number(fd, libc::FIONREAD as usize) == Ok(0)
        {
            return Parked::Answered(Ok(0));
        }
        if there != 0 {
            let at_once = flags | libc::MSG_DONTWAIT;
            // SAFETY: the caller's promise.
            match unsafe { plain_message(libc::SYS_recvmsg, fd, message, at_once) } {
                Err(libc::EAGAIN) if woken => break,
                Err(libc::EAGAIN) => {}
                answer => return Parked::Answered(answer),
            }
        }
        // SAFETY: it points to nothing.
        match unsafe { parking::perform_until(&Op::Poll { fd, events: NEWS as u32 }, on, deadline) }
        {
            Parked::Answered(Ok(_)) => woken = true,
            ended => return ended,
        }
    }
    // Another reader was faster, or there is a message in the queue of errors.
    let op = Op::ReceiveMessage { fd, message, flags: flags & !libc::MSG_WAITALL };
    // SAFETY: the caller's promise.
    unsafe { parking::perform_until(&op, on, deadline) }
}

/// Whether what comes next on `fd` is behind a mark of urgent data.
pub(crate) fn is_at_mark(fd: c_int) -> bool {
    number(fd, SIOCATMARK).is_ok_and(|mark| mark != 0)
}

/// What a socket answers to a question whose answer is a number.
fn number(fd: c_int, question: usize) -> Result<c_int, c_int> {
    let mut number: c_int = 0;
    let arguments = [fd as usize, question, (&raw mut number) as usize, 0, 0, 0];
    // SAFETY: room for the answer.
    unsafe { kernel::call(libc::SYS_ioctl, arguments) }.map(|_: usize| number)
}
