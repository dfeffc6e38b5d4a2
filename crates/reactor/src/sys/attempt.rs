//! Making calls without waiting, whatever the descriptor's mode. The mode is not changed, since other
//! processes may share it.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{ptr, slice};

use super::poll::poll;
use super::raw::syscall;
use crate::op::{Attempt, CURRENT, Op};
use carefree_ground::lock::Lock;

/// Bytes that a writable terminal takes without waiting: its drivers report it writable while fewer
/// than 256 bytes (`WAKEUP_CHARS`) are queued.
const TERMINAL_WRITE: usize = 256;

/// Bytes that a writable pipe takes without waiting: it is reported writable when a page is free.
const PIPE_WRITE: usize = libc::PIPE_BUF;
/// The most vectors that a partial write takes from a list.
const HEAD: usize = 16;

/// Held from checking for a connection until it is accepted. Otherwise two carriers could find the
/// same connection, and the slower one would block in `accept` with all its fibers. (For other
/// processes see [`may_be_shared`].)
static ACCEPTING: Lock<()> = Lock::new(());

/// Whether the process has forked, or was forked from one that used Carefree.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Notes that the process is about to fork and share its files with another.
pub(crate) fn before_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether another process may accept from the same listener. Then [`ACCEPTING`] does not keep an
/// attempt from waiting.
///
/// `false` is not certain: this process may have sent the listener to another, or inherited it and
/// set its close-on-exec flag since.
pub(super) fn may_be_shared(listener: RawFd) -> bool {
    let args = [listener as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: F_GETFD accesses no memory.
    let flags = unsafe { syscall(libc::SYS_fcntl, args) };
    // Without the flag it is inherited: by programs that this one starts, or from the one that
    // started it.
    let passed_on = flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0);
    passed_on || FORKED.load(Ordering::Relaxed)
}

