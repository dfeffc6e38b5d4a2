//! `recv`, `send` and their kin.
//!
//! As in [`stream`](crate::stream): first without blocking (`MSG_DONTWAIT`), then parked.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::all;
use crate::buffers::Buffers;
use crate::fiber::answer;
use crate::files::{self, File, Limit};
use crate::flow::{LONGEST, blocking};
use crate::memory;
pub(crate) use crate::option::option;
use crate::parking::{self, Answer, On, Parked};
use crate::part;
use crate::plain::{or_so_far, plain_message, plain_receive, plain_send};
use crate::ready::is_ready;
use crate::seekable;
use crate::steps::Steps;

unsafe extern "C-unwind" fn raw_recv(
    fd: c_int,
    to: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { raw_recvfrom(fd, to, length, flags, ptr::null_mut(), ptr::null_mut()) }
}
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
    fn raw_recvfrom(
        fd: c_int,
        buffer: *mut c_void,
        length: usize,
        flags: c_int,
        address: *mut sockaddr,
        address_length: *mut socklen_t,
    ) -> isize = SYS_recvfrom
);
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
    fn raw_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize = SYS_recvmsg
);
system_call!(
    fn raw_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize = SYS_sendmsg
);

interpose! {
    /// `recv(2)`.
    fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize, else raw_recv {
        // SAFETY: the caller's promise.
        answer(unsafe { receive(fd, buffer, length, flags, ptr::null_mut(), ptr::null_mut()) })
    }
}

interpose! {
    /// `recvfrom(2)`.
    fn recvfrom(
        fd: c_int,
        buffer: *mut c_void,
        length: usize,
        flags: c_int,
        address: *mut sockaddr,
        address_length: *mut socklen_t,
    ) -> isize, else raw_recvfrom {
        // SAFETY: the caller's promise.
        answer(unsafe { receive(fd, buffer, length, flags, address, address_length) })
    }
}

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
    /// `recvmsg(2)`.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize, else raw_recvmsg {
        let seat = Seat::new();
        // SAFETY: the caller's promise.
        answer(unsafe { receive_message(fd, message, flags, &mut Steps::new(fd, &seat)) })
    }
}

interpose! {
    /// `sendmsg(2)`.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize, else raw_sendmsg {
        let seat = Seat::new();
        // SAFETY: the caller's promise.
        answer(unsafe { transmit_message(fd, message, flags, &mut Steps::new(fd, &seat)) })
    }
}

const SELDOM: c_int = libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// The flags that a receiving call on `fd` has, without those that its kind of socket does not look
/// at: such a call waits as if they were not there, while a reactor looks at them.
#[inline]
pub(crate) fn heeded(fd: c_int, flags: c_int) -> c_int {
    if flags & SELDOM == 0 { flags } else { flags & !ignored(fd) }
}

/// Of [`SELDOM`], what sockets of this kind do not look at (Linux 6.18).
#[cold]
fn ignored(fd: c_int) -> c_int {
    match option(fd, libc::SO_DOMAIN) {
        Ok(libc::AF_UNIX | libc::AF_NETLINK) => libc::MSG_ERRQUEUE,
        Ok(libc::AF_INET | libc::AF_INET6) if option(fd, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM) => {
            libc::MSG_OOB
        }
        _ => 0,
    }
}

/// Whether a call with these flags, which are [`heeded`], answers at once in any case.
pub(crate) fn never_waits(flags: c_int) -> bool {
    flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0
}

/// Whether receiving should be tried before it is submitted.
pub(crate) fn is_worth_a_try(file: Option<&File>, fd: c_int) -> bool {
    file.is_none_or(|file| {
        // What is no socket says so at once; a reactor waits for it first.
        file.is_worth_a_try() || !file.is_blocking(fd) || !file.is_known_socket()
    })
}

