//! What the kernel is asked to do, and what it answered.
//!
//! Plain data in, plain data out. An [`Op`] is the arguments of one system call; a [`Completion`]
//! carries that call's result under the token the caller chose. Nothing is called back.

use std::os::fd::RawFd;

/// The file's own position, for `offset` of [`Op::Read`] and its kin. Also right for what has no
/// position: pipes, sockets, terminals.
pub const CURRENT: u64 = u64::MAX;

/// One operation: a system call that may have to wait.
///
/// The fields are the call's arguments, pointers included. An `Op` is copied by
/// [`submit`](crate::Driver::submit) and may go away after it; what its pointers name may not,
/// until the completion has come. A fiber that parks until then keeps it on its stack.
///
/// An operation does what the blocking call does, and honours `MSG_DONTWAIT` and `RWF_NOWAIT`, with
/// two differences:
///
/// * A blocking call that sends or writes goes on until everything is sent. An operation ends when
///   some of it is; the caller goes on with the rest. (io_uring sends everything where it can.)
/// * It waits even on a descriptor with `O_NONBLOCK` (or, with some operations and on older kernels,
///   answers `-EAGAIN`). So who must not wait there asks for the descriptor's flags first, and
///   submits nothing.
///
/// Closing a descriptor does not end what waits for it: cancel that first. If the number then means
/// another file, what waited for the old one is never served by the new one: it goes on waiting
/// (io_uring), or ends with `-EBADF` when that is noticed (epoll).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The fields are named as in the manual pages of the calls.
pub enum Op {
    /// `read(2)`, `pread(2)`: result is the number of bytes, 0 at the end of the file.
    Read { fd: RawFd, buffer: *mut u8, length: usize, offset: u64 },
    /// `write(2)`, `pwrite(2)`. Writing to a broken pipe also raises `SIGPIPE`, as the call does,
    /// but perhaps in another thread of the process.
    Write { fd: RawFd, buffer: *const u8, length: usize, offset: u64 },
    /// `preadv2(2)`; `flags` are its `RWF_` flags.
    ReadVectored { fd: RawFd, iov: *const libc::iovec, count: usize, offset: u64, flags: i32 },
    /// `pwritev2(2)`.
    WriteVectored { fd: RawFd, iov: *const libc::iovec, count: usize, offset: u64, flags: i32 },
    /// `recv(2)`.
    Receive { fd: RawFd, buffer: *mut u8, length: usize, flags: i32 },
    /// `send(2)`.
    Send { fd: RawFd, buffer: *const u8, length: usize, flags: i32 },
    /// `recvmsg(2)`: the kernel writes to the header too.
    ReceiveMessage { fd: RawFd, message: *mut libc::msghdr, flags: i32 },
    /// `sendmsg(2)`.
    SendMessage { fd: RawFd, message: *const libc::msghdr, flags: i32 },
    /// `accept4(2)`: result is the new descriptor. Both pointers may be null.
    Accept { fd: RawFd, address: *mut libc::sockaddr, length: *mut libc::socklen_t, flags: i32 },
    /// `connect(2)`.
    Connect { fd: RawFd, address: *const libc::sockaddr, length: libc::socklen_t },
    /// `poll(2)` of one descriptor without a time limit: result is what became of `events`, with
    /// `POLLERR` and `POLLHUP` possibly added. Ends with the first event.
    Poll { fd: RawFd, events: u32 },
    /// `fsync(2)`, or `fdatasync(2)` with `data_only`.
    Sync { fd: RawFd, data_only: bool },
    /// `openat(2)`: result is the new descriptor.
    Open { directory: RawFd, path: *const libc::c_char, flags: i32, mode: libc::mode_t },
    /// `splice(2)`; an offset of -1 stands for its null pointer.
    Splice { from: RawFd, from_offset: i64, to: RawFd, to_offset: i64, length: usize, flags: u32 },
    /// Waits while `*address == value` for a futex wake that matches `mask`: shared between
    /// processes, not private. Result is 0, or `-EAGAIN` when the value differed.
    FutexWait { address: *const u32, value: u32, mask: u32 },
    /// `waitid(2)`: result is 0, and `*info` is filled in unless null.
    WaitId { kind: libc::idtype_t, id: libc::id_t, info: *mut libc::siginfo_t, options: i32 },
}

impl Op {
    /// The operation's name, for messages and dumps: the system call it stands for.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Read { .. } => "read",
            Op::Write { .. } => "write",
            Op::ReadVectored { .. } => "readv",
            Op::WriteVectored { .. } => "writev",
            Op::Receive { .. } => "recv",
            Op::Send { .. } => "send",
            Op::ReceiveMessage { .. } => "recvmsg",
            Op::SendMessage { .. } => "sendmsg",
            Op::Accept { .. } => "accept",
            Op::Connect { .. } => "connect",
            Op::Poll { .. } => "poll",
            Op::Sync { data_only: false, .. } => "fsync",
            Op::Sync { data_only: true, .. } => "fdatasync",
            Op::Open { .. } => "open",
            Op::Splice { .. } => "splice",
            Op::FutexWait { .. } => "futex",
            Op::WaitId { .. } => "waitid",
        }
    }

    /// Makes the call now, if it need not wait, without changing the descriptor's mode: the first
    /// try before [`submit`](crate::Driver::submit).
    ///
    /// A call that transfers part of what was asked for is done. Where the kernel offers no better
    /// (terminals, timers), readiness is looked at first, and the call waits if another thread of
    /// the program or another process is faster.
    ///
    /// # Safety
    /// The operation's pointers are valid for its system call.
    #[cfg(not(all(test, loom)))]
    pub unsafe fn attempt(&self) -> Attempt {
        // SAFETY: the caller's promise.
        unsafe { crate::sys::attempt(self) }
    }
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the operation was submitted under.
    pub token: u64,
    /// What the system call returned: 0 or more, or a negated `errno` value.
    pub result: i32,
}

/// What became of a call that must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It was made: what it returned, or a negated `errno` value.
    Done(i32),
    /// It would have had to wait.
    Again,
    /// There is no way to make it without waiting: `connect`, `fsync`, `open`, `splice`.
    Unsupported,
}

/// This backend, on this kernel, cannot wait for this operation: make the call on a thread that
/// may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported;