/// To be called in the child of a `fork`, where a thread that held the lock does not exist.
///
/// # Safety
/// The process has one thread, which is not inside [`attempt`].
pub(crate) unsafe fn after_fork() {
    // SAFETY: the only thread does not use the lock.
    unsafe { ACCEPTING.renew(()) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Way {
    /// The system call that takes all arguments.
    fn number(self) -> libc::c_long {
        match self {
            Way::In => libc::SYS_preadv2,
            Way::Out => libc::SYS_pwritev2,
        }
    }
}

/// Makes the call if it need not wait.
///
/// # Safety
/// The operation's pointers are valid for its system call.
pub(crate) unsafe fn attempt(op: &Op) -> Attempt {
    match *op {
        Op::Read { fd, buffer, length, offset } => {
            let iov = libc::iovec { iov_base: buffer.cast(), iov_len: length };
            // SAFETY: the buffer is valid for the call, and the vector lives until it returns.
            or_end(fd, true, || unsafe { transfer(Way::In, fd, &raw const iov, 1, offset, 0) })
        }
        Op::Write { fd, buffer, length, offset } => {
            let iov = libc::iovec { iov_base: buffer.cast_mut().cast(), iov_len: length };
            // SAFETY: the buffer is valid for the call, and the vector lives until it returns.
            unsafe { transfer(Way::Out, fd, &raw const iov, 1, offset, 0) }
        }
        Op::ReadVectored { fd, iov, count, offset, flags } => {
            // SAFETY: the vectors and buffers are valid for the call.
            or_end(fd, flags & libc::RWF_NOWAIT == 0, || unsafe {
                transfer(Way::In, fd, iov, count, offset, flags)
            })
        }
        Op::WriteVectored { fd, iov, count, offset, flags } => {
            // SAFETY: the vectors and buffers are valid for the call.
            unsafe { transfer(Way::Out, fd, iov, count, offset, flags) }
        }
        Op::Receive { fd, buffer, length, flags } => {
            let waits = flags & libc::MSG_DONTWAIT == 0;
            let flags = (flags | libc::MSG_DONTWAIT) as usize;
            let args = [fd as usize, buffer as usize, length, flags, 0, 0];
            // SAFETY: the buffer is valid for the call.
            or_end(fd, waits, || unsafe { call(libc::SYS_recvfrom, args) })
        }
        Op::Send { fd, buffer, length, flags } => {
            let flags = (flags | libc::MSG_DONTWAIT) as usize;
            let args = [fd as usize, buffer as usize, length, flags, 0, 0];
            // SAFETY: the buffer is valid for the call.
            unsafe { call(libc::SYS_sendto, args) }
        }
        Op::ReceiveMessage { fd, message, flags } => {
            let waits = flags & libc::MSG_DONTWAIT == 0;
            let flags = (flags | libc::MSG_DONTWAIT) as usize;
            let args = [fd as usize, message as usize, flags, 0, 0, 0];
            // SAFETY: the message and what it points to are valid for the call.
            let receive = || unsafe { call(libc::SYS_recvmsg, args) };
            let mut is_end = false;
            let result = or_end(fd, waits, || {
                let tried = receive();
                is_end = tried == Attempt::Again;
                tried
            });
            if is_end && result == Attempt::Done(0) {
                // The end of the stream has no sender and no control data.
                // SAFETY: the kernel may write to the message, so this may too.
                let message = unsafe { &mut *message };
                (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
            }
            result
        }
        Op::SendMessage { fd, message, flags } => {
            let flags = (flags | libc::MSG_DONTWAIT) as usize;
            // SAFETY: the message and what it points to are valid for the call.
            unsafe { call(libc::SYS_sendmsg, [fd as usize, message as usize, flags, 0, 0, 0]) }
        }
        Op::Accept { fd, address, length, flags } => {
            let _accepting = ACCEPTING.lock();
            match ready(fd, libc::POLLIN) {
                Ok(0) if listens(fd) => Attempt::Again,
                Ok(_) => {
                    let flags = flags as usize;
                    let args = [fd as usize, address as usize, length as usize, flags, 0, 0];
                    // SAFETY: the pointers are null or valid for the call.
                    unsafe { call(libc::SYS_accept4, args) }
                }
                Err(errno) => Attempt::Done(-errno),
            }
        }
        Op::Poll { fd, events } => match ready(fd, events as i16) {
            Ok(0) => Attempt::Again,
            Ok(events) => Attempt::Done(events.into()),
            Err(errno) => Attempt::Done(-errno),
        },
        Op::WaitId { kind, id, info, options } => {
            // SAFETY: plain old data. If it stays zero, there was no child to report.
            let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let found_at = &raw mut found as usize;
            let options = (options | libc::WNOHANG) as usize;
            // SAFETY: the kernel writes to `found`, which lives until the call returns.
            let result = unsafe {
                call(libc::SYS_waitid, [kind as usize, id as usize, found_at, options, 0, 0])
            };
            // SAFETY: waitid fills in this member, which was zero before.
            if result == Attempt::Done(0) && unsafe { found.si_pid() } == 0 {
                return Attempt::Again;
            }
            if !info.is_null() {
                // SAFETY: not null, so it is valid for the write that waitid would make.
                unsafe { info.write(found) };
            }
            result
        }
        Op::FutexWait { address, value, .. } => {
            // SAFETY: a futex word is valid and aligned; other threads access it atomically.
            let word = unsafe { AtomicU32::from_ptr(address.cast_mut()) };
            if word.load(Ordering::SeqCst) == value {
                Attempt::Again
            } else {
                Attempt::Done(-libc::EAGAIN)
            }
        }
        Op::EpollWait { fd, events, most } => {
            let args = [fd as usize, events as usize, most as usize, 0, 0, 0];
            // SAFETY: the events are valid for the call, which is given no set of signals.
            match unsafe { call(libc::SYS_epoll_pwait, args) } {
                Attempt::Done(0) => Attempt::Again,
                attempt => attempt,
            }
        }
        Op::Connect { .. } | Op::Sync { .. } | Op::Open { .. } | Op::Splice { .. } => {
            Attempt::Unsupported
        }
    }
}

/// The outcome of `receive`, a call on `fd` made without waiting, for a caller that `waits`.
///
/// A datagram socket that was shut down returns `EAGAIN` but is readable: for a caller that waits
/// this is its end. A message that arrived between the first try and the check for the end came
/// before the end, so the call is made once more, and the end is reported only if that finds
/// nothing.
fn or_end(fd: RawFd, waits: bool, mut receive: impl FnMut() -> Attempt) -> Attempt {
    let ended = || ready(fd, libc::POLLRDHUP).is_ok_and(|ready| ready & libc::POLLRDHUP != 0);
    let tried = receive();
    if !(waits && tried == Attempt::Again && ended()) {
        return tried;
    }
    match receive() {
        Attempt::Again => Attempt::Done(0),
        tried => tried,
    }
}

/// Whether `fd` is a listening socket: `accept` on any other fails at once.
pub(super) fn listens(fd: RawFd) -> bool {
    option(fd, libc::SO_ACCEPTCONN) == Some(1)
}

/// A socket option of integer value.
pub(super) fn option(fd: RawFd, name: i32) -> Option<i32> {
    let mut value = 0i32;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let [value_at, length_at] = [&raw mut value as usize, &raw mut length as usize];
    let args = [fd as usize, libc::SOL_SOCKET as usize, name as usize, value_at, length_at, 0];
    // SAFETY: the kernel writes four bytes and their number to these two variables.
    unsafe { syscall(libc::SYS_getsockopt, args) }.ok().map(|_| value)
}

/// Makes a call to which the kernel returns `EAGAIN` instead of waiting.
///
/// # Safety
/// As for [`syscall`].
unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Attempt {
    loop {
        // SAFETY: both functions require the same.
        match unsafe { syscall(number, args) } {
            Ok(result) => return Attempt::Done(result as i32),
            Err(libc::EAGAIN) => return Attempt::Again,
            Err(libc::EINTR) => {}
            Err(errno) => return Attempt::Done(-errno),
        }
    }
}

/// Which of `events` have occurred on `fd`, and errors and hang-ups.
pub(crate) fn ready(fd: RawFd, events: i16) -> Result<i16, i32> {
    let mut file = libc::pollfd { fd, events, revents: 0 };
    match poll(slice::from_mut(&mut file), Some(0)) {
        Ok(_) if file.revents & libc::POLLNVAL != 0 => Err(libc::EBADF),
        Ok(_) => Ok(file.revents),
        Err(libc::EINTR) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// `preadv2` or `pwritev2` that does not wait.
///
/// # Safety
/// The vectors and the buffers that they refer to are valid for the call.
unsafe fn transfer(
    way: Way,
    fd: RawFd,
    iov: *const libc::iovec,
    count: usize,
    offset: u64,
    flags: i32,
) -> Attempt {
    let args = arguments(fd, iov, count, offset, flags | libc::RWF_NOWAIT);
    // SAFETY: the vectors and buffers are valid for the call.
    let result = unsafe { call(way.number(), args) };
    // The file or an old kernel does not support the call, or a sandbox refuses it.
    let unknown = matches!(
        result,
        Attempt::Done(e) if [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EACCES].contains(&-e)
    );
    if !unknown || flags & libc::RWF_NOWAIT != 0 {
        return result;
    }
    // SAFETY: as above.
    unsafe { transfer_if_ready(way, fd, iov, count, offset, flags) }
}

/// [`transfer`] with a file that does not support `RWF_NOWAIT`: a terminal, a timer, a pipe on an old kernel. It is asked
/// whether it is ready, and written no more to than a file that is ready takes. If another reader or writer is faster,
/// this waits; the kernel offers nothing better.
///
/// # Safety
/// As for [`transfer`].
unsafe fn transfer_if_ready(
    way: Way,
    fd: RawFd,
    iov: *const libc::iovec,
    count: usize,
    offset: u64,
    flags: i32,
) -> Attempt {
    let kind = file_kind(fd);
    if is_storage(kind) {
        // It would be reported ready, and then the call would wait for a disk.
        return Attempt::Again;
    }
    let wanted = if way == Way::In { libc::POLLIN } else { libc::POLLOUT };
    match ready(fd, wanted) {
        Ok(0) => return Attempt::Again,
        Ok(_) => {}
        Err(errno) => return Attempt::Done(-errno),
    }
    if way == Way::Out && kind == 0 {
        // An eventfd is writable when there is room for 1: for more, the call may wait.
        return Attempt::Unsupported;
    }
    let number = match (flags, offset, way) {
        (0, CURRENT, Way::In) => libc::SYS_readv,
        (0, CURRENT, Way::Out) => libc::SYS_writev,
        _ => way.number(),
    };
    // SAFETY: the vectors and buffers are valid for the call.
    let plain = |iov, count| unsafe { call(number, arguments(fd, iov, count, offset, flags)) };
    // Other files take a list as it is or refuse it.
    let takes_parts = kind == libc::S_IFIFO || kind == libc::S_IFCHR;
    if way == Way::In || !takes_parts {
        return plain(iov, count);
    }
    // SAFETY: `count` vectors are valid for the call; with 0 the pointer may be anything.
    let vectors = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(iov, count) } };
    let room = if kind == libc::S_IFIFO { PIPE_WRITE } else { TERMINAL_WRITE };
    if vectors.iter().map(|vector| vector.iov_len).sum::<usize>() <= room {
        return plain(iov, count);
    }
    let (head, used) = head(vectors, room);
    plain(head.as_ptr(), used)
}

/// The arguments of `preadv2` and `pwritev2`, of which `readv` and `writev` take the first three. The offset is passed in
/// two halves; the second is for 32-bit machines.
fn arguments(
    fd: RawFd,
    iov: *const libc::iovec,
    count: usize,
    offset: u64,
    flags: i32,
) -> [usize; 6] {
    [fd as usize, iov as usize, count, offset as usize, 0, flags as usize]
}

/// The beginning of a list of vectors, of at most `room` bytes, and how many vectors those are in. It keeps the
/// list's vectors, so that an invalid pointer among them has the same effect as in the whole.
fn head(vectors: &[libc::iovec], room: usize) -> ([libc::iovec; HEAD], usize) {
    let mut head = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; HEAD];
    let (mut used, mut left) = (0, room);
    for vector in vectors.iter().filter(|vector| vector.iov_len > 0) {
        if used == HEAD || left == 0 {
            break;
        }
        head[used] = libc::iovec { iov_base: vector.iov_base, iov_len: vector.iov_len.min(left) };
        left -= head[used].iov_len;
        used += 1;
    }
    (head, used)
}

/// The kind of the file `fd`: one of the `S_IF` constants, or 0 if it cannot be determined.
pub(super) fn file_kind(fd: RawFd) -> libc::mode_t {
    // SAFETY: plain old data, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills in `stat`, whose layout is the kernel's on 64-bit machines.
    let result =
        unsafe { syscall(libc::SYS_fstat, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0]) };
    if result.is_ok() { stat.st_mode & libc::S_IFMT } else { 0 }
}

/// Whether this is the kind of a file on a disk, a directory or a disk.
pub(super) fn is_storage(kind: libc::mode_t) -> bool {
    matches!(kind, libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK)
}
