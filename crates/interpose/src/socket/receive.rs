//! `recv`, `recvfrom`: tried without blocking first (`MSG_DONTWAIT`), then parked.

use std::ffi::{c_int, c_void};

use carefree_runtime::Reason;
use libc::{sockaddr, socklen_t};

use crate::call::answer::{Answer, answer};
use crate::call::buffers::LONGEST;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::low_water;
use crate::descriptor::{File, Limit, blocking};
use crate::socket::flags::{heeded, is_worth_a_try, never_waits, peeks, wants_all, with_waitall};
use crate::socket::peek::until_all;
use crate::socket::plain::plain_receive;
use crate::socket::receive_message::{receive_from, waits_for_nothing};
use crate::socket::waitall;
use crate::wait::offload;
use crate::wait::parking::{self, On, Parked};
use crate::wait::user_op::UserOp;

extern "C-unwind" fn raw_recv(fd: c_int, to: User<c_void>, length: usize, flags: c_int) -> isize {
    recvfrom::original(fd, to, length, flags, User::NULL, User::NULL)
}

interpose! {
    /// `recv(2)`.
    safe fn recv(fd: c_int, buffer: User<c_void>, length: usize, flags: c_int) -> isize, else raw_recv {
        answer(receive(fd, buffer, length, flags, User::NULL, User::NULL))
    }
}

interpose! {
    /// `recvfrom(2)`.
    safe fn recvfrom(
        fd: c_int,
        buffer: User<c_void>,
        length: usize,
        flags: c_int,
        address: User<sockaddr>,
        address_length: User<socklen_t>,
    ) -> isize, number SYS_recvfrom {
        answer(receive(fd, buffer, length, flags, address, address_length))
    }
}

/// Receives.
///
/// Each step needs little stack: a fiber that waits here has usually touched only one page of its stack, and
/// should not touch a second.
#[inline(always)]
pub(crate) fn receive(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    address: User<sockaddr>,
    address_length: User<socklen_t>,
) -> Answer {
    // The kernel cuts the length for this call too. In a list, a longer buffer would be refused.
    let length = length.min(LONGEST);
    let flags = heeded(fd, flags);
    if never_waits(flags) {
        return plain_receive(fd, buffer, length, flags, address, address_length);
    }
    let flags = with_waitall(fd, flags);
    if peeks(flags) {
        return peek(fd, buffer, length, flags, address, address_length);
    }
    if wants_all(flags) {
        return waitall::receive(fd, buffer, length, flags, address, address_length);
    }
    let file = descriptor::file(fd);
    if file.is_some_and(File::was_impatient) {
        return plain_receive(fd, buffer, length, flags, address, address_length);
    }
    if is_worth_a_try(file, fd) {
        let try_flags = flags | libc::MSG_DONTWAIT;
        let tried = plain_receive(fd, buffer, length, try_flags, address, address_length);
        if let Some(file) = file {
            file.tried(tried != Err(libc::EAGAIN));
        }
        if tried != Err(libc::EAGAIN) {
            return tried;
        }
    }
    if !address.is_null() {
        return receive_from(fd, buffer, length, flags, address, address_length);
    }
    if !blocking(file, fd) {
        return Err(libc::EAGAIN);
    }
    // What is asked once for each file needs more stack than the wait has below it: so it is asked above that.
    let deadline = parking::deadline(fd, Some(Limit::Receive));
    park_for_data(fd, buffer, length, flags, deadline)
}

/// Looks at what has come, until it is all that was asked for.
#[cold]
#[inline(never)]
fn peek(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    address: User<sockaddr>,
    address_length: User<socklen_t>,
) -> Answer {
    let flags = flags | libc::MSG_DONTWAIT;
    until_all(fd, length, || plain_receive(fd, buffer, length, flags, address, address_length))
}

/// Waits for data and receives it.
#[inline(never)]
fn park_for_data(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    deadline: u64,
) -> Answer {
    if length == 0 && waits_for_nothing(fd) || low_water::is_above(fd, length) {
        return offload_receive(fd, buffer, length, flags);
    }
    let op = UserOp::receive(fd, buffer, length, flags);
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    match parking::perform_here(&op, on, deadline) {
        Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
            offload_receive(fd, buffer, length, flags)
        }
        Parked::Answered(answer) => answer,
        // Less than `SO_RCVLOWAT` may be there, which the kernel returns when the time is up.
        Parked::Late => {
            let flags = flags | libc::MSG_DONTWAIT;
            plain_receive(fd, buffer, length, flags, User::NULL, User::NULL)
        }
    }
}

#[cold]
#[inline(never)]
fn offload_receive(fd: c_int, to: User<c_void>, length: usize, flags: c_int) -> Answer {
    let null = User::NULL;
    let call = || plain_receive(fd, to, length, flags, null, User::NULL);
    offload::on_file(fd, call)
}
