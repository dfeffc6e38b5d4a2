//! Reading and writing what has no position: sockets, pipes, terminals, timers and their like; and
//! reading at an offset of what has one.
//!
//! A call is tried without blocking first (`preadv2` with `RWF_NOWAIT`, which leaves the file's own
//! mode alone), and what cannot be done at once is submitted. A file in non-blocking mode answers a
//! submission with `EAGAIN` as well, so its mode need not be asked for.
//!
//! As on a thread, a read returns what there is, but of a regular file all that was asked for; and
//! a write to a pipe, a stream socket or a terminal in blocking mode returns when all is written.
//!
//! Where the try is refused (an old kernel, a file that knows no such thing, a sandbox), the call is
//! submitted as if the try had found nothing.
//!
//! # What the try costs
//!
//! A socket is tried by `recv` with `MSG_DONTWAIT`, which costs what a plain `read` of it does. For a
//! pipe the kernel has no such call: `preadv2` takes about a third more than `read`, most of it for
//! the list of buffers, so that `readv` is hardly cheaper. `vmsplice` with `SPLICE_F_NONBLOCK` saves a
//! little, but does not know the packets of a pipe opened with `O_DIRECT`, and bars the pipe from
//! `RWF_NOWAIT` from then on; to ask first (`poll`, `FIONREAD`) costs nearly a second `read` and is
//! no promise, since another reader may be faster; and to open the pipe anew in non-blocking mode
//! would keep its other end from noticing a close that is not seen here. (`cargo run --release
//! -p carefree-interpose --example costs pipe` prints what the whole of it costs here.)

use std::ffi::c_int;

use libc::iovec;

use crate::call::buffers::Buffers;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::kind::Kind;
use crate::descriptor::storage::Storage;
use crate::descriptor::{File, blocking};
use crate::io::call::{Call, Way};
use crate::wait::user_op::UserOp;

/// Whether the try has shown that the call can only be answered by waiting, or not be tried.
pub(crate) fn must_wait(errno: c_int) -> bool {
    errno == libc::EAGAIN || errno == libc::EOPNOTSUPP || is_refused(errno)
}

/// Whether the kernel has not looked at the call at all: an old one knows no `preadv2`, and a sandbox
/// may not let it through.
pub(crate) fn is_refused(errno: c_int) -> bool {
    matches!(errno, libc::ENOSYS | libc::EPERM | libc::EACCES)
}

/// Whether a call has flags that few files know: which of them a try was refused for (`EOPNOTSUPP`)
/// cannot be told.
pub(crate) fn has_rare_flags(call: &Call) -> bool {
    call.flags & !libc::RWF_HIPRI != 0
}

/// Looks at the buffers' descriptions after a try that was answered with `errno`.
///
/// # Errors
/// `EFAULT` if they are not there.
pub(crate) fn look_after_try(buffers: &mut Buffers, errno: c_int) -> Result<(), c_int> {
    if is_refused(errno) {
        return buffers.look();
    }
    // SAFETY: the kernel has read them before it could know that.
    unsafe { buffers.seen() };
    Ok(())
}

/// Whether a call would go to a position: what a file is, is asked again before one is submitted that
/// should have none, for a number that was closed unseen may be another file's by now.
pub(crate) fn is_misplaced(call: &Call, file: Option<&File>) -> bool {
    if call.at.number() >= 0 {
        return false;
    }
    if let Some(file) = file {
        file.look(call.fd);
    }
    descriptor::seen(file, call.fd).storage != Storage::None
}

/// The operation for what is left of a call.
pub(crate) fn operation(call: &Call, buffers: &Buffers, done: usize) -> UserOp {
    let fd = call.fd;
    let offset = call.at.further(done).number() as u64;
    // A ring takes it for files that are asked again and again only; on others it means nothing.
    let flags = call.flags & !libc::RWF_HIPRI;
    let (iov, count) = (buffers.first(), buffers.count());
    // SAFETY: what a caller's description points to is the caller's.
    let base = |one: &iovec| unsafe { User::new(one.iov_base) };
    match (call.way, buffers.single().filter(|_| flags == 0)) {
        (Way::Read, Some(one)) => UserOp::read(fd, base(&one), one.iov_len, offset),
        (Way::Read, None) => UserOp::read_vectored(fd, iov, count, offset, flags),
        (Way::Write, Some(one)) => UserOp::write(fd, base(&one), one.iov_len, offset),
        (Way::Write, None) => UserOp::write_vectored(fd, iov, count, offset, flags),
    }
}

/// What is left of a call.
pub(crate) fn rest(call: &Call, buffers: &Buffers, done: usize) -> Call {
    Call { given: call.given.rest(buffers), at: call.at.further(done), ..*call }
}

/// Whether a call on `fd` is to fail rather than to wait. Of a regular file the mode has no say in it.
pub(crate) fn is_impatient(file: Option<&File>, fd: c_int) -> bool {
    !blocking(file, fd) && file.is_none_or(|file| file.kind(fd) != Kind::Regular)
}
