//! Sending what could not be sent at once.

use std::ffi::c_int;

use carefree_runtime::Reason;
use carefree_runtime::clock::NEVER;

use crate::call::answer::{Answer, or_so_far};
use crate::call::sys::Number;
use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::socket::message::Message;
use crate::socket::named;
use crate::socket::plain::plain_message;
use crate::socket::resume;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness;
use crate::wait::user_op::UserOp;

/// Sends what could not be sent at once: all of it, unless the socket is in non-blocking mode. `begun` says
/// that a part of the call's data was sent before.
pub(crate) fn transmit_rest(
    fd: c_int,
    message: Message,
    flags: c_int,
    begun: bool,
    steps: &mut MultiStep,
) -> Answer {
    let number = Number::SENDMSG;
    let file = descriptor::file(fd);
    if !blocking(file, fd) {
        return Err(libc::EAGAIN);
    }
    if begun && !steps.go_on() {
        return Err(libc::EBADF);
    }
    if option(fd, libc::SO_TYPE) != Ok(libc::SOCK_STREAM) {
        return transmit_whole(fd, message, flags, steps);
    }
    let mut buffers = message.buffers();
    // SAFETY: the kernel has looked at them for the try.
    unsafe { buffers.seen() };
    let mut rest = message;
    let mut sent = 0;
    let mut deadline = parking::deadline(fd, Some(Limit::Send));
    let is_renewed = deadline != NEVER && is_limited_by_part(fd);
    loop {
        // Without `SIGPIPE`: some reactors raise it, and not always in the calling thread.
        let silent = flags | libc::MSG_NOSIGNAL;
        let on = On { fd, reason: Reason::Write, limit: Some(Limit::Send) };
        let begun = begun || sent > 0;
        let parked = match begun || readiness::is_half_closed(fd) {
            true => resume::send_when_ready(on, rest.lend(), silent, deadline, begun),
            false => {
                let op = UserOp::send_message(fd, rest.lend(), silent);
                parking::perform_sending(&op, on, deadline)
            }
        };
        let answer = match parked {
            // There may be room for a part, though too little for a poll to tell.
            Parked::Late if is_renewed && steps.go_on() => {
                let flags = if begun { silent } else { flags };
                plain_message(number, fd, rest.lend(), flags | libc::MSG_DONTWAIT)
            }
            Parked::Late => Err(libc::EAGAIN),
            Parked::Answered(Err(libc::EPIPE)) if !begun && steps.go_on() => match reset(fd) {
                Some(errno) => Err(errno),
                // Tried again here, for the signal. (After a part, the next call raises it.)
                None => plain_message(number, fd, rest.lend(), flags | libc::MSG_DONTWAIT),
            },
            Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
                let rest = rest.lend();
                steps.offload(|| plain_message(number, fd, rest, flags))
            }
            Parked::Answered(answer) => answer,
        };
        match answer {
            Ok(more) if more != 0 && more < buffers.left() && steps.go_on() => {
                sent += more;
                buffers.advance(more);
                // SAFETY: `buffers` stays as it is until this is done again, after the next part.
                unsafe { rest.set_buffers(&buffers) };
                rest.only_bytes();
                if is_renewed {
                    deadline = parking::deadline(fd, Some(Limit::Send));
                }
            }
            answer => return or_so_far(sent, answer),
        }
    }
}

/// Whether a time limit on sending is for each part of a call: on `AF_UNIX` the kernel waits anew for room for each, and
/// looks whether there is any when the time is up. (Elsewhere it is for the whole call.)
fn is_limited_by_part(fd: c_int) -> bool {
    option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
}

/// The error by which a peer of `AF_UNIX` has ended with bytes that it has not received. A thread that waits to send is
/// told of it, without `SIGPIPE`; a call that begins later fails with `EPIPE`.
pub(crate) fn reset(fd: c_int) -> Option<c_int> {
    if option(fd, libc::SO_DOMAIN) != Ok(libc::AF_UNIX) {
        return None;
    }
    // (Asked for, it is gone from the socket, as natively.)
    option(fd, libc::SO_ERROR).ok().filter(|errno| *errno != 0)
}

/// Sends a message that goes whole or not at all, when there is room for it.
///
/// The reactor only waits for room. A socket of `AF_UNIX` takes the data from the buffers before it looks at
/// its receiver's queue, and io_uring then tries again with what is left in them: it would send an empty
/// message, and report that (Linux 6.18).
fn transmit_whole(fd: c_int, mut message: Message, flags: c_int, steps: &mut MultiStep) -> Answer {
    let number = Number::SENDMSG;
    let on = On { fd, reason: Reason::Write, limit: Some(Limit::Send) };
    let deadline = parking::deadline(fd, on.limit);
    // Unconnected sockets always poll writable, whatever room their receiver has.
    if !message.header().msg_name.is_null() && option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX) {
        return named::transmit(message, flags, on, deadline);
    }
    let message = message.lend();
    loop {
        match parking::perform_sending(&UserOp::poll(fd, libc::POLLOUT), on, deadline) {
            Parked::Late => return Err(libc::EAGAIN),
            Parked::Unsupported => {
                return steps.offload(|| plain_message(number, fd, message, flags));
            }
            Parked::Answered(Err(errno)) => return Err(errno),
            Parked::Answered(Ok(events)) => {
                match plain_message(number, fd, message, flags | libc::MSG_DONTWAIT) {
                    Err(libc::EAGAIN) if readiness::is_vain(events, libc::POLLOUT) => {
                        return steps.offload(|| plain_message(number, fd, message, flags));
                    }
                    // Another sender was faster.
                    Err(libc::EAGAIN) => {}
                    answer => return answer,
                }
            }
        }
    }
}
