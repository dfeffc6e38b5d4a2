//! Looking at all before any is taken: `MSG_PEEK` with `MSG_WAITALL`.

use std::ffi::c_int;

use carefree_runtime::Reason;

use crate::call::answer::Answer;
use crate::descriptor::Limit;
use crate::wait::parking::{self};
use crate::wait::polling::Polled;
use crate::wait::readiness::{self};

/// Calls `look`, which does not wait, until it finds `length` bytes or the end.
#[cold]
pub(crate) fn until_all(fd: c_int, length: usize, mut look: impl FnMut() -> Answer) -> Answer {
    static ARRIVALS: Polled = Polled::new();
    let mut seen = Err(libc::EAGAIN);
    let deadline = parking::deadline(fd, Some(Limit::Receive));
    let ended = ARRIVALS.poll(Reason::Read, deadline, libc::EAGAIN, || {
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
    readiness::one(&mut file, Some(0)) != Ok(0)
}
