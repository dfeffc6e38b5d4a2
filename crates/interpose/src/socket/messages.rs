//! `recvmmsg` and `sendmmsg`: several messages by one call.
//!
//! What can be done at once is done by one system call; then the next message is waited for as
//! `recvmsg` and `sendmsg` wait.

use std::ffi::{c_int, c_uint};
use std::ptr;

use carefree_ground::kernel;
use carefree_reactor::Op;
use carefree_runtime::waiters::Seat;
use carefree_runtime::{Reason, clock};
use libc::{mmsghdr, timespec};

use crate::call::answer::{Answer, answer};
use crate::call::buffers::Buffers;
use crate::call::memory;
use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::socket::flags::{heeded, never_waits};
use crate::socket::receive_message::receive_message;
use crate::socket::send::transmit_message;
use crate::time::duration;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness::is_ready;

system_call!(
    fn raw_recvmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
    ) -> c_int = SYS_recvmmsg
);
system_call!(
    fn raw_sendmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
    ) -> c_int = SYS_sendmmsg
);

interpose! {
    /// `recvmmsg(2)`. As Linux has it, the timeout is looked at when a message has come; it does not
    /// end the wait for one. Afterwards it says how much of it is left.
    fn recvmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
    ) -> c_int, else raw_recvmmsg {
        // SAFETY: the caller's promise.
        answer(unsafe { receive_messages(fd, messages, limited(count), flags, timeout) }) as c_int
    }
}

interpose! {
    /// `sendmmsg(2)`.
    fn sendmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
    ) -> c_int, else raw_sendmmsg {
        // SAFETY: the caller's promise.
        answer(unsafe { transmit_messages(fd, messages, limited(count), flags) }) as c_int
    }
}

/// The kernel deals with so many by one call.
fn limited(count: c_uint) -> usize {
    (count as usize).min(libc::UIO_MAXIOV as usize)
}

/// As many messages as go at once.
unsafe fn at_once(
    number: libc::c_long,
    fd: c_int,
    messages: *mut mmsghdr,
    count: usize,
    flags: c_int,
) -> Answer {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the caller's promise.
    unsafe { kernel::call(number, [fd as usize, messages as usize, count, flags as usize, 0, 0]) }
}

unsafe fn receive_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: usize,
    flags: c_int,
    timeout: *mut timespec,
) -> Answer {
    let until = duration::deadline(timeout)?;
    let of_one = flags & libc::MSG_WAITFORONE != 0;
    let flags = heeded(fd, flags & !libc::MSG_WAITFORONE);
    let waits = !never_waits(flags) && blocking(descriptor::file(fd), fd);
    if !waits {
        let arguments =
            [fd as usize, messages as usize, count, flags as usize, timeout as usize, 0];
        // SAFETY: the caller's promise.
        return unsafe { kernel::call(libc::SYS_recvmmsg, arguments) };
    }
    let seat = Seat::new();
    let mut steps = MultiStep::new(fd, &seat);
    let mut got = 0;
    let ended = loop {
        if got > 0 && !steps.go_on() {
            break Ok(got);
        }
        // SAFETY: as above; those further on are there as well.
        let (rest, left) = unsafe { (messages.add(got), count - got) };
        // Where there is a limit, it is looked at after each.
        let most = if timeout.is_null() { left } else { left.min(1) };
        // SAFETY: as above.
        let tried = unsafe { at_once(libc::SYS_recvmmsg, fd, rest, most, flags) };
        let answer = match tried {
            // Another receiver was faster; or the socket is shut down, and of datagrams only a call that
            // waits is told so.
            // SAFETY: as above.
            Err(libc::EAGAIN) if got == 0 || !of_one => unsafe {
                receive_one(fd, rest, flags, &mut steps)
            },
            answer => answer,
        };
        match answer {
            Ok(more) => got += more,
            Err(errno) => break Err(errno),
        }
        if got >= count || until <= clock::now() {
            break Ok(got);
        }
        if of_one {
            if tried.is_ok() && most == left {
                break Ok(got);
            }
            // What is there besides, without waiting.
            continue;
        }
        if !steps.go_on() {
            break Ok(got);
        }
        match wait_for_more(fd) {
            Next::Message => {}
            Next::Nothing => break Ok(got),
            Next::Unknown => {
                // SAFETY: as above: there is one more.
                match unsafe { receive_one(fd, messages.add(got), flags, &mut steps) } {
                    Ok(more) => got += more,
                    Err(errno) => break Err(errno),
                }
                if got >= count {
                    break Ok(got);
                }
            }
        }
    };
    if got == 0 {
        return ended;
    }
    if !timeout.is_null() {
        // SAFETY: the caller has no need of what is there, for it is overwritten.
        unsafe {
            memory::check_writable(timeout)?;
            timeout.write_unaligned(duration::timespec(duration::left(until)));
        }
    }
    Ok(got)
}

