//! Sockets' system calls, made as they are.

use std::ffi::{c_int, c_void};

use libc::{msghdr, sockaddr, socklen_t};

use crate::call::answer::Answer;
use crate::call::sys::{self, Number};
use crate::call::user::User;

/// `recvfrom(2)` as it is. (Inlined, for the fiber that may wait next should have little on its stack.)
#[inline(always)]
pub(crate) fn plain_receive(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    address: User<sockaddr>,
    address_length: User<socklen_t>,
) -> Answer {
    let arguments = [
        fd.into(),
        buffer.into(),
        length.into(),
        flags.into(),
        address.into(),
        address_length.into(),
    ];
    sys::call(Number::RECVFROM, arguments)
}

/// `sendto(2)` as it is.
pub(crate) fn plain_send(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    address: User<sockaddr>,
    address_length: socklen_t,
) -> Answer {
    let arguments = [
        fd.into(),
        buffer.into(),
        length.into(),
        flags.into(),
        address.into(),
        address_length.into(),
    ];
    sys::call(Number::SENDTO, arguments)
}

/// A call with a message header as it is.
pub(crate) fn plain_message(
    number: Number,
    fd: c_int,
    message: User<msghdr>,
    flags: c_int,
) -> Answer {
    sys::call(number, [fd.into(), message.into(), flags.into()])
}
