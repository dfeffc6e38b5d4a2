//! `send`, `sendto`, `sendmsg`: tried without blocking first (`MSG_DONTWAIT`), then parked.

use std::ffi::{c_int, c_void};

use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::call::answer::{Answer, answer, or_so_far};
use crate::call::buffers::LONGEST;
use crate::call::sys::Number;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::{Limit, blocking};
use crate::socket::message::Message;
use crate::socket::plain::{plain_message, plain_send};
use crate::socket::send_rest::transmit_rest;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};
use crate::wait::user_op::UserOp;

extern "C-unwind" fn raw_send(fd: c_int, from: User<c_void>, length: usize, flags: c_int) -> isize {
    sendto::original(fd, from, length, flags, User::NULL, 0)
}

interpose! {
    /// `send(2)`.
    safe fn send(fd: c_int, buffer: User<c_void>, length: usize, flags: c_int) -> isize, else raw_send {
        answer(transmit(fd, buffer, length, flags, User::NULL, 0))
    }
}

interpose! {
    /// `sendto(2)`.
    safe fn sendto(
        fd: c_int,
        buffer: User<c_void>,
        length: usize,
        flags: c_int,
        address: User<sockaddr>,
        address_length: socklen_t,
    ) -> isize, number SYS_sendto {
        answer(transmit(fd, buffer, length, flags, address, address_length))
    }
}

interpose! {
    /// `sendmsg(2)`.
    safe fn sendmsg(fd: c_int, message: User<msghdr>, flags: c_int) -> isize, number SYS_sendmsg {
        let seat = Seat::new();
        answer(transmit_message(fd, message, flags, &mut MultiStep::new(fd, &seat)))
    }
}

/// Sends.
pub(crate) fn transmit(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    address: User<sockaddr>,
    address_length: socklen_t,
) -> Answer {
    let seat = Seat::new();
    let mut steps = MultiStep::new(fd, &seat);
    let to = (address, address_length);
    transmit_as(fd, buffer, length, flags, to, &mut steps)
}

/// [`transmit`], as one of the `steps` of a call.
#[inline]
pub(crate) fn transmit_as(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    (address, address_length): (User<sockaddr>, socklen_t),
    steps: &mut MultiStep,
) -> Answer {
    // As for `receive`.
    let length = length.min(LONGEST);
    let first = plain_send(fd, buffer, length, flags | libc::MSG_DONTWAIT, address, address_length);
    match first {
        Ok(sent) if sent == length => return first,
        Err(libc::EAGAIN) | Ok(_) if flags & libc::MSG_DONTWAIT == 0 => {}
        Err(libc::EINPROGRESS) if flags & libc::MSG_FASTOPEN != 0 => {
            return transmit_when_connected(fd, buffer, length, flags, steps);
        }
        _ => return first,
    }
    // The rest. If a part was sent, it had the address.
    let sent = first.unwrap_or(0);
    let mut rest = iovec { iov_base: buffer.skip(sent).pointer(), iov_len: length - sent };
    let mut message = Message::of_one(&mut rest);
    if sent == 0 {
        message.set_address(address, address_length);
    }
    or_so_far(sent, transmit_rest(fd, message, flags, sent > 0, steps))
}

/// Sends on a connection that `MSG_FASTOPEN` has begun to make, without data in its first packet.
#[cold]
fn transmit_when_connected(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    steps: &mut MultiStep,
) -> Answer {
    if flags & libc::MSG_DONTWAIT != 0 || !blocking(descriptor::file(fd), fd) {
        return Err(libc::EINPROGRESS);
    }
    if !steps.go_on() {
        return Err(libc::EBADF);
    }
    let flags = flags & !libc::MSG_FASTOPEN;
    let connected = (User::NULL, 0);
    let on = On { fd, reason: Reason::Connect, limit: Some(Limit::Send) };
    match parking::perform(&UserOp::poll(fd, libc::POLLOUT), on) {
        Parked::Late => Err(libc::EINPROGRESS),
        Parked::Answered(Err(errno)) => Err(errno),
        // If the connection was refused, this call reports it.
        Parked::Answered(Ok(_)) => transmit_as(fd, buffer, length, flags, connected, steps),
        Parked::Unsupported => {
            steps.offload(|| plain_send(fd, buffer, length, flags, User::NULL, 0))
        }
    }
}

/// `sendmsg`, as one of the `steps` of a call.
pub(crate) fn transmit_message(
    fd: c_int,
    message: User<msghdr>,
    flags: c_int,
    steps: &mut MultiStep,
) -> Answer {
    let first = plain_message(Number::SENDMSG, fd, message, flags | libc::MSG_DONTWAIT);
    match first {
        Err(libc::EAGAIN) | Ok(_) if flags & libc::MSG_DONTWAIT == 0 => {}
        _ => return first,
    }
    // SAFETY: the kernel has read the header for the try, which failed at no address.
    let mut rest = unsafe { Message::copied(message) };
    let mut buffers = rest.buffers();
    // SAFETY: and the buffers' descriptions.
    unsafe { buffers.seen() };
    let sent = first.unwrap_or(0);
    if first.is_ok() && sent >= buffers.left() {
        return first;
    }
    if first.is_ok() {
        // The address and the control data have gone with the part.
        buffers.advance(sent);
        // SAFETY: `buffers` stays as it is until the call is over.
        unsafe { rest.set_buffers(&buffers) };
        rest.only_bytes();
    }
    or_so_far(sent, transmit_rest(fd, rest, flags, sent > 0, steps))
}
