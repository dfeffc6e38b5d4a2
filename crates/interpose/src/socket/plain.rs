//! Sockets' system calls as they are.

use std::ffi::{c_int, c_void};

use carefree_ground::kernel;
use libc::{msghdr, sockaddr, socklen_t};

use crate::call::answer::Answer;

/// `recvfrom(2)` as it is.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn plain_receive(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> Answer {
    let arguments = [
        fd as usize,
        buffer as usize,
        length,
        flags as usize,
        address as usize,
        address_length as usize,
    ];
    // SAFETY: the caller's promise.
    unsafe { kernel::call(libc::SYS_recvfrom, arguments) }
}

/// `sendto(2)` as it is.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn plain_send(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> Answer {
    let arguments = [
        fd as usize,
        buffer as usize,
        length,
        flags as usize,
        address as usize,
        address_length as usize,
    ];
    // SAFETY: the caller's promise.
    unsafe { kernel::call(libc::SYS_sendto, arguments) }
}

/// A call with a message header as it is.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn plain_message(
    number: libc::c_long,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> Answer {
    // SAFETY: the caller's promise.
    unsafe { kernel::call(number, [fd as usize, message as usize, flags as usize, 0, 0, 0]) }
}
