//! Reading and writing files without a position: sockets, pipes, terminals, timers and their like; and
//! reading at an offset of a file that has one.
//!
//! A call is tried without blocking first (`preadv2` with `RWF_NOWAIT`, which leaves the file's own mode
//! alone); what cannot be done at once is submitted. A file in non-blocking mode answers a submission with
//! `EAGAIN` as well, so its mode need not be known.
//!
//! As on a thread, a read returns what there is, but from a regular file all that was asked for; and a write
//! to a pipe, a stream socket or a terminal in blocking mode returns when all is written.
//!
//! If the try is refused (by an old kernel, by a file that does not support it, by a sandbox), the call is
//! submitted as if the try had found nothing.
//!
//! # What the try costs
//!
//! A socket is tried by `recv` with `MSG_DONTWAIT`, which costs as much as a plain `read`. For a pipe the
//! kernel has no such call: `preadv2` takes about a third more than `read`, mostly for the list of buffers,
//! so `readv` is hardly cheaper. The alternatives: `vmsplice` with `SPLICE_F_NONBLOCK` saves a little, but
//! ignores the packets of a pipe opened with `O_DIRECT`, and the pipe refuses `RWF_NOWAIT` from then on.
//! Asking first (`poll`, `FIONREAD`) costs nearly as much as a second `read`, and proves nothing, because
//! another reader may be faster. To open the pipe once more in non-blocking mode would keep the other end
//! from noticing a close that is not seen here. (`cargo run --release -p carefree-interpose --example costs
//! pipe` prints what the calls cost.)

use std::ffi::c_int;

use crate::call::answer::Answer;
use crate::call::buffers::Buffers;
use crate::descriptor;
use crate::descriptor::kind::Kind;
use crate::descriptor::storage::Storage;
use crate::descriptor::{File, blocking};
use crate::io::call::Call;
use crate::io::rest::Rest;

/// What a call has come to without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// It is over, and has moved so many bytes.
    Over(usize),
    /// The rest would have to wait.
    WouldWait,
    /// The rest could not be tried, or was not worth a try.
    Unknown,
}

/// What a call answers that must not wait for its rest, because of its file's mode.
pub(crate) fn without_waiting(rest: &Rest, tried: Tried) -> Answer {
    match rest.done {
        0 if tried == Tried::WouldWait => Err(libc::EAGAIN),
        // It cannot be tried (an eventfd, a terminal) and need not be: in that mode the call itself does not wait.
        0 => rest.whole.plainly(),
        done => Ok(done),
    }
}

/// Whether the try's error says that the call must wait, or cannot be tried.
pub(crate) fn must_wait(errno: c_int) -> bool {
    errno == libc::EAGAIN || errno == libc::EOPNOTSUPP || is_refused(errno)
}

/// Whether the call was refused unread: an old kernel has no `preadv2`, and a sandbox may deny it.
pub(crate) fn is_refused(errno: c_int) -> bool {
    matches!(errno, libc::ENOSYS | libc::EPERM | libc::EACCES)
}

/// Whether a call has flags that few files support: then `EOPNOTSUPP` does not say which flag a try was
/// refused for.
pub(crate) fn has_rare_flags(call: &Call) -> bool {
    call.flags & !libc::RWF_HIPRI != 0
}

/// Reads the buffers' descriptions after a try that failed with `errno`.
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

/// Whether a call would use a position after all. The kernel is asked again before an operation without one
/// is submitted, because the number may have been closed unseen and refer to another file now.
pub(crate) fn is_misplaced(call: &Call, file: Option<&File>) -> bool {
    if call.at.number() >= 0 {
        return false;
    }
    if let Some(file) = file {
        file.look(call.fd);
    }
    descriptor::seen(file, call.fd).storage != Storage::None
}

/// Whether a call on `fd` must fail rather than wait. For a regular file the mode has no effect.
pub(crate) fn is_impatient(file: Option<&File>, fd: c_int) -> bool {
    !blocking(file, fd) && file.is_none_or(|file| file.kind(fd) != Kind::Regular)
}
