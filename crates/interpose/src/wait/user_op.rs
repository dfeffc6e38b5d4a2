//! Operations on what a stand-in was given.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use carefree_reactor::{Attempt, Op};
use carefree_runtime::operation::{self, Ended, Wait};
use libc::{id_t, idtype_t, iovec, msghdr, sockaddr, socklen_t};

use crate::call::user::User;

/// An operation that goes to no memory but where the caller of a stand-in has pointed to: see [`User`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserOp<'u>(Op, PhantomData<User<'u>>);

impl<'u> UserOp<'u> {
    pub(crate) fn poll(fd: c_int, events: i16) -> UserOp<'u> {
        UserOp(Op::Poll { fd, events: u32::from(events as u16) }, PhantomData)
    }

    pub(crate) fn epoll_wait(
        fd: c_int,
        events: User<'u, libc::epoll_event>,
        most: u32,
    ) -> UserOp<'u> {
        UserOp(Op::EpollWait { fd, events: events.pointer(), most }, PhantomData)
    }

    pub(crate) fn sync(fd: c_int, data_only: bool) -> UserOp<'u> {
        UserOp(Op::Sync { fd, data_only }, PhantomData)
    }

    /// Tells that a child has changed, and nothing about it.
    pub(crate) fn wait_id(kind: idtype_t, id: id_t, options: c_int) -> UserOp<'u> {
        UserOp(Op::WaitId { kind, id, info: std::ptr::null_mut(), options }, PhantomData)
    }

    /// Waits while the word, which may be shared with other processes, has this value.
    pub(crate) fn futex_wait(word: User<'u, u32>, value: u32, mask: u32) -> UserOp<'u> {
        UserOp(Op::FutexWait { address: word.pointer(), value, mask }, PhantomData)
    }

    pub(crate) fn accept(
        fd: c_int,
        address: User<'u, sockaddr>,
        length: User<'u, socklen_t>,
        flags: c_int,
    ) -> UserOp<'u> {
        UserOp(
            Op::Accept { fd, address: address.pointer(), length: length.pointer(), flags },
            PhantomData,
        )
    }

    pub(crate) fn connect(fd: c_int, address: User<'u, sockaddr>, length: socklen_t) -> UserOp<'u> {
        UserOp(Op::Connect { fd, address: address.pointer(), length }, PhantomData)
    }

    pub(crate) fn receive(fd: c_int, buffer: User<'u>, length: usize, flags: c_int) -> UserOp<'u> {
        UserOp(Op::Receive { fd, buffer: buffer.pointer().cast(), length, flags }, PhantomData)
    }

    pub(crate) fn receive_message(
        fd: c_int,
        message: User<'u, msghdr>,
        flags: c_int,
    ) -> UserOp<'u> {
        UserOp(Op::ReceiveMessage { fd, message: message.pointer(), flags }, PhantomData)
    }

    pub(crate) fn send_message(fd: c_int, message: User<'u, msghdr>, flags: c_int) -> UserOp<'u> {
        UserOp(Op::SendMessage { fd, message: message.pointer(), flags }, PhantomData)
    }

    pub(crate) fn read(
        fd: c_int,
        buffer: User<'u, c_void>,
        length: usize,
        offset: u64,
    ) -> UserOp<'u> {
        UserOp(Op::Read { fd, buffer: buffer.pointer().cast(), length, offset }, PhantomData)
    }

    pub(crate) fn read_vectored(
        fd: c_int,
        iov: User<'u, iovec>,
        count: usize,
        offset: u64,
        flags: c_int,
    ) -> UserOp<'u> {
        UserOp(Op::ReadVectored { fd, iov: iov.pointer(), count, offset, flags }, PhantomData)
    }

    pub(crate) fn write(
        fd: c_int,
        buffer: User<'u, c_void>,
        length: usize,
        offset: u64,
    ) -> UserOp<'u> {
        UserOp(Op::Write { fd, buffer: buffer.pointer().cast(), length, offset }, PhantomData)
    }

    pub(crate) fn write_vectored(
        fd: c_int,
        iov: User<'u, iovec>,
        count: usize,
        offset: u64,
        flags: c_int,
    ) -> UserOp<'u> {
        UserOp(Op::WriteVectored { fd, iov: iov.pointer(), count, offset, flags }, PhantomData)
    }

    pub(crate) fn op(&self) -> &Op {
        &self.0
    }

    /// What its file has to be ready for, if it receives, sends or fetches events.
    pub(crate) fn events(&self) -> Option<i16> {
        use Op::{Accept, EpollWait, Read, ReadVectored, Receive, ReceiveMessage};
        use Op::{Send, SendMessage, Write, WriteVectored};
        match self.0 {
            Read { .. } | ReadVectored { .. } | Receive { .. } => Some(libc::POLLIN),
            ReceiveMessage { .. } | Accept { .. } | EpollWait { .. } => Some(libc::POLLIN),
            Send { .. } | SendMessage { .. } => Some(libc::POLLOUT),
            Write { .. } | WriteVectored { .. } => Some(libc::POLLOUT),
            _ => None,
        }
    }

    /// Whether one operation of this kind at a time takes what its file has for all of them.
    pub(crate) fn is_served_in_turn(&self) -> bool {
        !matches!(self.0, Op::EpollWait { .. }) && self.events().is_some()
    }

    /// Parks the calling fiber until the kernel has done it, or the wait ends.
    #[inline(always)]
    pub(crate) fn perform(&self, how: &Wait<'_>) -> Ended {
        // SAFETY: its pointers are `User`s, which may be used during `'u`, and it is over when this returns.
        unsafe { operation::perform(&self.0, how) }
    }

    /// [`Op::attempt`].
    pub(crate) fn attempt(&self) -> Attempt {
        // SAFETY: its pointers are `User`s, and it makes one system call, on this thread.
        unsafe { self.0.attempt() }
    }
}