/// Asks a socket what is wrong with it, by a look at none of its bytes.
///
/// # Errors
/// What is wrong; an error that it had for the next call has been told by that.
pub(crate) fn ask_what_is_wrong(fd: c_int) -> Result<(), c_int> {
    let null = ptr::null_mut();
    // SAFETY: no memory is involved.
    match unsafe {
        plain_receive(
            fd,
            null,
            0,
            libc::MSG_PEEK | libc::MSG_DONTWAIT,
            null.cast(),
            ptr::null_mut(),
        )
    } {
        Ok(_) | Err(libc::EAGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Whether urgent data lies ahead in what is to be received: before that, the kernel ends a call that
/// wants all.
#[cold]
pub(crate) fn is_urgent(fd: c_int) -> bool {
    is_ready(fd, libc::POLLPRI)
}

/// Whether a receiving call goes on until it has all that was asked for.
fn wants_all(flags: c_int) -> bool {
    flags & libc::MSG_WAITALL != 0
}

/// Receives.
///
/// In steps that each need little stack: a fiber that waits here has usually touched one page of
/// its own, and is to leave it at that.
///
/// # Safety
/// As for `recvfrom`.
pub(crate) unsafe fn receive(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> Answer {
    // Cut as the kernel cuts it for this call: as one of a list, a longer buffer would be refused.
    let length = length.min(LONGEST);
    let plain = |flags| {
        // SAFETY: the caller's promise.
        unsafe { plain_receive(fd, buffer, length, flags, address, address_length) }
    };
    let flags = heeded(fd, flags);
    if never_waits(flags) {
        return plain(flags);
    }
    let flags = all::flags(fd, flags);
    if all::peeks(flags) {
        return all::until_all(fd, length, || plain(flags | libc::MSG_DONTWAIT));
    }
    if wants_all(flags) {
        // SAFETY: the caller's promise.
        return unsafe { all::receive(fd, buffer, length, flags, address, address_length) };
    }
    let file = files::file(fd);
    if is_worth_a_try(file, fd) {
        let tried = plain(flags | libc::MSG_DONTWAIT);
        if let Some(file) = file {
            file.tried(tried != Err(libc::EAGAIN));
        }
        if tried != Err(libc::EAGAIN) {
            return tried;
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        if address.is_null() {
            park_for_data(fd, buffer, length, flags)
        } else {
            receive_from(fd, buffer, length, flags, address, address_length)
        }
    }
}

/// Whether receiving no bytes of `fd` waits in a way of its own: of TCP such a call ends with whatever
/// wakes it, be it no data, which a reactor does not hear of.
#[cold]
fn waits_for_nothing(fd: c_int) -> bool {
    option(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM) && blocking(files::file(fd), fd)
}

/// Receives what cannot be had at once.
#[inline(never)]
unsafe fn park_for_data(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> Answer {
    if !blocking(files::file(fd), fd) {
        return Err(libc::EAGAIN);
    }
    if length == 0 && waits_for_nothing(fd) {
        // SAFETY: the caller's promise.
        return unsafe { offload_receive(fd, buffer, length, flags) };
    }
    let op = Op::Receive { fd, buffer: buffer.cast(), length, flags };
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    // SAFETY: the caller's promise.
    match unsafe { parking::perform(&op, on) } {
        Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
            // SAFETY: the caller's promise.
            unsafe { offload_receive(fd, buffer, length, flags) }
        }
        Parked::Answered(answer) => answer,
        Parked::Late => Err(libc::EAGAIN),
    }
}

#[cold]
#[inline(never)]
unsafe fn offload_receive(fd: c_int, to: *mut c_void, length: usize, flags: c_int) -> Answer {
    let null = ptr::null_mut();
    let call = || {
        // SAFETY: the caller's promise.
        unsafe { plain_receive(fd, to, length, flags, null, ptr::null_mut()) }
    };
    // SAFETY: the caller's promise, and the caller waits.
    unsafe { seekable::elsewhere(fd, call) }
}

/// Receives, and says from where.
#[cold]
pub(crate) unsafe fn receive_from(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> Answer {
    memory::check(address_length, 1)?;
    let mut buffer = iovec { iov_base: buffer, iov_len: length };
    // SAFETY: zeros are a header without anything; its padding differs between libcs.
    let mut message: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut buffer;
    message.msg_iovlen = 1;
    message.msg_name = address.cast();
    // SAFETY: it can be read: who asks for the address says how much room it has.
    message.msg_namelen = unsafe { *address_length };
    let seat = Seat::new();
    // SAFETY: built from what the caller has promised to be valid.
    let answer =
        unsafe { receive_message(fd, &raw mut message, flags, &mut Steps::new(fd, &seat)) };
    if answer.is_ok() {
        // SAFETY: as above.
        unsafe { *address_length = message.msg_namelen };
    }
    answer
}

/// `recvmsg`, as one of the `steps` of a call.
pub(crate) unsafe fn receive_message(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    steps: &mut Steps,
) -> Answer {
    let number = libc::SYS_recvmsg;
    let file = files::file(fd);
    let flags = heeded(fd, flags);
    if never_waits(flags) {
        // SAFETY: the caller's promise.
        return unsafe { plain_message(number, fd, message, flags) };
    }
    let flags = all::flags(fd, flags);
    if all::peeks(flags) {
        // SAFETY: the caller's promise.
        let length = unsafe { Buffers::of_message(message) }?.left();
        // SAFETY: as above.
        let look = || unsafe { plain_message(number, fd, message, flags | libc::MSG_DONTWAIT) };
        return all::until_all(fd, length, look);
    }
    if wants_all(flags) {
        // Not tried, for what it received would have to be joined with the rest.
        // SAFETY: the caller's promise.
        unsafe { Buffers::of_message(message) }?;
        ask_what_is_wrong(fd)?;
        // Where what comes with the data ends a part, and where a mark of urgent data does, only the
        // kernel knows.
        // SAFETY: it can be read.
        if unsafe { (*message).msg_controllen } > 0 || is_urgent(fd) {
            // SAFETY: as above.
            return unsafe { steps.elsewhere(|| plain_message(number, fd, message, flags)) };
        }
    } else {
        let buffers = if is_worth_a_try(file, fd) {
            // SAFETY: as above.
            let tried = unsafe { plain_message(number, fd, message, flags | libc::MSG_DONTWAIT) };
            if let Some(file) = file {
                file.tried(tried != Err(libc::EAGAIN));
            }
            if tried != Err(libc::EAGAIN) {
                return tried;
            }
            // SAFETY: the kernel has found all of it readable.
            let mut all = unsafe { Buffers::new((*message).msg_iov, (*message).msg_iovlen as _) };
            // SAFETY: as above.
            unsafe { all.seen() };
            all
        } else {
            // Of what is wrong with it a reactor may tell only when something has come.
            // SAFETY: the caller's promise.
            unsafe { Buffers::of_message(message) }?
        };
        if buffers.left() == 0 && waits_for_nothing(fd) {
            // SAFETY: as above.
            return unsafe { steps.elsewhere(|| plain_message(number, fd, message, flags)) };
        }
    }
    if !blocking(file, fd) {
        // SAFETY: as above.
        return unsafe { plain_message(number, fd, message, flags) };
    }
    let op = Op::ReceiveMessage { fd, message, flags };
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    if wants_all(flags) && !part::takes_error(fd) {
        // SAFETY: as above.
        return unsafe { all::receive_message(fd, message, flags, 0, deadline, steps) };
    }
    // SAFETY: as above.
    match unsafe { parking::perform_until(&op, on, deadline) } {
        Parked::Late => Err(libc::EAGAIN),
        // SAFETY: as above.
        Parked::Unsupported if wants_all(flags) => unsafe {
            all::receive_message(fd, message, flags, 0, deadline, steps)
        },
        // A reactor may end with a part: io_uring before Linux 5.19 does.
        // SAFETY: as above.
        Parked::Answered(Ok(got)) if wants_all(flags) && got != 0 => unsafe {
            all::receive_message(fd, message, flags, got, deadline, steps)
        },
        Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
            // SAFETY: as above.
            unsafe { steps.elsewhere(|| plain_message(number, fd, message, flags)) }
        }
        Parked::Answered(answer) => answer,
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
    let mut steps = Steps::new(fd, &seat);
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
    steps: &mut Steps,
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
    steps: &mut Steps,
) -> Answer {
    if flags & libc::MSG_DONTWAIT != 0 || !blocking(files::file(fd), fd) {
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
            steps.elsewhere(|| plain_send(fd, buffer, length, flags, ptr::null(), 0))
        },
    }
}

/// `sendmsg`, as one of the `steps` of a call.
pub(crate) unsafe fn transmit_message(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
    steps: &mut Steps,
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

/// Sends what could not be sent at once, all of it unless the socket is in non-blocking mode. `begun`:
/// a part of the call's data was sent before.
pub(crate) unsafe fn transmit_rest(
    fd: c_int,
    message: &msghdr,
    flags: c_int,
    begun: bool,
    steps: &mut Steps,
) -> Answer {
    let number = libc::SYS_sendmsg;
    let file = files::file(fd);
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
                true => part::send_more(on, &rest, silent, deadline),
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
                unsafe { steps.elsewhere(|| plain_message(number, fd, &raw const rest, flags)) }
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
unsafe fn transmit_whole(fd: c_int, message: &msghdr, flags: c_int, steps: &mut Steps) -> Answer {
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
                return unsafe { steps.elsewhere(|| plain_message(number, fd, message, flags)) };
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
