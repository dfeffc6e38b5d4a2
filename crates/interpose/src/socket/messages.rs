//! `recvmmsg` and `sendmmsg`: several messages by one call.
//!
//! One system call moves the messages that need not wait; then the fiber waits for the next message as
//! `recvmsg` and `sendmsg` do. (With `MSG_WAITALL` on a stream, what need not wait may be a part of a message, so
//! each is received for itself.)

use std::ffi::{c_int, c_uint};
use std::mem;

use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{mmsghdr, msghdr, timespec};

use crate::call::answer::{Answer, answer};
use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::socket::flags::{heeded, never_waits, wants_all, with_waitall};
use crate::socket::message::Message;
use crate::socket::receive_message::receive_message;
use crate::socket::send::transmit_message;
use crate::socket::send_rest::transmit_rest;
use crate::time::duration;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness::is_ready;
use crate::wait::user_op::UserOp;

interpose! {
    /// `recvmmsg(2)`. As on Linux, the timeout is checked after each message and does not end the wait for
    /// one. Afterwards it holds the time that was left when the last message had come.
    safe fn recvmmsg(
        fd: c_int,
        messages: User<mmsghdr>,
        count: c_uint,
        flags: c_int,
        timeout: User<timespec>,
    ) -> c_int, number SYS_recvmmsg {
        answer(receive_messages(fd, messages, limited(count), flags, timeout)) as c_int
    }
}

interpose! {
    /// `sendmmsg(2)`.
    safe fn sendmmsg(
        fd: c_int,
        messages: User<mmsghdr>,
        count: c_uint,
        flags: c_int,
    ) -> c_int, number SYS_sendmmsg {
        answer(transmit_messages(fd, messages, limited(count), flags)) as c_int
    }
}

/// At most as many messages as the kernel moves by one call.
fn limited(count: c_uint) -> usize {
    (count as usize).min(libc::UIO_MAXIOV as usize)
}

/// Moves as many messages as need not wait.
fn at_once(
    number: Number,
    fd: c_int,
    messages: User<mmsghdr>,
    count: usize,
    flags: c_int,
) -> Answer {
    let flags = flags | libc::MSG_DONTWAIT;
    sys::call(number, [fd.into(), messages.into(), count.into(), flags.into()])
}

fn receive_messages(
    fd: c_int,
    messages: User<mmsghdr>,
    count: usize,
    flags: c_int,
    timeout: User<timespec>,
) -> Answer {
    let until = duration::deadline(timeout)?;
    let of_one = flags & libc::MSG_WAITFORONE != 0;
    let flags = heeded(fd, flags & !libc::MSG_WAITFORONE);
    let waits = !never_waits(flags) && blocking(descriptor::file(fd), fd);
    if !waits {
        let arguments = [fd.into(), messages.into(), count.into(), flags.into(), timeout.into()];
        return sys::call(Number::RECVMMSG, arguments);
    }
    let flags = with_waitall(fd, flags);
    if wants_all(flags) {
        // A call for no messages fails with the error that was there before, as one for several does first.
        at_once(Number::RECVMMSG, fd, messages, 0, flags)?;
    }
    let seat = Seat::new();
    let steps = MultiStep::new(fd, &seat);
    let is_timed = !timeout.is_null();
    let mut receiving = Receiving {
        fd,
        messages,
        count,
        flags,
        of_one,
        is_timed,
        until,
        steps,
        got: 0,
        time_left: 0,
    };
    let ended = receiving.receive();
    let Receiving { got, time_left, .. } = receiving;
    if got == 0 {
        return ended.map(|()| 0);
    }
    if is_timed {
        timeout.write(duration::timespec(time_left))?;
    }
    Ok(got)
}

/// A call for several messages that waits for them.
struct Receiving<'a> {
    fd: c_int,
    messages: User<'a, mmsghdr>,
    count: usize,
    flags: c_int,
    /// It waits for the first message alone (`MSG_WAITFORONE`).
    of_one: bool,
    /// The timeout is checked after each message.
    is_timed: bool,
    until: u64,
    steps: MultiStep<'a>,
    got: usize,
    /// When the last message had come.
    time_left: u64,
}

