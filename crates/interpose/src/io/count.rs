//! Whether a write to an eventfd would wait. `pwritev2` refuses to try one without waiting, so it is asked for
//! in other ways.
//!
//! The answers that a program writes to a fanotify are refused so as well. Such a write never waits, but a poll
//! never finds room for it.

use std::ffi::c_int;

use crate::call::buffers::Buffers;
use crate::call::sys;
use crate::call::user::User;
use crate::descriptor::File;
use crate::descriptor::kind::Kind;
use crate::io::call::Call;
use crate::io::stream::is_impatient;
use crate::wait::readiness::is_ready;

/// The size of an eventfd's count.
pub(crate) const COUNT: usize = size_of::<u64>();

/// Whether a write to what has refused a try would wait. The kernel answers at once in non-blocking mode, where
/// there is room, where no eventfd would take what is written, and where the file is a queue of notices.
///
/// Three things may be otherwise when the call comes, and then the carrier waits: another process has changed the
/// mode; another writer has taken the room; there is room for 1, but not for as much as is written. The last two
/// need a count near 2^64. (A pipe that has the number by now has room for so few bytes, too, if it has any.)
pub(crate) fn would_wait(call: &Call, file: Option<&File>) -> bool {
    let is_count = call.given.length() == COUNT;
    if is_count && file.is_some_and(File::was_impatient) {
        return false;
    }
    if is_impatient(file, call.fd) || is_count && is_ready(call.fd, libc::POLLOUT) {
        return false;
    }
    // The number may refer to a pipe by now, which waits for room whatever is written.
    file.is_none_or(|file| file.look(call.fd) != Kind::Stream)
        || !is_refused(&mut call.given.buffers()) && !has_notices(call.fd)
}

/// Whether `fd`, which is neither a pipe nor a socket nor a device, is an inotify or a fanotify. These say how many
/// bytes they have to be read; an eventfd does not.
fn has_notices(fd: c_int) -> bool {
    sys::ioctl_number(fd, libc::FIONREAD as usize).is_ok()
}

/// Whether no eventfd takes the first of what is written, however much room there is.
fn is_refused(buffers: &mut Buffers) -> bool {
    if buffers.look().is_err() {
        return true;
    }
    let Some(first) = buffers.front() else { return true };
    // SAFETY: the caller has given this buffer to be read from.
    let count = || unsafe { User::<u64>::new(first.iov_base.cast()) }.read();
    first.iov_len < COUNT || count().map_or(true, |count| count == u64::MAX)
}
