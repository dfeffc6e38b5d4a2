//! Sending what could not be sent at once.

use std::ffi::c_int;
use std::ptr;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use libc::msghdr;

use crate::call::answer::{Answer, or_so_far};
use crate::call::buffers::Buffers;
use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::socket::plain::plain_message;
use crate::socket::resume;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};

/// Sends what could not be sent at once, all of it unless the socket is in non-blocking mode. `begun`:
/// a part of the call's data was sent before.
pub(crate) unsafe fn transmit_rest(
    fd: c_int,
    message: &msghdr,
    flags: c_int,
    begun: bool,
    steps: &mut MultiStep,
) -> Answer {
    let number = libc::SYS_sendmsg;
    let file = descriptor::file(fd);
    if !blocking(file, fd) {
        return Err(libc::EAGAIN);
    }
    if begun && !steps.go_on() {
        return Err(libc::EBADF);
    }
    if option(fd, libc::SO_TYPE) != Ok(libc::SOCK_STREAM) {
        // SAFETY: the caller's promise.
        return unsafe { transmit_whole(fd, message, flags, steps) };
    }
    // SAFETY: the caller's promise.
    let mut buffers = unsafe { Buffers::new(message.msg_iov, message.msg_iovlen as _) };
    // SAFETY: the kernel has looked at them for the try.
    unsafe { buffers.seen() };
    let mut rest = *message;
    let mut sent = 0;
    let deadline = parking::deadline(fd, Some(Limit::Send));
    loop {
        // Without the signal: a reactor raises it or not, and not always where it belongs.
        let silent = flags | libc::MSG_NOSIGNAL;
        let op = Op::SendMessage { fd, message: &raw const rest, flags: silent };
        let on = On { fd, reason: Reason::Write, limit: Some(Limit::Send) };
        // SAFETY: the caller's promise.
        let parked = unsafe {
            match begun || sent > 0 {
                true => resume::send_more(on, &rest, silent, deadline),
                false => parking::perform_until(&op, on, deadline),
            }
        };
        let answer = match parked {
            Parked::Late => Err(libc::EAGAIN),
            Parked::Answered(Err(libc::EPIPE)) if !begun && sent == 0 && steps.go_on() => {
                // Once more here, for the signal. (Who has sent a part gets it from the next call.)
                // SAFETY: as above.
                unsafe { plain_message(number, fd, &raw const rest, flags | libc::MSG_DONTWAIT) }
            }
            Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
                // SAFETY: as above.
                unsafe { steps.offload(|| plain_message(number, fd, &raw const rest, flags)) }
            }
            Parked::Answered(answer) => answer,
        };
        match answer {
            Ok(more) if more != 0 && more < buffers.left() && steps.go_on() => {
                sent += more;
                buffers.advance(more);
                rest.msg_iov = buffers.first().cast_mut();
                rest.msg_iovlen = buffers.count() as _;
                rest.msg_name = ptr::null_mut();
                rest.msg_namelen = 0;
                rest.msg_control = ptr::null_mut();
                rest.msg_controllen = 0;
            }
            answer => return or_so_far(sent, answer),
        }
    }
}

/// Sends a message that goes whole or not at all, when there is room for it.
///
/// The reactor only waits for the room. A socket of `AF_UNIX` takes the data out of the buffers
/// before it looks at its receiver's queue, and io_uring tries again with what is left in them: so it
/// would send an empty message, and say so (Linux 6.18).
unsafe fn transmit_whole(
    fd: c_int,
    message: &msghdr,
    flags: c_int,
    steps: &mut MultiStep,
) -> Answer {
    let number = libc::SYS_sendmsg;
    // Room at whom? What is not connected is always writable.
    let elsewhere = !message.msg_name.is_null() && option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX);
    let on = On { fd, reason: Reason::Write, limit: Some(Limit::Send) };
    let deadline = parking::deadline(fd, on.limit);
    loop {
        let room = match elsewhere {
            true => Parked::Unsupported,
            // SAFETY: it points to nothing.
            false => unsafe {
                parking::perform_until(&Op::Poll { fd, events: libc::POLLOUT as u32 }, on, deadline)
            },
        };
        match room {
            Parked::Late => return Err(libc::EAGAIN),
            Parked::Unsupported => {
                // SAFETY: the caller's promise.
                return unsafe { steps.offload(|| plain_message(number, fd, message, flags)) };
            }
            Parked::Answered(Err(errno)) => return Err(errno),
            Parked::Answered(Ok(_)) => {
                // SAFETY: the caller's promise.
                match unsafe { plain_message(number, fd, message, flags | libc::MSG_DONTWAIT) } {
                    // Somebody else was faster.
                    Err(libc::EAGAIN) => {}
                    answer => return answer,
                }
            }
        }
    }
}
