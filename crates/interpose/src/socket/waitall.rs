//! Receiving all that was asked for: `MSG_WAITALL`.
//!
//! On streams only: a message is received as a whole, and the next one is another message. (io_uring would
//! join those of `SOCK_SEQPACKET`.) The socket's time limit is for the whole call.
//!
//! The reactor receives parts: io_uring, which goes on where it stopped, would take the error that ended a part
//! from the socket, and on `AF_UNIX` join what came with a file to what comes after it (Linux 6.18). See
//! [`resume`](crate::socket::resume).

use std::ffi::{c_int, c_void};

use carefree_runtime::waiters::Seat;
use libc::{iovec, sockaddr, socklen_t};

use crate::call::answer::Answer;
use crate::call::sys::Number;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::Limit;
use crate::socket::flags::is_worth_a_try;
use crate::socket::message::Message;
use crate::socket::plain::{plain_message, plain_receive};
use crate::socket::receive_message::{brings_files_alone, receive_from, receive_message};
use crate::socket::resume;
use crate::socket::waitall_message::receive_all;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking;

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
    if resume::takes_error(fd) {
        return receive_with_files(fd, buffer, length, flags, address, address_length);
    }
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
    let deadline = parking::deadline(fd, Some(Limit::Receive));
    let mut buffer = iovec { iov_base: buffer.pointer(), iov_len: length };
    let mut message = Message::of_one(&mut buffer);
    receive_all(fd, message.lend(), flags, got, deadline, &mut steps)
}

/// [`receive`] on a stream of `AF_UNIX`, where a part also ends at files. Only the message's flags say that.
fn receive_with_files(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    address: User<sockaddr>,
    address_length: User<socklen_t>,
) -> Answer {
    let seat = Seat::new();
    let mut steps = MultiStep::new(fd, &seat);
    let mut buffer = iovec { iov_base: buffer.pointer(), iov_len: length };
    let mut message = Message::of_one(&mut buffer);
    if !address.is_null() {
        message.set_address(address, address_length.read()?);
    }
    let file = descriptor::file(fd);
    let tried = match brings_files_alone(fd) && is_worth_a_try(file, fd) {
        true => {
            let at_once = flags | libc::MSG_DONTWAIT;
            let tried = plain_message(Number::RECVMSG, fd, message.lend(), at_once);
            if let Some(file) = file {
                file.tried(tried != Err(libc::EAGAIN));
            }
            tried
        }
        false => Err(libc::EAGAIN),
    };
    let answer = match tried {
        Ok(part) if part != 0 && part < length => {
            let deadline = parking::deadline(fd, Some(Limit::Receive));
            receive_all(fd, message.lend(), flags, part, deadline, &mut steps)
        }
        Err(libc::EAGAIN) => receive_message(fd, message.lend(), flags, &mut steps),
        tried => tried,
    };
    if answer.is_ok() && !address.is_null() {
        // SAFETY: it was read above; a call that says from where writes to it.
        unsafe { address_length.write_seen(message.header().msg_namelen) };
    }
    answer
}
