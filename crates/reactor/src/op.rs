//! Operations for the kernel, and their results.
//!
//! Both are plain data. An [`Op`] is the arguments of one system call; a [`Completion`] carries that
//! call's result under the token that the caller chose. Nothing is called back.

use std::os::fd::RawFd;

use carefree_ground::mapped::Mapped;

/// The file's own position, for the `offset` of [`Op::Read`] and the like. Also for files without a
/// position: pipes, sockets, terminals.
pub const CURRENT: u64 = u64::MAX;

/// The most bytes that the kernel transfers at once (`MAX_RW_COUNT`).
#[cfg(not(all(test, loom)))]
pub(crate) const TRANSFER_MAX: usize = 0x7fff_f000;

/// One operation: a system call that may have to wait.
///
/// The fields are the call's arguments, pointers included. [`submit`](crate::Driver::submit) copies
/// the `Op`, but the memory that its pointers refer to must stay valid until the completion has
/// come. A fiber that parks until then keeps it on its stack.
///
/// An operation does what the blocking call does, and honours `MSG_DONTWAIT` and `RWF_NOWAIT`, with
/// two differences:
///
/// * A blocking call that sends or writes continues until everything is sent. An operation ends when
///   some of it is; the caller submits the rest. (io_uring sends everything if it can.)
/// * An operation waits even on a descriptor with `O_NONBLOCK` (or, for some operations and on older
///   kernels, returns `-EAGAIN`). A caller that must not wait reads the descriptor's flags first, and
///   submits nothing.
///
/// Closing a descriptor does not end operations that wait for it: cancel them first. If the number is
/// reused for another file, an operation that waited for the old file never acts on the new one: it
/// continues to wait (io_uring), or ends with `-EBADF` when the change is noticed (epoll).
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
    /// `poll(2)` of one descriptor without a time limit: result is those of `events` that occurred,
    /// and possibly `POLLERR` and `POLLHUP`. Ends with the first event.
    Poll { fd: RawFd, events: u32 },
    /// `epoll_wait(2)` without a time limit: result is the number of events.
    EpollWait { fd: RawFd, events: *mut libc::epoll_event, most: u32 },
    /// `fsync(2)`, or `fdatasync(2)` with `data_only`.
    Sync { fd: RawFd, data_only: bool },
    /// `openat(2)`: result is the new descriptor.
    Open { directory: RawFd, path: *const libc::c_char, flags: i32, mode: libc::mode_t },
    /// `splice(2)`; an offset of -1 means a null pointer.
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
            Op::EpollWait { .. } => "epoll_wait",
            Op::Sync { data_only: false, .. } => "fsync",
            Op::Sync { data_only: true, .. } => "fdatasync",
            Op::Open { .. } => "open",
            Op::Splice { .. } => "splice",
            Op::FutexWait { .. } => "futex",
            Op::WaitId { .. } => "waitid",
        }
    }

    /// Makes the call now, if it need not wait, without changing the descriptor's mode: the
    /// try before [`submit`](crate::Driver::submit).
    ///
    /// A call that transfers part of what was requested is done. If the kernel offers nothing better
    /// (terminals, timers), this checks readiness first, and then the call waits if another thread or
    /// process is faster.
    ///
    /// # Safety
    /// The operation's pointers are valid for its system call.
    #[cfg(not(all(test, loom)))]
    pub unsafe fn attempt(&self) -> Attempt {
        // SAFETY: the operation's pointers are valid for its system call.
        unsafe { crate::sys::attempt(self) }
    }
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token that the operation was submitted under.
    pub token: u64,
    /// The system call's result: 0 or more, or a negated `errno` value.
    pub result: i32,
}

/// A list of them. Its memory is not the program's allocator's: a fiber may wait for that one's lock while its
/// carrier collects what is done.
pub type Completions = Mapped<Completion>;

/// The outcome of a call that must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The call was made: its result, or a negated `errno` value.
    Done(i32),
    /// The call would have had to wait.
    Again,
    /// The call cannot be made without waiting: `connect`, `fsync`, `open`, `splice`.
    Unsupported,
}

/// This backend, on this kernel, cannot wait for this operation: make the call on a thread that
/// may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported;