/// Receives one message, for which it waits.
unsafe fn receive_one(
    fd: c_int,
    message: *mut mmsghdr,
    flags: c_int,
    steps: &mut MultiStep,
) -> Answer {
    // SAFETY: the caller's promise.
    unsafe {
        let length = receive_message(fd, &raw mut (*message).msg_hdr, flags, steps)?;
        (*message).msg_len = length as c_uint;
    }
    Ok(1)
}

/// What comes after some messages.
enum Next {
    Message,
    /// The call has to do with those it has.
    Nothing,
    /// There is no waiting for it without taking it.
    Unknown,
}

/// Waits for the next message, and takes nothing.
///
/// An error that comes after some messages is the next call's, say Linux and the manual. Whoever asks
/// for a message takes the error instead, and could not give it back; but it stays with the socket
/// when a poll has seen it. (Only one that comes between the poll and the asking is lost.)
fn wait_for_more(fd: c_int) -> Next {
    let op = Op::Poll { fd, events: libc::POLLIN as u32 };
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    // SAFETY: it points to nothing.
    match unsafe { parking::perform(&op, on) } {
        Parked::Answered(Ok(events)) if events & libc::POLLERR as usize == 0 => Next::Message,
        Parked::Answered(_) | Parked::Late => Next::Nothing,
        Parked::Unsupported => Next::Unknown,
    }
}

unsafe fn transmit_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: usize,
    flags: c_int,
) -> Answer {
    if flags & libc::MSG_DONTWAIT != 0 || !blocking(descriptor::file(fd), fd) {
        // SAFETY: the caller's promise.
        return unsafe { at_once(libc::SYS_sendmmsg, fd, messages, count, flags) };
    }
    let seat = Seat::new();
    let mut steps = MultiStep::new(fd, &seat);
    let mut sent = 0;
    loop {
        if sent > 0 && !steps.go_on() {
            return Ok(sent);
        }
        // SAFETY: the caller's promise; those further on are there as well.
        let (rest, left) = unsafe { (messages.add(sent), count - sent) };
        // SAFETY: as above.
        match unsafe { at_once(libc::SYS_sendmmsg, fd, rest, left, flags) } {
            Ok(more) => {
                sent += more;
                // SAFETY: the kernel has sent that message, or a part of it.
                let whole =
                    more == 0 || unsafe { transmit_end(fd, rest.add(more - 1), flags, &mut steps) };
                if !whole || (sent < count && has_told_an_error(fd)) {
                    return Ok(sent);
                }
            }
            Err(libc::EAGAIN) => {
                // SAFETY: as above.
                match unsafe { transmit_message(fd, &raw const (*rest).msg_hdr, flags, &mut steps) }
                {
                    Ok(length) => {
                        // SAFETY: as above; the kernel has read the header and what it describes.
                        let whole = unsafe {
                            (*rest).msg_len = length as c_uint;
                            length >= total(&*rest)
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
/// Most errors come again when the next message is tried. What an earlier one brought about (nobody
/// listens at its address) is told once, and a call that has sent some keeps it to itself. There is room
/// then, which does not come back in a moment: such a socket is writable when half of it is free.
#[cold]
fn has_told_an_error(fd: c_int) -> bool {
    let is_of_internet = matches!(option(fd, libc::SO_DOMAIN), Ok(libc::AF_INET | libc::AF_INET6));
    is_of_internet
        && option(fd, libc::SO_TYPE) != Ok(libc::SOCK_STREAM)
        && is_ready(fd, libc::POLLOUT)
}

/// Bytes that a message has to send.
///
/// # Safety
/// The kernel has read the buffers' descriptions.
unsafe fn total(message: &mmsghdr) -> usize {
    let header = &message.msg_hdr;
    // SAFETY: the caller's promise.
    unsafe {
        let mut buffers = Buffers::new(header.msg_iov, header.msg_iovlen as _);
        buffers.seen();
        buffers.left()
    }
}

/// Sends what is left of a message of which a part was sent, as happens on streams. Whether all of it
/// is sent then; if not, its length says so, and the kernel's call sends no message after it.
unsafe fn transmit_end(
    fd: c_int,
    message: *mut mmsghdr,
    flags: c_int,
    steps: &mut MultiStep,
) -> bool {
    // SAFETY: the caller's promise.
    let message = unsafe { &mut *message };
    // SAFETY: as above.
    let mut buffers =
        unsafe { Buffers::new(message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen as _) };
    // SAFETY: the kernel has sent what they describe.
    unsafe { buffers.seen() };
    if message.msg_len as usize >= buffers.left() {
        return true;
    }
    if !steps.go_on() {
        return false;
    }
    buffers.advance(message.msg_len as usize);
    let mut rest = message.msg_hdr;
    rest.msg_iov = buffers.first().cast_mut();
    rest.msg_iovlen = buffers.count() as _;
    rest.msg_name = ptr::null_mut();
    rest.msg_namelen = 0;
    rest.msg_control = ptr::null_mut();
    rest.msg_controllen = 0;
    // SAFETY: as above.
    let Ok(more) = (unsafe { transmit_message(fd, &raw const rest, flags, steps) }) else {
        return false;
    };
    message.msg_len += more as c_uint;
    more >= buffers.left()
}
