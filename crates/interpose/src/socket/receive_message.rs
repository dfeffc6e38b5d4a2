//! `recvmsg`, and how it is received for calls that say from where.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::call::answer::{Answer, answer};
use crate::call::buffers::Buffers;
use crate::call::memory;
use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::socket::flags::{
    heeded, is_urgent, is_worth_a_try, never_waits, peeks, wants_all, with_waitall,
};
use crate::socket::peek::until_all;
use crate::socket::plain::{plain_message, plain_receive};
use crate::socket::resume;
use crate::socket::waitall_message::receive_all;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};

system_call!(
    fn raw_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize = SYS_recvmsg
);
interpose! {
    /// `recvmsg(2)`.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize, else raw_recvmsg {
        let seat = Seat::new();
        // SAFETY: the caller's promise.
        answer(unsafe { receive_message(fd, message, flags, &mut MultiStep::new(fd, &seat)) })
    }
}

/// Whether receiving no bytes of `fd` waits in a way of its own: of TCP such a call ends with whatever
/// wakes it, be it no data, which a reactor does not hear of.
#[cold]
pub(crate) fn waits_for_nothing(fd: c_int) -> bool {
    option(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM) && blocking(descriptor::file(fd), fd)
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
        unsafe { receive_message(fd, &raw mut message, flags, &mut MultiStep::new(fd, &seat)) };
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
    steps: &mut MultiStep,
) -> Answer {
    let number = libc::SYS_recvmsg;
    let file = descriptor::file(fd);
    let flags = heeded(fd, flags);
    if never_waits(flags) {
        // SAFETY: the caller's promise.
        return unsafe { plain_message(number, fd, message, flags) };
    }
    let flags = with_waitall(fd, flags);
    if peeks(flags) {
        // SAFETY: the caller's promise.
        let length = unsafe { Buffers::of_message(message) }?.left();
        // SAFETY: as above.
        let look = || unsafe { plain_message(number, fd, message, flags | libc::MSG_DONTWAIT) };
        return until_all(fd, length, look);
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
            return unsafe { steps.offload(|| plain_message(number, fd, message, flags)) };
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
            return unsafe { steps.offload(|| plain_message(number, fd, message, flags)) };
        }
    }
    if !blocking(file, fd) {
        // SAFETY: as above.
        return unsafe { plain_message(number, fd, message, flags) };
    }
    let op = Op::ReceiveMessage { fd, message, flags };
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    if wants_all(flags) && !resume::takes_error(fd) {
        // SAFETY: as above.
        return unsafe { receive_all(fd, message, flags, 0, deadline, steps) };
    }
    // SAFETY: as above.
    match unsafe { parking::perform_until(&op, on, deadline) } {
        Parked::Late => Err(libc::EAGAIN),
        // SAFETY: as above.
        Parked::Unsupported if wants_all(flags) => unsafe {
            receive_all(fd, message, flags, 0, deadline, steps)
        },
        // A reactor may end with a part: io_uring before Linux 5.19 does.
        // SAFETY: as above.
        Parked::Answered(Ok(got)) if wants_all(flags) && got != 0 => unsafe {
            receive_all(fd, message, flags, got, deadline, steps)
        },
        Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
            // SAFETY: as above.
            unsafe { steps.offload(|| plain_message(number, fd, message, flags)) }
        }
        Parked::Answered(answer) => answer,
    }
}
