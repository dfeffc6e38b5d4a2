//! Peeking at all data: `MSG_PEEK` with `MSG_WAITALL`.
//!
//! Such a call on a TCP connection waits until that much has come. The reactor cannot do that: data that was
//! peeked at is still there, so the socket stays ready; and io_uring, which goes on where it stopped, would
//! copy the same bytes again, behind themselves (Linux 6.18). So the fiber polls (see
//! [`polling`](crate::wait::polling)). On a stream of `AF_UNIX` the call does not wait for all.

use std::ffi::c_int;

use carefree_runtime::Reason;

use crate::call::answer::Answer;
use crate::descriptor::Limit;
use crate::wait::multi_step::Named;
use crate::wait::polling::Polled;
use crate::wait::{parking, readiness};

/// Calls `look`, which does not wait, until it finds `length` bytes or the end, or the number is closed.
#[cold]
pub(crate) fn until_all(fd: c_int, length: usize, mut look: impl FnMut() -> Answer) -> Answer {
    static ARRIVALS: Polled = Polled::new();
    let file = Named::new(fd);
    let mut seen = Err(libc::EAGAIN);
    let deadline = parking::deadline(fd, Some(Limit::Receive));
    let ended = ARRIVALS.poll(Reason::Read, deadline, libc::EAGAIN, || {
        // Asked before the look, which then sees what has come in between.
        let mut over = false;
        let looked = file.attempt(|| {
            over = is_over(fd);
            look()
        });
        if looked == Err(libc::EBADF) && seen.is_ok() {
            return Some(seen);
        }
        seen = looked;
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

/// Whether no more data will come.
fn is_over(fd: c_int) -> bool {
    let mut file = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    readiness::one(&mut file, Some(0)) != Ok(0)
}
