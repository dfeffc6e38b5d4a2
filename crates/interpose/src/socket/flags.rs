//! Flags of receiving calls.

use std::ffi::c_int;

use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{File, blocking};
use crate::wait::readiness::is_ready;

const SELDOM: c_int = libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// The flags of a receiving call on `fd`, without those that its kind of socket ignores. The call waits as if
/// these were not there, but a reactor would heed them.
#[inline]
pub(crate) fn heeded(fd: c_int, flags: c_int) -> c_int {
    if flags & SELDOM == 0 { flags } else { flags & !ignored(fd) }
}

/// Which of [`SELDOM`] sockets of this kind ignore (Linux 6.18).
#[cold]
fn ignored(fd: c_int) -> c_int {
    match option(fd, libc::SO_DOMAIN) {
        Ok(libc::AF_UNIX | libc::AF_NETLINK) => libc::MSG_ERRQUEUE,
        Ok(libc::AF_INET | libc::AF_INET6) if option(fd, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM) => {
            libc::MSG_OOB
        }
        _ => 0,
    }
}

/// Whether a call with these flags, which are [`heeded`], never waits.
pub(crate) fn never_waits(flags: c_int) -> bool {
    flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0
}

const BOTH: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;

/// The flags of a receiving call on `fd`, with `MSG_WAITALL` only where that has an effect.
#[inline]
pub(crate) fn with_waitall(fd: c_int, flags: c_int) -> c_int {
    if flags & libc::MSG_WAITALL == 0 { flags } else { look_at(fd, flags) }
}

#[cold]
fn look_at(fd: c_int, flags: c_int) -> c_int {
    let waits = option(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
        && blocking(descriptor::file(fd), fd)
        && (flags & BOTH != BOTH || option(fd, libc::SO_DOMAIN) != Ok(libc::AF_UNIX));
    if waits { flags } else { flags & !libc::MSG_WAITALL }
}

/// Whether a call with these flags waits for all data and leaves it there: see
/// [`peek`](crate::socket::peek).
#[inline]
pub(crate) fn peeks(flags: c_int) -> bool {
    flags & BOTH == BOTH
}

/// Whether a receiving call goes on until it has all that was asked for.
pub(crate) fn wants_all(flags: c_int) -> bool {
    flags & libc::MSG_WAITALL != 0
}

/// Whether receiving should be tried before it is submitted.
pub(crate) fn is_worth_a_try(file: Option<&File>, fd: c_int) -> bool {
    file.is_none_or(|file| {
        // On a file that is no socket the call fails at once, where a reactor would wait first.
        file.is_worth_a_try() || !file.is_blocking(fd) || !file.is_known_socket()
    })
}

/// Whether urgent data lies ahead: the kernel ends a call that wants all before it.
#[cold]
pub(crate) fn is_urgent(fd: c_int) -> bool {
    is_ready(fd, libc::POLLPRI)
}
