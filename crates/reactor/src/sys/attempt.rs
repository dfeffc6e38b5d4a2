//! Calls made without waiting, whatever the mode of the descriptor, whose flags are shared with
//! others and therefore left alone.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{ptr, slice};

use super::poll::poll;
use super::raw::syscall;
use crate::op::{Attempt, CURRENT, Op};
use carefree_ground::lock::Lock;

/// What a terminal takes without waiting once it says that it is writable: its drivers say so while
/// fewer than 256 bytes (`WAKEUP_CHARS`) are queued.
const TERMINAL_WRITE: usize = 256;

/// What a pipe takes: it says so when a page is free.
const PIPE_WRITE: usize = libc::PIPE_BUF;
/// Vectors of which so much is written at most.
const HEAD: usize = 16;

/// Held from seeing that a connection is there until it is taken. Without it two carriers could see
/// the same one, and the slower would wait in `accept`, fibers and all. (What concerns other
/// processes: [`may_be_shared`].)
static ACCEPTING: Lock<()> = Lock::new(());

/// Whether the process has forked, or was forked from one that had Carefree in it.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The process is about to fork: what it has open may be another one's as well from now on.
pub(crate) fn before_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether another process may accept from the same listener: then [`ACCEPTING`] does not keep a try
/// from waiting.
///
/// That it does not is not certain: a process may have sent it to another one, or have got it from the
/// one that started it and made it its own since.
pub(super) fn may_be_shared(listener: RawFd) -> bool {
    let args = [listener as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: touches no memory.
    let flags = unsafe { syscall(libc::SYS_fcntl, args) };
    // What programs started by this one are given, or what this one was given by who started it.
    let passed_on = flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0);
    passed_on || FORKED.load(Ordering::Relaxed)
}

