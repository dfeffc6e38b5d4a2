//! Looking at all of what was asked for before any of it is taken: `MSG_PEEK` with `MSG_WAITALL`.
//!
//! On a TCP connection such a call waits until that much has come. The reactor cannot: data that has
//! been looked at is still there, so the socket stays ready, and io_uring, which goes on where it
//! stopped, would copy the same bytes again behind themselves (Linux 6.18). So the fiber looks
//! again and again (see `patience`). On all other sockets one look is all, and the flag says nothing.

use std::ffi::c_int;

use carefree_context::kernel;
use carefree_runtime::Reason;

use crate::files::{self, Limit};
use crate::parking::{self, Answer};
use crate::patience::Matter;
use crate::socket::option;
use crate::stream::blocking;

const BOTH: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;

/// The flags that a receiving call on `fd` really has: [`BOTH`] are left on a TCP connection in
/// blocking mode alone.
#[inline]
pub(crate) fn flags(fd: c_int, flags: c_int) -> c_int {
    if flags & BOTH == BOTH { look_at(fd, flags) } else { flags }
}

#[cold]
fn look_at(fd: c_int, flags: c_int) -> c_int {
    let waits = flags & libc::MSG_DONTWAIT == 0
        && option(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
        && option(fd, libc::SO_DOMAIN) != Ok(libc::AF_UNIX)
        && blocking(files::file(fd), fd);
    if waits { flags } else { flags & !libc::MSG_WAITALL }
}

/// Whether a call with these [`flags`] is for [`until_all`].
#[inline]
pub(crate) fn wants_all(flags: c_int) -> bool {
    flags & BOTH == BOTH
}

/// Calls `look`, which does not wait, until it finds `length` bytes or the end.
#[cold]
pub(crate) fn until_all(fd: c_int, length: usize, mut look: impl FnMut() -> Answer) -> Answer {
    static ARRIVALS: Matter = Matter::new();
    let mut seen = Err(libc::EAGAIN);
    let deadline = parking::deadline(fd, Some(Limit::Receive));
    let ended = ARRIVALS.pursue(Reason::Read, deadline, libc::EAGAIN, || {
        // Before the look: what comes in between is looked at.
        let over = is_over(fd);
        seen = look();
        match seen {
            Err(libc::EAGAIN) => None,
            Ok(bytes) if bytes < length && !over => None,
            answer => Some(answer),
        }
    });
    match ended {
        Ok(answer) => answer,
        Err(_) if seen.is_ok() => seen,
        Err(errno) => Err(errno),
    }
}

/// Whether nothing more will come.
fn is_over(fd: c_int) -> bool {
    let mut file = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [&raw mut file as usize, 1, &raw const at_once as usize, 0, 0, 0];
    // SAFETY: an array of one.
    let polled = unsafe { kernel::call(libc::SYS_ppoll, arguments) };
    polled != Ok(0)
}
