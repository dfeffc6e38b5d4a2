//! Operations on what a stand-in was given.

use std::ffi::{c_int, c_void};

use carefree_reactor::{Attempt, Op};
use carefree_runtime::operation::{self, Ended, Wait};
use libc::{id_t, idtype_t, iovec, msghdr, sockaddr, socklen_t};

use crate::call::user::User;

/// An operation that goes to no memory but where the caller of a stand-in has pointed to: see [`User`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserOp(Op);

impl UserOp {
    pub(crate) fn poll(fd: c_int, events: i16) -> UserOp {
        UserOp(Op::Poll { fd, events: u32::from(events as u16) })
    }

    pub(crate) fn sync(fd: c_int, data_only: bool) -> UserOp {
        UserOp(Op::Sync { fd, data_only })
    }

    /// Tells that a child has changed, and nothing about it.
    pub(crate) fn wait_id(kind: idtype_t, id: id_t, options: c_int) -> UserOp {
        UserOp(Op::WaitId { kind, id, info: std::ptr::null_mut(), options })
    }

    pub(crate) fn accept(
        fd: c_int,
        address: User<sockaddr>,
        length: User<socklen_t>,
        flags: c_int,
    ) -> UserOp {
        UserOp(Op::Accept { fd, address: address.pointer(), length: length.pointer(), flags })
    }

    pub(crate) fn connect(fd: c_int, address: User<sockaddr>, length: socklen_t) -> UserOp {
        UserOp(Op::Connect { fd, address: address.pointer(), length })
    }

    pub(crate) fn receive(fd: c_int, buffer: User, length: usize, flags: c_int) -> UserOp {
        UserOp(Op::Receive { fd, buffer: buffer.pointer().cast(), length, flags })
    }

    pub(crate) fn receive_message(fd: c_int, message: User<msghdr>, flags: c_int) -> UserOp {
        UserOp(Op::ReceiveMessage { fd, message: message.pointer(), flags })
    }

    pub(crate) fn send_message(fd: c_int, message: User<msghdr>, flags: c_int) -> UserOp {
        UserOp(Op::SendMessage { fd, message: message.pointer(), flags })
    }

    pub(crate) fn read(fd: c_int, buffer: User<c_void>, length: usize, offset: u64) -> UserOp {
        UserOp(Op::Read { fd, buffer: buffer.pointer().cast(), length, offset })
    }

    pub(crate) fn read_vectored(
        fd: c_int,
        iov: User<iovec>,
        count: usize,
        offset: u64,
        flags: c_int,
    ) -> UserOp {
        UserOp(Op::ReadVectored { fd, iov: iov.pointer(), count, offset, flags })
    }

    pub(crate) fn write(fd: c_int, buffer: User<c_void>, length: usize, offset: u64) -> UserOp {
        UserOp(Op::Write { fd, buffer: buffer.pointer().cast(), length, offset })
    }

    pub(crate) fn write_vectored(
        fd: c_int,
        iov: User<iovec>,
        count: usize,
        offset: u64,
        flags: c_int,
    ) -> UserOp {
        UserOp(Op::WriteVectored { fd, iov: iov.pointer(), count, offset, flags })
    }

    pub(crate) fn op(&self) -> &Op {
        &self.0
    }

    /// Parks the calling fiber until the kernel has done it, or the wait ends.
    pub(crate) fn perform(&self, how: &Wait<'_>) -> Ended {
        // SAFETY: its pointers are `User`s, and it is over when this returns.
        unsafe { operation::perform(&self.0, how) }
    }

    /// [`Op::attempt`].
    pub(crate) fn attempt(&self) -> Attempt {
        // SAFETY: as above.
        unsafe { self.0.attempt() }
    }
}