/// In the child of a `fork`: whoever was accepting in the parent is not here.
///
/// # Safety
/// There is one thread, and it is not inside [`attempt`].
pub(crate) unsafe fn after_fork() {
    // SAFETY: the caller's promise.
    unsafe { ACCEPTING.renew(()) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Makes the call if it need not wait.
///
/// # Safety
/// The operation's pointers are valid for its system call.
pub(crate) unsafe fn attempt(op: &Op) -> Attempt {
    match *op {
        Op::Read { fd, buffer, length, offset } => {
            let iov = libc::iovec { iov_base: buffer.cast(), iov_len: length };
            // SAFETY: the caller's promise; the vector lives until the call returns.
            or_end(fd, true, || unsafe { transfer(Way::In, fd, &raw const iov, 1, offset, 0) })
        }
        Op::Write { fd, buffer, length, offset } => {
            let iov = libc::iovec { iov_base: buffer.cast_mut().cast(), iov_len: length };
            // SAFETY: as above.
            unsafe { transfer(Way::Out, fd, &raw const iov, 1, offset, 0) }
        }
        Op::ReadVectored { fd, iov, count, offset, flags } => {
            // SAFETY: the caller's promise.
            or_end(fd, flags & libc::RWF_NOWAIT == 0, || unsafe {
                transfer(Way::In, fd, iov, count, offset, flags)
            })
        }
        Op::WriteVectored { fd, iov, count, offset, flags } => {
            // SAFETY: the caller's promise.
            unsafe { transfer(Way::Out, fd, iov, count, offset, flags) }
        }
        Op::Receive { fd, buffer, length, flags } => {
            let waits = flags & libc::MSG_DONTWAIT == 0;
            let flags = (flags | libc::MSG_DONTWAIT) as usize;
            let args = [fd as usize, buffer as usize, length, flags, 0, 0];
            // SAFETY: the caller's promise.
            or_end(fd, waits, || unsafe { call(libc::SYS_recvfrom, args) })
        }
        Op::Send { fd, buffer, length, flags } => {
            let flags = (flags | libc::MSG_DONTWAIT) as usize;
            let args = [fd as usize, buffer as usize, length, flags, 0, 0];
            // SAFETY: the caller's promise.
            unsafe { call(libc::SYS_sendto, args) }
        }
        Op::ReceiveMessage { fd, message, flags } => {
            let waits = flags & libc::MSG_DONTWAIT == 0;
            let flags = (flags | libc::MSG_DONTWAIT) as usize;
            let args = [fd as usize, message as usize, flags, 0, 0, 0];
            // SAFETY: the caller's promise.
            let receive = || unsafe { call(libc::SYS_recvmsg, args) };
            let mut is_end = false;
            let result = or_end(fd, waits, || {
                let tried = receive();
                is_end = tried == Attempt::Again;
                tried
            });
            if is_end && result == Attempt::Done(0) {
                // SAFETY: as above. Nobody has sent it, and nothing came with it.
                let message = unsafe { &mut *message };
                (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
            }
            result
        }
        Op::SendMessage { fd, message, flags } => {
            let flags = (flags | libc::MSG_DONTWAIT) as usize;
            // SAFETY: the caller's promise.
            unsafe { call(libc::SYS_sendmsg, [fd as usize, message as usize, flags, 0, 0, 0]) }
        }
        Op::Accept { fd, address, length, flags } => {
            let _accepting = ACCEPTING.lock();
            match ready(fd, libc::POLLIN) {
                Ok(0) if listens(fd) => Attempt::Again,
                Ok(_) => {
                    let flags = flags as usize;
                    let args = [fd as usize, address as usize, length as usize, flags, 0, 0];
                    // SAFETY: the caller's promise.
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
            // SAFETY: plain old data; zeroes are what tells that there was no child to report.
            let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let found_at = &raw mut found as usize;
            let options = (options | libc::WNOHANG) as usize;
            // SAFETY: the kernel writes to a structure that lives until the call returns.
            let result = unsafe {
                call(libc::SYS_waitid, [kind as usize, id as usize, found_at, options, 0, 0])
            };
            // SAFETY: waitid fills in this member.
            if result == Attempt::Done(0) && unsafe { found.si_pid() } == 0 {
                return Attempt::Again;
            }
            if !info.is_null() {
                // SAFETY: the caller's promise.
                unsafe { info.write(found) };
            }
            result
        }
        Op::FutexWait { address, value, .. } => {
            // SAFETY: the caller's promise. Others change the word, so it is read as an atomic.
            let word = unsafe { AtomicU32::from_ptr(address.cast_mut()) };
            if word.load(Ordering::SeqCst) == value {
                Attempt::Again
            } else {
                Attempt::Done(-libc::EAGAIN)
            }
        }
        Op::Connect { .. } | Op::Sync { .. } | Op::Open { .. } | Op::Splice { .. } => {
            Attempt::Unsupported
        }
    }
}

/// What a call on `fd` comes to that `receive` makes without waiting, but that `waits`.
///
/// A socket for messages that was shut down has none and says `EAGAIN`, but is readable: that is its
/// end, for those who wait. What came between the first try and the look at the end came before the
/// end, so the call is made once more: only an end without anything before it is told.
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

/// Whether `fd` is a socket that listens: `accept` on any other fails at once.
pub(super) fn listens(fd: RawFd) -> bool {
    option(fd, libc::SO_ACCEPTCONN) == Some(1)
}

/// A socket's option whose value is a number.
pub(super) fn option(fd: RawFd, name: i32) -> Option<i32> {
    let mut value = 0i32;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let [value_at, length_at] = [&raw mut value as usize, &raw mut length as usize];
    let args = [fd as usize, libc::SOL_SOCKET as usize, name as usize, value_at, length_at, 0];
    // SAFETY: the kernel writes four bytes and their number, to where both live until it returns.
    unsafe { syscall(libc::SYS_getsockopt, args) }.ok().map(|_| value)
}

/// A call that the kernel answers with `EAGAIN` instead of waiting.
///
/// # Safety
/// As for [`syscall`].
unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Attempt {
    loop {
        // SAFETY: the caller's promise.
        match unsafe { syscall(number, args) } {
            Ok(result) => return Attempt::Done(result as i32),
            Err(libc::EAGAIN) => return Attempt::Again,
            Err(libc::EINTR) => {}
            Err(errno) => return Attempt::Done(-errno),
        }
    }
}

/// Which of `events` have come on `fd`, besides errors and hanging up.
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
/// The vector and what it names are valid for the call.
unsafe fn transfer(
    way: Way,
    fd: RawFd,
    iov: *const libc::iovec,
    count: usize,
    offset: u64,
    flags: i32,
) -> Attempt {
    let number = if way == Way::In { libc::SYS_preadv2 } else { libc::SYS_pwritev2 };
    let args = |iov, count, flags: i32| {
        // The offset comes in two halves, of which the second is for 32-bit machines.
        [fd as usize, iov, count, offset as usize, 0, flags as usize]
    };
    // SAFETY: the caller's promise.
    let result = unsafe { call(number, args(iov as usize, count, flags | libc::RWF_NOWAIT)) };
    // The file or an old kernel knows no such call, or a sandbox does not let it through.
    let unknown = matches!(
        result,
        Attempt::Done(e) if [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EACCES].contains(&-e)
    );
    if !unknown || flags & libc::RWF_NOWAIT != 0 {
        return result;
    }
    // The file knows no such thing: a terminal, a timer, a pipe of an old kernel's.
    let kind = file_kind(fd);
    if is_storage(kind) {
        // It would say that it is ready, and wait for a disk.
        return Attempt::Again;
    }
    let wanted = if way == Way::In { libc::POLLIN } else { libc::POLLOUT };
    match ready(fd, wanted) {
        Ok(0) => return Attempt::Again,
        Ok(_) => {}
        Err(errno) => return Attempt::Done(-errno),
    }
    // Ready just now. Another reader may be faster, and then this waits; the kernel has no better.
    // SAFETY: the caller's promise.
    let plain = |iov, count| unsafe {
        match (flags, offset, way) {
            (0, CURRENT, Way::In) => call(libc::SYS_readv, args(iov, count, 0)),
            (0, CURRENT, Way::Out) => call(libc::SYS_writev, args(iov, count, 0)),
            _ => call(number, args(iov, count, flags)),
        }
    };
    // SAFETY: the kernel has just read `count` vectors there; none may be anywhere.
    let vectors = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(iov, count) } };
    let room = if kind == libc::S_IFIFO { PIPE_WRITE } else { TERMINAL_WRITE };
    let fits = vectors.iter().map(|vector| vector.iov_len).sum::<usize>() <= room;
    // What is no pipe and no terminal (an eventfd) takes a list as it is or refuses it.
    let takes_parts = kind == libc::S_IFIFO || kind == libc::S_IFCHR;
    if way == Way::In || fits || !takes_parts {
        return plain(iov as usize, count);
    }
    // Writable means "some of it". As much as there is room for, from several vectors: a pointer among
    // them that leads nowhere is to have its effect where it would have it in the whole.
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
    plain(head.as_ptr() as usize, used)
}

/// What kind of file `fd` is: one of the `S_IF` constants, 0 if that cannot be found out.
pub(super) fn file_kind(fd: RawFd) -> libc::mode_t {
    // SAFETY: plain old data.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to a structure that lives until the call returns; the layout is
    // the kernel's own on 64-bit machines.
    let result =
        unsafe { syscall(libc::SYS_fstat, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0]) };
    if result.is_ok() { stat.st_mode & libc::S_IFMT } else { 0 }
}

/// Whether it is a file on a disk, a directory or a disk.
pub(super) fn is_storage(kind: libc::mode_t) -> bool {
    matches!(kind, libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK)
}
