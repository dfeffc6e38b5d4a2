//! Waiting for one of several files.

use std::ffi::c_int;

use carefree_reactor::Op;
use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::operation::{self, Ended, Wait};
use carefree_runtime::waiters::Seat;
use carefree_runtime::{Interrupted, Reason, yield_now};

use crate::call::answer::{Answer, interruption};
use crate::call::host;
use crate::descriptor::Waiter;
use crate::time::duration;
use crate::wait::user_op::UserOp;

/// Nothing was ready: whether the call is over. If it is, other fibers run first, because the caller may ask
/// in a loop.
pub(crate) fn nothing_yet(deadline: u64) -> bool {
    let over = deadline <= clock::now();
    if over {
        yield_now();
    }
    over
}

/// Nanoseconds until `deadline`; `None` if there is none.
pub(crate) fn left(deadline: u64) -> Option<u64> {
    (deadline != NEVER).then(|| duration::left(deadline))
}

/// A file that a call waits for.
pub(crate) struct Wanted {
    pub(crate) fd: c_int,
    pub(crate) events: u32,
    /// Its place in the caller's list.
    pub(crate) place: usize,
    /// The reactor cannot wait for it: it never has such events.
    pub(crate) hopeless: bool,
}

/// How waiting for several files ended.
pub(crate) enum Woken {
    /// Something may be ready.
    Perhaps,
    /// The files at these places are being closed.
    Closed(Vec<usize>),
    Late,
    Failed(c_int),
    /// The reactor cannot do it.
    Unsupported,
}

/// Parks until something may have happened on one of the files in `wanted`.
pub(crate) fn park(wanted: &mut [Wanted], deadline: u64) -> Woken {
    match wanted {
        [one] if !one.hopeless => park_on_one(one, deadline),
        _ => park_on_several(wanted, deadline),
    }
}

fn park_on_one(one: &mut Wanted, deadline: u64) -> Woken {
    let seat = Seat::new();
    let Some(waiter) = Waiter::new(one.fd, &seat) else { return Woken::Closed(vec![one.place]) };
    let holds = || waiter.holds();
    let unheld = waiter.unheld();
    let how = Wait { reason: Reason::Poll, deadline, holds: &holds, unheld };
    // SAFETY: it points to nothing.
    match unsafe { operation::perform(&Op::Poll { fd: one.fd, events: one.events }, &how) } {
        Ended::Done(result) => learn([(one, Some(result))]),
        Ended::Late => Woken::Late,
        Ended::Interrupted(why) => cut(why),
        Ended::Pointless => Woken::Closed(vec![one.place]),
        Ended::Unsupported => Woken::Unsupported,
    }
}

/// Parks until there are events of the epoll instance `epoll`, which `op` fetches: how many. Or why it has none.
pub(crate) fn collect(op: &UserOp, epoll: c_int, deadline: u64) -> Result<usize, Woken> {
    let seat = Seat::new();
    let closed = || Woken::Closed(Vec::new());
    let waiter = Waiter::new(epoll, &seat).ok_or_else(closed)?;
    let holds = || waiter.holds();
    let unheld = waiter.unheld();
    match op.perform(&Wait { reason: Reason::Poll, deadline, holds: &holds, unheld }) {
        Ended::Done(found) => usize::try_from(found).map_err(|_| match -found {
            // Others have fetched them; or a thread of the kernel's was interrupted.
            libc::EAGAIN | libc::EINTR | libc::ECANCELED => Woken::Perhaps,
            errno => Woken::Failed(errno),
        }),
        Ended::Late => Err(Woken::Late),
        Ended::Interrupted(why) => Err(cut(why)),
        Ended::Pointless => Err(closed()),
        Ended::Unsupported => Err(Woken::Unsupported),
    }
}

/// What a wait has come to that was cut short.
fn cut(why: Interrupted) -> Woken {
    match why {
        Interrupted::Cancelled if host::waits_on() => Woken::Perhaps,
        _ => Woken::Failed(interruption(why)),
    }
}

/// The answer of a call whose wait a signal has ended: a last `look` comes first, for the kernel too looks before it says
/// `EINTR`, and the signal may be sent for the very event.
pub(crate) fn or_happened(errno: c_int, look: impl FnOnce() -> Answer) -> Answer {
    look().ok().filter(|found| *found > 0).ok_or(errno)
}

/// Notes the reactor's answers at the files that they are about; and what they mean for the call.
fn learn<'w>(answers: impl IntoIterator<Item = (&'w mut Wanted, Option<i32>)>) -> Woken {
    let (mut happened, mut without_memory) = (false, false);
    for (one, result) in answers {
        match result.map_or(0, |result| -result) {
            // Asked again: the file may have such events.
            0 | libc::EINTR | libc::ECANCELED => {}
            libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC => without_memory = true,
            errno => {
                one.hopeless = errno > 0;
                happened = true;
            }
        }
    }
    if without_memory && !happened { Woken::Failed(libc::ENOMEM) } else { Woken::Perhaps }
}

fn park_on_several(wanted: &mut [Wanted], deadline: u64) -> Woken {
    let seats: Vec<_> = wanted.iter().map(|_| Seat::new()).collect();
    let mut waiters = Vec::with_capacity(wanted.len());
    let mut ops = Vec::with_capacity(wanted.len());
    let mut closed = Vec::new();
    for (one, seat) in wanted.iter().zip(&seats) {
        match Waiter::new(one.fd, seat) {
            Some(waiter) => waiters.push(waiter),
            None => closed.push(one.place),
        }
        if !one.hopeless {
            ops.push(Op::Poll { fd: one.fd, events: one.events });
        }
    }
    if !closed.is_empty() {
        return Woken::Closed(closed);
    }
    let holds = || waiters.iter().all(Waiter::holds);
    let unheld = waiters.iter().any(Waiter::unheld);
    let how = Wait { reason: Reason::Poll, deadline, holds: &holds, unheld };
    let mut results = Vec::new();
    // SAFETY: they point to nothing.
    match unsafe { operation::perform_any(&ops, &how, &mut results) } {
        Ended::Done(_) => {
            let submitted = wanted.iter_mut().filter(|one| !one.hopeless);
            learn(submitted.zip(results))
        }
        Ended::Late => Woken::Late,
        Ended::Interrupted(why) => cut(why),
        Ended::Pointless => {
            let closed = (wanted.iter().zip(&waiters)).filter(|(_, waiter)| !waiter.holds());
            Woken::Closed(closed.map(|(one, _)| one.place).collect())
        }
        Ended::Unsupported => Woken::Unsupported,
    }
}
