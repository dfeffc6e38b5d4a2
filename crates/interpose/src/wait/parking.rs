//! Waiting for a file: an operation is submitted, the fiber parks, and the call's answer is made of the
//! completion.

use std::ffi::c_int;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::operation::{Ended, Wait};
use carefree_runtime::waiters::Seat;

use crate::call::answer::{Answer, interruption};
use crate::call::{host, sys};
use crate::descriptor;
use crate::descriptor::kind::Kind;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, Waiter};
use crate::wait::readiness::{self, is_ready};
use crate::wait::user_op::UserOp;

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
pub(crate) fn perform(op: &UserOp, on: On) -> Parked {
    let deadline = deadline(on.fd, on.limit);
    perform_until(op, on, deadline)
}

/// [`perform`] until `deadline`: for calls that wait several times under one limit.
pub(crate) fn perform_until(op: &UserOp, on: On, deadline: u64) -> Parked {
    perform_here(op, on, deadline)
}

/// [`perform_until`] in the frame of the caller: a fiber that waits there has one frame less on its page.
#[inline(always)]
pub(crate) fn perform_here(op: &UserOp, on: On, deadline: u64) -> Parked {
    perform_for(op, on, deadline, deadline != NEVER)
}

/// [`perform_here`]; the call `has_limit` if the socket sets it one.
#[inline(always)]
fn perform_for(op: &UserOp, on: On, deadline: u64, has_limit: bool) -> Parked {
    let seat = Seat::new();
    let Some(waiter) = Waiter::new(on.fd, &seat) else {
        return Parked::Answered(Err(libc::EBADF));
    };
    // When something comes, a ring tries all operations on the file, and the last one first. epoll has a line of them.
    let mut unheld = matches!(op.op(), Op::Accept { .. })
        || waiter.unheld()
        || op.is_served_in_turn() && waiter.is_behind_others();
    if unheld && waiter.is_device() && transfers(op) {
        // Most devices have no call that does not wait. So the ring makes the call when the device is
        // ready, and holds it only if another reader is faster.
        match until_ready(op, on, deadline) {
            Parked::Answered(Ok(_)) | Parked::Unsupported => unheld = false,
            ended => return ended,
        }
    }
    let holds = || waiter.holds();
    let how = Wait { reason: on.reason, deadline, holds: &holds, unheld };
    loop {
        let ended = op.perform(&how);
        return Parked::Answered(match ended {
            // A signal reached a thread of the kernel's; it was not meant for this fiber.
            Ended::Done(result) if result == -libc::EINTR => continue,
            Ended::Done(result) => usize::try_from(result).map_err(|_| -result),
            Ended::Interrupted(why) => {
                // signal(7): a call with a time limit ends, whatever the handler's flags.
                if has_limit {
                    host::ends_by_signal();
                }
                Err(interruption(why))
            }
            Ended::Pointless => last_try(op, on.fd, &how),
            Ended::Late => return Parked::Late,
            Ended::Unsupported => return Parked::Unsupported,
        });
    }
}

/// When a wait ends for a look at what no reactor reports. (Never where time is virtual, and would pass.)
pub(crate) fn next_look() -> u64 {
    /// Nanoseconds between two looks.
    const LOOK: u64 = 50_000_000;
    if clock::virtual_now().is_some() { NEVER } else { clock::now().saturating_add(LOOK) }
}

/// [`perform_until`], which ends for a look if `on` is a socket of `AF_UNIX`: `None` then. When the other end, or another
/// thread, shuts down one direction of such a socket, calls end that no poll finds ready, and so no reactor.
pub(crate) fn perform_until_look(op: &UserOp, on: On, deadline: u64) -> Option<Parked> {
    let look = match descriptor::file(on.fd) {
        Some(file) if file.kind(on.fd) != Kind::Socket => deadline,
        _ => next_look().min(deadline),
    };
    let parked = perform_for(op, on, look, deadline != NEVER);
    if !matches!(parked, Parked::Late) || look == deadline {
        return Some(parked);
    }
    // Asked here alone, for most waits are shorter.
    let is_unix = option(on.fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX);
    (!is_unix).then(|| perform_until(op, on, deadline))
}

/// [`perform_until`] of an operation that sends or writes, or polls for that. A poll may end with no event, for a try.
pub(crate) fn perform_sending(op: &UserOp, on: On, deadline: u64) -> Parked {
    loop {
        match perform_until_look(op, on, deadline) {
            Some(parked) => return parked,
            None if matches!(op.op(), Op::Poll { .. }) => return Parked::Answered(Ok(0)),
            None => {}
        }
    }
}

/// The answer of an operation whose file is being closed, which stays open until the caller's waiter has
/// left. What came before the file is closed is not lost, and a shutdown ends the call as it would have,
/// though the reactor has not come to it yet.
#[cold]
#[inline(never)]
pub(crate) fn last_try(op: &UserOp, fd: c_int, how: &Wait<'_>) -> Answer {
    /// Nanoseconds after which the file is looked at again: another call may have taken what was ready.
    const A_WHILE: u64 = 10_000_000;
    /// Looks: on a busy machine what is ready takes a while.
    const LOOKS: usize = 100;
    let Some(events) = op.events() else { return Err(libc::EBADF) };
    for _ in 0..LOOKS {
        // (Notices in a socket's error queue are no such event, and no read takes them out.)
        let wanted = events | libc::POLLHUP;
        if !readiness::look(fd, events).is_ok_and(|there| there & wanted != 0) {
            break;
        }
        let deadline = clock::now().saturating_add(A_WHILE);
        match op.perform(&Wait { deadline, holds: &|| true, ..*how }) {
            Ended::Done(result) if result == -libc::EINTR => {}
            Ended::Done(result) => return usize::try_from(result).map_err(|_| -result),
            Ended::Late => {}
            _ => break,
        }
    }
    Err(libc::EBADF)
}

/// Whether `op` reads or writes.
fn transfers(op: &UserOp<'_>) -> bool {
    use Op::{Read, ReadVectored, Write, WriteVectored};
    matches!(op.op(), Read { .. } | ReadVectored { .. } | Write { .. } | WriteVectored { .. })
}

/// Waits until `op`, which [`transfers`], need not wait for its device. Not inlined, for most waits should
/// not have this frame.
#[inline(never)]
fn until_ready(op: &UserOp<'_>, on: On, deadline: u64) -> Parked {
    let events = op.events().unwrap_or(libc::POLLIN);
    if is_ready(on.fd, events) {
        return Parked::Answered(Ok(0));
    }
    match perform_until(&UserOp::poll(on.fd, events), on, deadline) {
        // A read that waits at a terminal when its other end closes fails; a later one finds the end of the file.
        Parked::Answered(Ok(there))
            if there & libc::POLLHUP as usize != 0
                && sys::ioctl_number(on.fd, libc::TIOCOUTQ as usize) == Err(libc::EIO) =>
        {
            Parked::Answered(Err(libc::EIO))
        }
        ended => ended,
    }
}

/// When a call on `fd` gives up by the socket's own time limit.
pub(crate) fn deadline(fd: c_int, limit: Option<Limit>) -> u64 {
    let Some(limit) = limit else { return NEVER };
    let span = match descriptor::file(fd) {
        Some(file) => file.limit(fd, limit),
        None => descriptor::limit_of(fd, limit),
    };
    if span == NEVER { NEVER } else { clock::now().saturating_add(span) }
}