impl Receiving<'_> {
    /// Receives until the call ends.
    ///
    /// # Errors
    /// What ended it: the caller's error if no message was received, else to be forgotten.
    fn receive(&mut self) -> Result<(), c_int> {
        while self.got == 0 || self.steps.go_on() {
            if self.receive_some()? {
                return Ok(());
            }
            // The other messages that are there are received without waiting.
            if self.of_one {
                continue;
            }
            if !self.steps.go_on() {
                return Ok(());
            }
            match wait_for_more(self.fd) {
                Next::Message => {}
                Next::Nothing => return Ok(()),
                Next::Unknown => {
                    self.got += self.receive_one()?;
                    self.time_left = duration::left(self.until);
                    if self.got >= self.count {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives the messages that are there, or waits for one. Returns whether the call ends with them.
    fn receive_some(&mut self) -> Result<bool, c_int> {
        let (rest, left) = (self.messages.after(self.got), self.count - self.got);
        let most = if self.is_timed { left.min(1) } else { left };
        let waits = self.got == 0 || !self.of_one;
        let tried = match wants_all(self.flags) && waits {
            // Not tried: it might be a part of a message.
            true => Err(libc::EAGAIN),
            false => at_once(Number::RECVMMSG, self.fd, rest, most, self.flags),
        };
        self.got += match tried {
            // Another receiver was faster; or the socket is shut down, which for datagrams is told only to a
            // call that waits.
            Err(libc::EAGAIN) if waits => self.receive_one()?,
            tried => tried?,
        };
        self.time_left = duration::left(self.until);
        let is_over = self.got >= self.count || self.time_left == 0;
        Ok(is_over || self.of_one && tried.is_ok() && most == left)
    }

    /// Waits for one message and receives it.
    fn receive_one(&mut self) -> Answer {
        let message = self.messages.after(self.got);
        let length = receive_message(self.fd, header_of(message), self.flags, &mut self.steps)?;
        // SAFETY: the kernel has written to the header, which this is beside.
        unsafe { length_of(message).write_seen(length as c_uint) };
        Ok(1)
    }
}

/// What follows the messages that were received.
enum Next {
    Message,
    /// The call ends with those it has.
    Nothing,
    /// The reactor cannot wait without receiving.
    Unknown,
}

/// Waits for the next message, and takes nothing.
///
/// On Linux, and by the manual, an error that comes after some messages is reported to the next call. To ask
/// for a message would take the error from the socket for good; a poll leaves it there. (Only an error that
/// comes between the poll and the receiving call is lost.)
fn wait_for_more(fd: c_int) -> Next {
    let op = UserOp::poll(fd, libc::POLLIN);
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    match parking::perform(&op, on) {
        Parked::Answered(Ok(events)) if events & libc::POLLERR as usize == 0 => Next::Message,
        Parked::Answered(_) | Parked::Late => Next::Nothing,
        Parked::Unsupported => Next::Unknown,
    }
}

fn transmit_messages(fd: c_int, messages: User<mmsghdr>, count: usize, flags: c_int) -> Answer {
    if flags & libc::MSG_DONTWAIT != 0 || !blocking(descriptor::file(fd), fd) {
        return at_once(Number::SENDMMSG, fd, messages, count, flags);
    }
    let seat = Seat::new();
    let mut steps = MultiStep::new(fd, &seat);
    let mut sent = 0;
    loop {
        if sent > 0 && !steps.go_on() {
            return Ok(sent);
        }
        let (rest, left) = (messages.after(sent), count - sent);
        match at_once(Number::SENDMMSG, fd, rest, left, flags) {
            Ok(more) => {
                sent += more;
                // SAFETY: the kernel has sent that message, or a part of it.
                let whole = more == 0
                    || unsafe { transmit_end(fd, rest.after(more - 1), flags, &mut steps) };
                if !whole || (sent < count && has_told_an_error(fd)) {
                    return Ok(sent);
                }
            }
            Err(libc::EAGAIN) => {
                match transmit_message(fd, header_of(rest), flags, &mut steps) {
                    Ok(length) => {
                        // SAFETY: the kernel has read the header and what it describes.
                        let whole = unsafe {
                            length_of(rest).write_seen(length as c_uint);
                            length >= total(rest)
                        };
                        sent += 1;
                        if !whole {
                            return Ok(sent);
                        }
                    }
                    Err(errno) => return if sent > 0 { Ok(sent) } else { Err(errno) },
                }
            }
            Err(errno) => return if sent > 0 { Ok(sent) } else { Err(errno) },
        }
        if sent >= count {
            return Ok(sent);
        }
    }
}

/// Whether a call that has sent some messages was ended by an error, and not for want of room.
///
/// Most errors come again when the next message is tried. But an error that an earlier message caused (no
/// socket at its address) is reported once, and a call that has sent some messages does not report it. In
/// that case the socket is writable. If it was full instead, it is not so soon: it becomes writable when half
/// of its buffer is free.
#[cold]
fn has_told_an_error(fd: c_int) -> bool {
    let is_of_internet = matches!(option(fd, libc::SO_DOMAIN), Ok(libc::AF_INET | libc::AF_INET6));
    is_of_internet
        && option(fd, libc::SO_TYPE) != Ok(libc::SOCK_STREAM)
        && is_ready(fd, libc::POLLOUT)
}

fn header_of(message: User<mmsghdr>) -> User<msghdr> {
    message.skip(mem::offset_of!(mmsghdr, msg_hdr)).cast()
}

fn length_of(message: User<mmsghdr>) -> User<c_uint> {
    message.skip(mem::offset_of!(mmsghdr, msg_len)).cast()
}

/// How many bytes a message has to send.
///
/// # Safety
/// The kernel has read the header and the buffers' descriptions.
unsafe fn total(message: User<mmsghdr>) -> usize {
    // SAFETY: the kernel has read all of it, as this function asks.
    unsafe {
        let mut buffers = Message::copied(header_of(message)).buffers();
        buffers.seen();
        buffers.left()
    }
}

/// Sends the rest of a message of which a part was sent, as happens on streams. Returns whether all of it has
/// been sent; if not, its length says so, and like the kernel's call this one sends no message after it.
///
/// # Safety
/// The kernel has read the header and the buffers' descriptions, and written the length.
unsafe fn transmit_end(
    fd: c_int,
    message: User<mmsghdr>,
    flags: c_int,
    steps: &mut MultiStep,
) -> bool {
    let length = length_of(message);
    // SAFETY: the kernel has read the one and written the other, as this function asks.
    let (mut rest, sent) = unsafe { (Message::copied(header_of(message)), length.read_seen()) };
    let mut buffers = rest.buffers();
    // SAFETY: the kernel has read the descriptions, as this function asks.
    unsafe { buffers.seen() };
    if sent as usize >= buffers.left() {
        return true;
    }
    buffers.advance(sent as usize);
    // SAFETY: `buffers` stays as it is until the message was sent.
    unsafe { rest.set_buffers(&buffers) };
    rest.only_bytes();
    let Ok(more) = transmit_rest(fd, rest, flags, true, steps) else { return false };
    // SAFETY: the kernel has written there for the first part.
    unsafe { length.write_seen(sent + more as c_uint) };
    more >= buffers.left()
}
