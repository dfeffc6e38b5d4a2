//! The one way a call waits for a file: submit, park, and say what became of it as a call does.

use std::ffi::c_int;

use carefree_reactor::Op;
use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::operation::{self, Ended, Wait};
use carefree_runtime::waiters::Seat;
use carefree_runtime::{Interrupted, Reason};

use crate::files::{self, Limit, Waiter};

/// What a call came to: the kernel's number, or an `errno`.
pub(crate) type Answer = Result<usize, c_int>;

/// A wait for a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct On {
    pub(crate) fd: c_int,
    pub(crate) reason: Reason,
    /// The socket's time limit that holds for it, if any does.
    pub(crate) limit: Option<Limit>,
}

/// How a wait for a file ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parked {
    /// The kernel has answered, or the fiber was interrupted.
    Answered(Answer),
    /// The socket's own time limit has passed.
    Late,
    /// Nothing was done: the reactor cannot do it, or the fiber cannot park.
    Unsupported,
}

/// Parks the calling fiber until the kernel has done `op`.
///
/// # Safety
/// What `op` points to is valid until this returns.
pub(crate) unsafe fn perform(op: &Op, on: On) -> Parked {
    let deadline = deadline(on.fd, on.limit);
    // SAFETY: the caller's promise.
    unsafe { perform_until(op, on, deadline) }
}

/// [`perform`] until `deadline`: for a call that waits several times, which has its limit once.
///
/// # Safety
/// As for [`perform`].
pub(crate) unsafe fn perform_until(op: &Op, on: On, deadline: u64) -> Parked {
    let seat = Seat::new();
    let Some(waiter) = Waiter::new(on.fd, &seat) else {
        return Parked::Answered(Err(libc::EBADF));
    };
    let mut unheld = matches!(op, Op::Accept { .. }) || waiter.unheld();
    if let Some(ready) = readiness(op).filter(|_| unheld && waiter.is_device()) {
        // Most devices know no call that does not wait. So once it is ready the ring makes the call,
        // and holds the device only if another reader is faster.
        // SAFETY: it points to nothing.
        match unsafe { perform_until(&ready, on, deadline) } {
            Parked::Answered(Ok(_)) | Parked::Unsupported => unheld = false,
            ended => return ended,
        }
    }
    let holds = || waiter.holds();
    let how = Wait { reason: on.reason, deadline, holds: &holds, unheld };
    loop {
        // SAFETY: the caller's promise.
        let ended = unsafe { operation::perform(op, &how) };
        return Parked::Answered(match ended {
            // Some signal reached a thread of the kernel's; it was not meant for this fiber.
            Ended::Done(result) if result == -libc::EINTR => continue,
            Ended::Done(result) => usize::try_from(result).map_err(|_| -result),
            Ended::Interrupted(why) => Err(interruption(why)),
            Ended::Pointless => Err(libc::EBADF),
            Ended::Late => return Parked::Late,
            Ended::Unsupported => return Parked::Unsupported,
        });
    }
}

/// What stands for `ETIMEDOUT` in the answer of a call that was cut short by a
/// [`timeout`](carefree_runtime::timeout()). No `errno` of the kernel's is as large.
///
/// It goes the way of an error until the caller is told ([`told`]), and the limit counts as reached only
/// then: a call that has done a part answers that instead, and was not cut short.
const CUT: c_int = 1 << 20;

/// What says that `op` need not wait for a device any more, if it transfers something.
fn readiness(op: &Op) -> Option<Op> {
    match *op {
        Op::Read { fd, .. } | Op::ReadVectored { fd, .. } => {
            Some(Op::Poll { fd, events: libc::POLLIN as u32 })
        }
        Op::Write { fd, .. } | Op::WriteVectored { fd, .. } => {
            Some(Op::Poll { fd, events: libc::POLLOUT as u32 })
        }
        _ => None,
    }
}

/// The `errno` of a call that was interrupted.
pub(crate) fn interruption(why: Interrupted) -> c_int {
    match why {
        Interrupted::Cancelled => libc::ECANCELED,
        Interrupted::TimedOut => CUT,
    }
}

/// Whether `errno` says that the fiber was interrupted, or that the file is being closed: nothing was
/// done then, and nothing is to be tried further.
pub(crate) fn is_end(errno: c_int) -> bool {
    matches!(errno, libc::EBADF | libc::ECANCELED | CUT)
}

/// The `errno` that the caller is told.
#[inline]
pub(crate) fn told(errno: c_int) -> c_int {
    if errno != CUT {
        return errno;
    }
    carefree_runtime::tell_timed_out();
    libc::ETIMEDOUT
}

/// When a call on `fd` gives up by the socket's own time limit.
pub(crate) fn deadline(fd: c_int, limit: Option<Limit>) -> u64 {
    let Some(limit) = limit else { return NEVER };
    let span = match files::file(fd) {
        Some(file) => file.limit(fd, limit),
        None => files::limit_of(fd, limit),
    };
    if span == NEVER { NEVER } else { clock::now().saturating_add(span) }
}
