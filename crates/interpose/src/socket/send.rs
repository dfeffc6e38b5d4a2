//! `send`, `sendto`, `sendmsg`: tried without blocking first (`MSG_DONTWAIT`), then parked.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::call::answer::{Answer, answer, or_so_far};
use crate::call::buffers::{Buffers, LONGEST};
use crate::descriptor;
use crate::descriptor::{Limit, blocking};
use crate::socket::plain::{plain_message, plain_send};
use crate::socket::send_rest::transmit_rest;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};

unsafe extern "C-unwind" fn raw_send(
    fd: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { raw_sendto(fd, from, length, flags, ptr::null(), 0) }
}
system_call!(
    fn raw_sendto(
        fd: c_int,
        buffer: *const c_void,
        length: usize,
        flags: c_int,
        address: *const sockaddr,
        address_length: socklen_t,
    ) -> isize = SYS_sendto
);
system_call!(
    fn raw_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize = SYS_sendmsg
);

interpose! {
    /// `send(2)`.
    fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize, else raw_send {
        // SAFETY: the caller's promise.
        answer(unsafe { transmit(fd, buffer, length, flags, ptr::null(), 0) })
    }
}

interpose! {
    /// `sendto(2)`.
    fn sendto(
        fd: c_int,
        buffer: *const c_void,
        length: usize,
        flags: c_int,
        address: *const sockaddr,
        address_length: socklen_t,
    ) -> isize, else raw_sendto {
        // SAFETY: the caller's promise.
        answer(unsafe { transmit(fd, buffer, length, flags, address, address_length) })
    }
}

interpose! {
    /// `sendmsg(2)`.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize, else raw_sendmsg {
        let seat = Seat::new();
        // SAFETY: the caller's promise.
        answer(unsafe { transmit_message(fd, message, flags, &mut MultiStep::new(fd, &seat)) })
    }
}

/// Sends.
///
/// # Safety
/// As for `sendto`.
pub(crate) unsafe fn transmit(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> Answer {
    let seat = Seat::new();
    let mut steps = MultiStep::new(fd, &seat);
    let to = (address, address_length);
    // SAFETY: the caller's promise.
    unsafe { transmit_as(fd, buffer, length, flags, to, &mut steps) }
}

/// [`transmit`], as one of the `steps` of a call.
///
/// # Safety
/// As for that.
#[inline]
pub(crate) unsafe fn transmit_as(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    (address, address_length): (*const sockaddr, socklen_t),
    steps: &mut MultiStep,
) -> Answer {
    // As above.
    let length = length.min(LONGEST);
    // SAFETY: the caller's promise.
    let first = unsafe {
        plain_send(fd, buffer, length, flags | libc::MSG_DONTWAIT, address, address_length)
    };
    match first {
        Ok(sent) if sent == length => return first,
        Err(libc::EAGAIN) | Ok(_) if flags & libc::MSG_DONTWAIT == 0 => {}
        Err(libc::EINPROGRESS) if flags & libc::MSG_FASTOPEN != 0 => {
            // SAFETY: the caller's promise.
            return unsafe { transmit_when_connected(fd, buffer, length, flags, steps) };
        }
        _ => return first,
    }
    // The rest: to whom has been said if some of it is on its way.
    let sent = first.unwrap_or(0);
    let mut rest =
        iovec { iov_base: buffer.wrapping_byte_add(sent).cast_mut(), iov_len: length - sent };
    // SAFETY: zeros are a header without anything.
    let mut message: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut rest;
    message.msg_iovlen = 1;
    if sent == 0 {
        message.msg_name = address.cast_mut().cast();
        message.msg_namelen = address_length;
    }
    // SAFETY: built from what the caller has promised to be valid.
    or_so_far(sent, unsafe { transmit_rest(fd, &message, flags, sent > 0, steps) })
}

/// Sends on a connection that `MSG_FASTOPEN` has begun to make, without data in its first packet.
#[cold]
unsafe fn transmit_when_connected(
    fd: c_int,
    buffer: *const c_void,
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
    let nobody = (ptr::null(), 0);
    let on = On { fd, reason: Reason::Connect, limit: Some(Limit::Send) };
    // SAFETY: it points to nothing.
    match unsafe { parking::perform(&Op::Poll { fd, events: libc::POLLOUT as u32 }, on) } {
        Parked::Late => Err(libc::EINPROGRESS),
        Parked::Answered(Err(errno)) => Err(errno),
        // If the connection was refused, this says so.
        // SAFETY: the caller's promise, and the caller waits.
        Parked::Answered(Ok(_)) => unsafe { transmit_as(fd, buffer, length, flags, nobody, steps) },
        // SAFETY: as above.
        Parked::Unsupported => unsafe {
            steps.offload(|| plain_send(fd, buffer, length, flags, ptr::null(), 0))
        },
    }
}

/// `sendmsg`, as one of the `steps` of a call.
pub(crate) unsafe fn transmit_message(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
    steps: &mut MultiStep,
) -> Answer {
    // SAFETY: the caller's promise.
    let first =
        unsafe { plain_message(libc::SYS_sendmsg, fd, message, flags | libc::MSG_DONTWAIT) };
    match first {
        Err(libc::EAGAIN) | Ok(_) if flags & libc::MSG_DONTWAIT == 0 => {}
        _ => return first,
    }
    // SAFETY: the kernel has found all of it readable.
    let mut buffers = unsafe { Buffers::new((*message).msg_iov, (*message).msg_iovlen as _) };
    // SAFETY: as above.
    unsafe { buffers.seen() };
    let sent = first.unwrap_or(0);
    if first.is_ok() && sent >= buffers.left() {
        return first;
    }
    // SAFETY: as above.
    let mut rest = unsafe { *message };
    if first.is_ok() {
        // Whom to, and what goes with it, has been sent.
        buffers.advance(sent);
        rest.msg_iov = buffers.first().cast_mut();
        rest.msg_iovlen = buffers.count() as _;
        rest.msg_name = ptr::null_mut();
        rest.msg_namelen = 0;
        rest.msg_control = ptr::null_mut();
        rest.msg_controllen = 0;
    }
    // SAFETY: as above.
    or_so_far(sent, unsafe { transmit_rest(fd, &rest, flags, sent > 0, steps) })
}
