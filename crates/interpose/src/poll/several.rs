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
use crate::wait::parking::{last_try, next_look};
use crate::wait::readiness::is_ready;
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
    /// It was closed since the call began.
    pub(crate) gone: bool,
    /// What has happened on it is reported always, and the call does not wait for that: `select` for urgent data, say, on
    /// a pipe without a writer. A reactor would report it again at once, so the file is looked at now and then.
    pub(crate) vain: bool,
}

impl Wanted {
    pub(crate) fn new(fd: c_int, events: u32, place: usize) -> Wanted {
        Wanted { fd, events, place, hopeless: false, gone: false, vain: false }
    }

    /// Whether the reactor is asked about it.
    fn is_watched(&self) -> bool {
        !self.hopeless && !self.gone && !self.vain
    }
}

/// How waiting for several files ended.
pub(crate) enum Woken {
    /// Something may be ready.
    Perhaps,
    /// The files at these places are being closed, and the call has no time limit.
    Closed(Vec<usize>),
    Late,
    Failed(c_int),
    /// The reactor cannot do it.
    Unsupported,
}

/// Parks until something may have happened on one of the files in `wanted`.
///
/// A call with a time limit goes on where one of them is closed, for the others, and looks at it in the end, as on a
/// thread. One without might never end, for nothing holds the file that is closed: it is told.
pub(crate) fn park(wanted: &mut [Wanted], deadline: u64) -> Woken {
    loop {
        let look = match wanted.iter().any(|one| one.vain) {
            true => next_look().min(deadline),
            false => deadline,
        };
        let woken = match wanted {
            [one] if one.is_watched() => park_on_one(one, look),
            _ => park_on_several(wanted, look),
        };
        match woken {
            Woken::Late if look != deadline => {
                wanted.iter_mut().for_each(|one| one.vain = false);
                return Woken::Perhaps;
            }
            Woken::Closed(places) if deadline != NEVER => {
                let closed = wanted.iter_mut().filter(|one| places.contains(&one.place));
                closed.for_each(|one| one.gone = true);
            }
            Woken::Late if wanted.iter().any(|one| one.gone) => return Woken::Perhaps,
            woken => return woken,
        }
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
        Ended::Pointless => closed([&*one].into_iter()),
        Ended::Unsupported => Woken::Unsupported,
    }
}

/// What it means that these files are being closed. What has happened on one before, as by `shutdown`, ends the call.
/// (The files are open until the caller has left their waiters.)
fn closed<'w>(files: impl Iterator<Item = &'w Wanted> + Clone) -> Woken {
    match files.clone().any(|one| is_ready(one.fd, one.events as i16)) {
        true => Woken::Perhaps,
        false => Woken::Closed(files.map(|one| one.place).collect()),
    }
}

/// Waits until `deadline`, for no file: the answer of a call whose only file is closed.
pub(crate) fn wait_out(deadline: u64) -> Answer {
    loop {
        match park(&mut [], deadline) {
            Woken::Failed(errno) => return Err(errno),
            Woken::Perhaps if clock::now() < deadline => {}
            _ => return Ok(0),
        }
    }
}

/// Parks until there are events of the epoll instance `epoll`, which `op` fetches: how many. Or why it has none.
pub(crate) fn collect(op: &UserOp, epoll: c_int, deadline: u64) -> Result<usize, Woken> {
    let seat = Seat::new();
    let closed = || Woken::Closed(Vec::new());
    let waiter = Waiter::new(epoll, &seat).ok_or_else(closed)?;
    let holds = || waiter.holds();
    let unheld = waiter.unheld();
    let how = Wait { reason: Reason::Poll, deadline, holds: &holds, unheld };
    match op.perform(&how) {
        Ended::Done(found) => usize::try_from(found).map_err(|_| match -found {
            // Others have fetched them; or a thread of the kernel's was interrupted.
            libc::EAGAIN | libc::EINTR | libc::ECANCELED => Woken::Perhaps,
            errno => Woken::Failed(errno),
        }),
        Ended::Late => Err(Woken::Late),
        Ended::Interrupted(why) => Err(cut(why)),
        Ended::Pointless => last_try(op, epoll, &how).map_err(|_| closed()),
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
            events if events < 0 => {
                one.vain = events.unsigned_abs() & one.events == 0;
                happened = true;
            }
            libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC => without_memory = true,
            _ => {
                one.hopeless = true;
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
    let mut late = Vec::new();
    for (one, seat) in wanted.iter().zip(&seats).filter(|(one, _)| !one.gone) {
        match Waiter::new(one.fd, seat) {
            Some(waiter) => waiters.push(waiter),
            None => late.push(one.place),
        }
        if one.is_watched() {
            ops.push(Op::Poll { fd: one.fd, events: one.events });
        }
    }
    if !late.is_empty() {
        return Woken::Closed(late);
    }
    let holds = || waiters.iter().all(Waiter::holds);
    let unheld = waiters.iter().any(Waiter::unheld);
    // A call that names no file sleeps.
    let deadline = if ops.is_empty() { clock::some_time(deadline) } else { deadline };
    let how = Wait { reason: Reason::Poll, deadline, holds: &holds, unheld };
    let mut results = Vec::new();
    // SAFETY: they point to nothing.
    match unsafe { operation::perform_any(&ops, &how, &mut results) } {
        Ended::Done(_) => {
            let submitted = wanted.iter_mut().filter(|one| one.is_watched());
            learn(submitted.zip(results))
        }
        Ended::Late => Woken::Late,
        Ended::Interrupted(why) => cut(why),
        Ended::Pointless => {
            let there = wanted.iter().filter(|one| !one.gone).zip(&waiters);
            let closing = there.filter(|(_, waiter)| !waiter.holds()).map(|(one, _)| one);
            closed(closing)
        }
        Ended::Unsupported => Woken::Unsupported,
    }
}
