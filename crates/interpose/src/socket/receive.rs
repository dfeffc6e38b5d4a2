//! `recv`, `recvfrom`: tried without blocking first (`MSG_DONTWAIT`), then parked.

use std::ffi::{c_int, c_void};
use std::ptr;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use libc::{sockaddr, socklen_t};

use crate::call::answer::{Answer, answer};
use crate::call::buffers::LONGEST;
use crate::descriptor;
use crate::descriptor::{Limit, blocking};
use crate::socket::flags::{heeded, is_worth_a_try, never_waits, peeks, wants_all, with_waitall};
use crate::socket::peek::until_all;
use crate::socket::plain::plain_receive;
use crate::socket::receive_message::{receive_from, waits_for_nothing};
use crate::socket::waitall;
use crate::wait::offload;
use crate::wait::parking::{self, On, Parked};

unsafe extern "C-unwind" fn raw_recv(
    fd: c_int,
    to: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { raw_recvfrom(fd, to, length, flags, ptr::null_mut(), ptr::null_mut()) }
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
    let flags = with_waitall(fd, flags);
    if peeks(flags) {
        return until_all(fd, length, || plain(flags | libc::MSG_DONTWAIT));
    }
    if wants_all(flags) {
        // SAFETY: the caller's promise.
        return unsafe { waitall::receive(fd, buffer, length, flags, address, address_length) };
    }
    let file = descriptor::file(fd);
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

/// Receives what cannot be had at once.
#[inline(never)]
unsafe fn park_for_data(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> Answer {
    if !blocking(descriptor::file(fd), fd) {
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
    unsafe { offload::on_file(fd, call) }
}
