//! The submission queue entry of an operation.

use io_uring::{opcode, squeue::Entry, types};

use crate::op::{Op, TRANSFER_MAX};

/// `IORING_RECVSEND_POLL_FIRST`: wait for the socket before the first attempt. The `io-uring` crate
/// has no name for it.
const POLL_FIRST: u16 = 1;

/// A flag of receiving that io_uring accepts for sending as well (since Linux 5.19; ignored before):
/// continue until everything is sent, as a blocking call does.
const SEND_ALL: i32 = libc::MSG_WAITALL;

/// Futex flags of `IORING_OP_FUTEX_WAIT`: a word of 32 bits (`FUTEX2_SIZE_U32`), not private.
const FUTEX2_SIZE_U32: u32 = 2;

/// Lengths in entries have 32 bits.
fn length(bytes: usize) -> u32 {
    bytes.min(TRANSFER_MAX) as u32
}

/// The entry for `op`, whose completion carries `token`.
pub(super) fn of(op: &Op, token: u64) -> Entry {
    use types::Fd;
    let entry = match *op {
        Op::Read { fd, buffer, length: bytes, offset } => {
            opcode::Read::new(Fd(fd), buffer, length(bytes)).offset(offset).build()
        }
        Op::Write { fd, buffer, length: bytes, offset } => {
            opcode::Write::new(Fd(fd), buffer, length(bytes)).offset(offset).build()
        }
        Op::ReadVectored { fd, iov, count, offset, flags } => {
            opcode::Readv::new(Fd(fd), iov, count as u32).offset(offset).rw_flags(flags).build()
        }
        Op::WriteVectored { fd, iov, count, offset, flags } => {
            opcode::Writev::new(Fd(fd), iov, count as u32).offset(offset).rw_flags(flags).build()
        }
        Op::Receive { fd, buffer, length: bytes, flags } => {
            opcode::Recv::new(Fd(fd), buffer, length(bytes)).flags(flags).ioprio(POLL_FIRST).build()
        }
        Op::Send { fd, buffer, length: bytes, flags } => {
            let flags = flags | SEND_ALL;
            opcode::Send::new(Fd(fd), buffer, length(bytes)).flags(flags).ioprio(POLL_FIRST).build()
        }
        Op::ReceiveMessage { fd, message, flags } => {
            opcode::RecvMsg::new(Fd(fd), message).flags(flags as u32).ioprio(POLL_FIRST).build()
        }
        Op::SendMessage { fd, message, flags } => {
            let flags = (flags | SEND_ALL) as u32;
            opcode::SendMsg::new(Fd(fd), message).flags(flags).ioprio(POLL_FIRST).build()
        }
        Op::Accept { fd, address, length, flags } => {
            opcode::Accept::new(Fd(fd), address, length).flags(flags).build()
        }
        Op::Connect { fd, address, length } => {
            opcode::Connect::new(Fd(fd), address, length).build()
        }
        Op::Poll { fd, events } => opcode::PollAdd::new(Fd(fd), with_urgent(events)).build(),
        Op::Sync { fd, data_only } => {
            let flags =
                if data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
            opcode::Fsync::new(Fd(fd)).flags(flags).build()
        }
        Op::Open { directory, path, flags, mode } => {
            opcode::OpenAt::new(Fd(directory), path).flags(flags).mode(mode).build()
        }
        Op::Splice { from, from_offset, to, to_offset, length: bytes, flags } => {
            opcode::Splice::new(Fd(from), from_offset, Fd(to), to_offset, length(bytes))
                .flags(flags)
                .build()
        }
        Op::EpollWait { fd, events, most } => {
            opcode::EpollWait::new(Fd(fd), events.cast(), most).build()
        }
        Op::FutexWait { address, value, mask } => {
            opcode::FutexWait::new(address, value.into(), mask.into(), FUTEX2_SIZE_U32).build()
        }
        Op::WaitId { kind, id, info, options } => {
            opcode::WaitId::new(kind, id, options).infop(info).build()
        }
    };
    entry.user_data(token)
}

/// The kernel's number for `op`.
pub(super) fn code(op: &Op) -> u8 {
    match op {
        Op::Read { .. } => opcode::Read::CODE,
        Op::Write { .. } => opcode::Write::CODE,
        Op::ReadVectored { .. } => opcode::Readv::CODE,
        Op::WriteVectored { .. } => opcode::Writev::CODE,
        Op::Receive { .. } => opcode::Recv::CODE,
        Op::Send { .. } => opcode::Send::CODE,
        Op::ReceiveMessage { .. } => opcode::RecvMsg::CODE,
        Op::SendMessage { .. } => opcode::SendMsg::CODE,
        Op::Accept { .. } => opcode::Accept::CODE,
        Op::Connect { .. } => opcode::Connect::CODE,
        Op::Poll { .. } => opcode::PollAdd::CODE,
        Op::Sync { .. } => opcode::Fsync::CODE,
        Op::Open { .. } => opcode::OpenAt::CODE,
        Op::Splice { .. } => opcode::Splice::CODE,
        Op::EpollWait { .. } => opcode::EpollWait::CODE,
        Op::FutexWait { .. } => opcode::FutexWait::CODE,
        Op::WaitId { .. } => opcode::WaitId::CODE,
    }
}

/// The events of a poll, so that urgent data ends it. A ring takes `POLLPRI` for a flag of its own when it looks at what has
/// woken it (Linux 6.18), and sleeps on, unless another of the events that a socket wakes with is wanted. `POLLRDBAND` is
/// one, which sockets never have.
fn with_urgent(events: u32) -> u32 {
    let has = |event: i16| events & u32::from(event as u16) != 0;
    match has(libc::POLLPRI) {
        true => events | u32::from(libc::POLLRDBAND as u16),
        false => events,
    }
}
