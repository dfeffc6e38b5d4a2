//! An operation that waits until its descriptor is ready, for the backends that make the calls
//! themselves.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use carefree_ground::number::Own;

use super::acceptor::Acceptor;
use super::attempt::{attempt, file_kind, is_storage, listens, may_be_shared, option};
use super::raw::syscall;
use crate::op::{Attempt, Op, TRANSFER_MAX};

#[derive(Debug)]
pub(crate) struct Waiting {
    op: Op,
    pub(crate) fd: RawFd,
    /// The events that it waits for, as epoll's flags.
    pub(crate) events: u32,
    /// Whether it waits for all the bytes requested (`MSG_WAITALL` on a stream).
    all: bool,
    /// Bytes received so far, if `all`.
    received: i32,
    /// `fd`, if it was made for this wait.
    _owned: Option<Own>,
}

// SAFETY: `attempt` uses the operation's pointers, on whichever thread has the driver.
// `Driver::submit` requires that their memory stays valid until the completion, regardless of
// threads.
unsafe impl Send for Waiting {}

impl Waiting {
    /// `None` for an operation that may wait even when its descriptor is ready; with an
    /// [`Acceptor`], accepting never does.
    pub(crate) fn new(op: &Op, has_acceptor: bool) -> Option<Waiting> {
        let mut owned = None;
        let (fd, events, all) = match *op {
            // These are always ready, but calls may wait for a disk. Most cannot be watched; some
            // virtual files (in /proc and /sys) can, for events of another kind.
            Op::Read { fd, .. }
            | Op::ReadVectored { fd, .. }
            | Op::Write { fd, .. }
            | Op::WriteVectored { fd, .. }
                if is_storage(file_kind(fd)) =>
            {
                return None;
            }
            Op::Accept { fd, .. } if !has_acceptor && may_be_shared(fd) && listens(fd) => {
                return None;
            }
            Op::Read { fd, .. } | Op::ReadVectored { fd, .. } | Op::Accept { fd, .. } => {
                (fd, libc::EPOLLIN, false)
            }
            Op::Write { fd, .. }
            | Op::WriteVectored { fd, .. }
            | Op::Send { fd, .. }
            | Op::SendMessage { fd, .. } => (fd, libc::EPOLLOUT, false),
            Op::Receive { fd, flags, .. } | Op::ReceiveMessage { fd, flags, .. } => {
                // Datagrams arrive whole in any case.
                let all = flags & libc::MSG_WAITALL != 0 && is_stream(fd);
                let simple = matches!(op, Op::Receive { .. }) && flags & libc::MSG_PEEK == 0;
                if all && !simple {
                    return None;
                }
                let urgent = flags & libc::MSG_OOB != 0;
                (fd, if urgent { libc::EPOLLPRI } else { libc::EPOLLIN }, all)
            }
            // The upper half is epoll's own flags.
            Op::Poll { fd, events } => (fd, (events & 0xffff) as i32, false),
            Op::Connect { .. }
            | Op::EpollWait { .. }
            | Op::Sync { .. }
            | Op::Open { .. }
            | Op::Splice { .. }
            | Op::FutexWait { .. } => return None,
            // A pidfd reports the end of one process, but not its stops, and there is none for a
            // group.
            Op::WaitId { kind: libc::P_PID, id, options, .. }
                if options & (libc::WSTOPPED | libc::WCONTINUED) == 0 =>
            {
                let process = process(id)?;
                let fd = process.as_raw_fd();
                owned = Some(process);
                (fd, libc::EPOLLIN, false)
            }
            Op::WaitId { .. } => return None,
        };
        let mut op = *op;
        if let (true, Op::Receive { length, .. }) = (all, &mut op) {
            // As the kernel does for each call: all parts together are no more.
            *length = (*length).min(TRANSFER_MAX);
        }
        Some(Waiting { op, fd, events: events as u32, all, received: 0, _owned: owned })
    }

    /// Whether the operation's flags say not to wait, or it fails at once.
    pub(crate) fn must_not_wait(&self) -> bool {
        match self.op {
            Op::Receive { flags, .. }
            | Op::Send { flags, .. }
            | Op::ReceiveMessage { flags, .. }
            | Op::SendMessage { flags, .. } => flags & libc::MSG_DONTWAIT != 0,
            Op::ReadVectored { flags, .. } | Op::WriteVectored { flags, .. } => {
                flags & libc::RWF_NOWAIT != 0
            }
            Op::Accept { fd, .. } => !listens(fd),
            _ => false,
        }
    }

    pub(crate) fn is_poll(&self) -> bool {
        matches!(self.op, Op::Poll { .. })
    }

    /// Makes the call. `None` if it still has to wait.
    ///
    /// # Safety
    /// The operation's memory is valid.
    pub(crate) unsafe fn attempt(&mut self, acceptor: Option<&mut Acceptor>) -> Option<i32> {
        if let (Some(acceptor), &Op::Accept { fd, address, length, flags }) = (acceptor, &self.op) {
            // SAFETY: the operation's pointers are valid.
            return match unsafe { acceptor.accept(fd, address, length, flags) } {
                Attempt::Done(result) => Some(result),
                Attempt::Again | Attempt::Unsupported => None,
            };
        }
        loop {
            // SAFETY: the operation's pointers are valid.
            let result = match unsafe { attempt(&self.op) } {
                Attempt::Done(result) => result,
                Attempt::Again => return None,
                Attempt::Unsupported => -libc::EOPNOTSUPP,
            };
            let Op::Receive { buffer, length, .. } = &mut self.op else {
                return Some(result);
            };
            if !self.all {
                return Some(result);
            }
            if result <= 0 {
                return Some(self.end(-result));
            }
            self.received += result;
            *length -= result as usize;
            // SAFETY: the call has filled this many bytes of the buffer.
            *buffer = unsafe { buffer.add(result as usize) };
            if *length == 0 {
                return Some(self.received);
            }
        }
    }

    /// The result when `errno`, or 0, ends the operation: bytes received before count, as for a
    /// call that a signal interrupts.
    pub(crate) fn end(&self, errno: i32) -> i32 {
        if self.received > 0 { self.received } else { -errno }
    }
}

/// A pidfd, which is readable once the process has ended (Linux 5.3).
fn process(id: libc::id_t) -> Option<Own> {
    // SAFETY: accesses no memory.
    let fd = unsafe { syscall(libc::SYS_pidfd_open, [id as usize, 0, 0, 0, 0, 0]) }.ok()?;
    // SAFETY: a new descriptor, which nothing else owns. (The kernel sets close-on-exec.)
    Some(Own::new(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
}

/// Whether `fd` is a stream socket.
fn is_stream(fd: RawFd) -> bool {
    option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}
