//! Receiving all that was asked for: `MSG_WAITALL`.
//!
//! On streams only: a message is received as a whole, and the next one is another message. (io_uring would
//! join those of `SOCK_SEQPACKET`.) The socket's time limit is for the whole call.
//!
//! The reactor receives parts, except on `AF_UNIX`: io_uring, which goes on where it stopped, would take the
//! error that ended a part from the socket (Linux 6.18). See [`resume`](crate::socket::resume).

use std::ffi::{c_int, c_void};

use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{iovec, sockaddr, socklen_t};

use crate::call::answer::{Answer, or_so_far};
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::Limit;
use crate::socket::flags::{is_urgent, is_worth_a_try};
use crate::socket::message::Message;
use crate::socket::plain::plain_receive;
use crate::socket::receive_message::receive_from;
use crate::socket::resume;
use crate::socket::waitall_message::receive_all;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};
use crate::wait::user_op::UserOp;

/// Receives until `length` bytes are there.
#[cold]
pub(crate) fn receive(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    address: User<sockaddr>,
    address_length: User<socklen_t>,
) -> Answer {
    let seat = Seat::new();
    let mut steps = MultiStep::new(fd, &seat);
    let file = descriptor::file(fd);
    let mut got = 0;
    if is_worth_a_try(file, fd) {
        let at_once = flags | libc::MSG_DONTWAIT;
        let tried = plain_receive(fd, buffer, length, at_once, address, address_length);
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
        return receive_from(fd, buffer, length, flags, address, address_length);
    }
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    if !resume::takes_error(fd) {
        let mut buffer = iovec { iov_base: buffer.pointer(), iov_len: length };
        let mut message = Message::of_one(&mut buffer);
        return receive_all(fd, message.lend(), flags, got, deadline, &mut steps);
    }
    if got > 0 && is_urgent(fd) {
        return receive_before_mark(fd, buffer, length, flags, got, &mut steps);
    }
    loop {
        let (rest, left) = (buffer.skip(got), length - got);
        let op = UserOp::receive(fd, rest, left, flags);
        let answer = match parking::perform_until(&op, on, deadline) {
            Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
                steps.offload(|| receive_plainly(fd, rest, left, flags))
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

/// Receives the rest of `length` bytes, of which `got` are there, but none beyond a mark of urgent data, which
/// ends the call.
#[cold]
fn receive_before_mark(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    got: usize,
    steps: &mut MultiStep,
) -> Answer {
    if resume::is_at_mark(fd) {
        return Ok(got);
    }
    let (rest, left) = (buffer.skip(got), length - got);
    or_so_far(got, steps.offload(|| receive_plainly(fd, rest, left, flags)))
}

/// `recv(2)` as it is.
fn receive_plainly(fd: c_int, to: User<c_void>, length: usize, flags: c_int) -> Answer {
    plain_receive(fd, to, length, flags, User::NULL, User::NULL)
}
