//! Operations that the kernel does for a fiber while the fiber waits: an [`Op`] in flight.
//!
//! # The protocol
//!
//! An operation's record (`Operation`) lies on the stack of the fiber that waits for it, as a rule
//! beside the buffers that the kernel reads or writes. Its address is the token by which the reactor knows
//! the operation. So the fiber must not go on before the kernel is done with buffers and record, whatever
//! ends its wait:
//!
//! 1. The fiber submits the operation on its carrier and waits. Its wait is ended by the completion
//!    (`BY_COMPLETION`), by a deadline or a cancellation, or because the operation has become
//!    pointless ([`Wait::holds`]).
//! 2. If the operation is not complete then, the fiber asks for its cancellation, and waits for nothing but
//!    the completion. It may be on another carrier by now, whose reactor does not know the operation: then
//!    it sends an *errand* to the first carrier, and also waits until that was run. (If it did not, the
//!    errand might find another operation under the same token.)
//! 3. The completion decides, even after a request to cancel: so what was read is not lost. The wait counts
//!    as interrupted only if the kernel says that the operation was cancelled. Even then a time limit
//!    counts as reached only once a call tells its caller so
//!    ([`tell_timed_out`](crate::tell_timed_out)).
//!
//! # Several at once
//!
//! [`perform_any`] submits several operations and waits until one is done. The fiber does not park in
//! between, so all go to one carrier. Each has a record of its own. Step 2 is taken for all that are not
//! done when the first wait ends, even if that was a success; the records are freed after it.
//!
//! *No completion is missed.* Each completion sets a bit of its own before it ends the fiber's wait, and
//! the fiber looks at all bits when its wait has begun. By the argument of `signal` it finds the bit or is
//! woken.
//!
//! # Polls of connections that are half closed
//!
//! A ring ends each poll when the peer has closed its direction (`POLLRDHUP`), wanted or not, and at once if it has done so
//! before. A caller that waits for anything else would poll again, and keep the processor busy. So such an answer is none:
//! the poll is begun again as an [unheld](Wait::unheld) one, which epoll watches, and that asks for nothing unwanted.
//!
//! *Wake-ups may be for nothing.* Setting its bit is the completing thread's last access to the record (see
//! `flight` and its model); before that, it has read which fiber to wake. That fiber may be awake, see the bit,
//! and go on. Then the wake-up may end the fiber's wait for another operation, or that of a later fiber
//! with the same header. So each wait for operations looks whether it has to go on.

use carefree_reactor::Op;
use carefree_reactor::clock::NEVER;

use crate::carrier::carrier::{self, Carrier};
use crate::carrier::record::Operation;
use crate::fiber::current::current_fiber;
use crate::fiber::header::FiberRef;
use crate::protocol::episode::Outcome;
use crate::protocol::reason::Reason;
use crate::protocol::sync::Cell;
use crate::protocol::work;
use crate::wait::cancel::{self, Interrupted};
use crate::wait::park::{self, Until};

/// How to wait for an operation.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// What dumps say that the fiber waits for.
    pub reason: Reason,
    /// When the operation is given up, on the clock of
    /// [`clock::now`](carefree_reactor::clock::now); [`NEVER`] for no limit.
    pub deadline: u64,
    /// Whether there is still something to wait for. Asked when the wait has begun, and whenever it was
    /// ended without a completion, as by a fiber that closes the file: see [`crate::wait::waiters`].
    pub holds: &'a dyn Fn() -> bool,
    /// Whether the operation must not keep its file open beyond the end of the process: see
    /// [`Driver::submit_unheld`](carefree_reactor::Driver::submit_unheld).
    pub unheld: bool,
}

impl Wait<'_> {
    /// Waits until the operation is done, with neither a deadline nor a condition.
    pub const fn until_done(reason: Reason) -> Wait<'static> {
        Wait { reason, deadline: NEVER, holds: &|| true, unheld: false }
    }
}

impl std::fmt::Debug for Wait<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Wait")
            .field("reason", &self.reason)
            .field("deadline", &self.deadline)
            .field("unheld", &self.unheld)
            .finish_non_exhaustive()
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The kernel has answered, by a number that is not negative or by a negated `errno`.
    Done(i32),
    /// The deadline passed first; nothing was done.
    Late,
    /// The fiber was cancelled, or a [`timeout`](crate::timeout()) was over, first; nothing was done. A call
    /// that returns the latter to its caller calls [`tell_timed_out`](crate::tell_timed_out).
    Interrupted(Interrupted),
    /// [`Wait::holds`] said that there is nothing to wait for; nothing was done.
    Pointless,
    /// Nothing was tried: the reactor has no such operation, or the caller cannot park.
    Unsupported,
}

/// Has the kernel do `op` while the calling fiber is parked.
///
/// # Safety
/// What `op` points to is valid until this returns.
//
// In the frame of its caller, as the two functions below it: a fiber that waits has fewer frames on its page then.
#[inline(always)]
pub unsafe fn perform(op: &Op, how: &Wait<'_>) -> Ended {
    // SAFETY: as this function demands.
    match unsafe { perform_once(op, how) } {
        Ended::Done(result) if !how.unheld && is_unwanted(op, result) => {
            // SAFETY: as this function demands.
            unsafe { perform_unheld(op, how) }
        }
        ended => ended,
    }
}

/// Whether `op` is a poll that has ended because its connection is half closed, which it does not wait for.
#[inline(always)]
fn is_unwanted(op: &Op, result: i32) -> bool {
    const HALF_CLOSED: i32 = libc::POLLRDHUP as i32;
    match *op {
        Op::Poll { events, .. } => result == HALF_CLOSED && events as i32 & HALF_CLOSED == 0,
        _ => false,
    }
}

/// # Safety
/// As for [`perform`].
#[cold]
#[inline(never)]
unsafe fn perform_unheld(op: &Op, how: &Wait<'_>) -> Ended {
    // SAFETY: as this function demands.
    unsafe { perform_once(op, &Wait { unheld: true, ..*how }) }
}

/// # Safety
/// As for [`perform`].
#[inline(always)]
unsafe fn perform_once(op: &Op, how: &Wait<'_>) -> Ended {
    let (me, carrier) = match begin() {
        Ok(begun) => begun,
        Err(ended) => return ended,
    };
    let operation = Operation::new(me, carrier);
    if carrier.submit(operation.token(), op, how.unheld).is_err() {
        return Ended::Unsupported;
    }
    let all = std::slice::from_ref(&operation);
    if let Some(interruption) = first_wait(all, me, how) {
        cancel_and_wait(all, me, how);
        if operation.was_cancelled() {
            return interruption;
        }
    }
    Ended::Done(operation.result.get())
}

/// Has the kernel do `ops` while the calling fiber is parked, until the first of them is done; the
/// others are cancelled.
///
/// Afterwards `results` says for each operation how the kernel has answered it, or `None` if nothing
/// was done. [`Ended::Done`] carries how many were answered. Without operations it waits for the
/// deadline or an interruption.
///
/// # Safety
/// What `ops` point to is valid until this returns.
pub unsafe fn perform_any(ops: &[Op], how: &Wait<'_>, results: &mut Vec<Option<i32>>) -> Ended {
    // SAFETY: as this function demands.
    let ended = unsafe { perform_any_once(ops, how, results) };
    let mut answered = ops.iter().zip(&*results).filter_map(|(op, result)| Some((op, (*result)?)));
    let unwanted = matches!(ended, Ended::Done(1..))
        && !how.unheld
        && answered.all(|(op, result)| is_unwanted(op, result));
    if unwanted {
        // SAFETY: as this function demands.
        return unsafe { perform_any_once(ops, &Wait { unheld: true, ..*how }, results) };
    }
    ended
}

/// # Safety
/// As for [`perform_any`].
unsafe fn perform_any_once(ops: &[Op], how: &Wait<'_>, results: &mut Vec<Option<i32>>) -> Ended {
    results.clear();
    let (me, carrier) = match begin() {
        Ok(begun) => begun,
        Err(ended) => return ended,
    };
    // Reserved now, for a failure to allocate must not end this frame once the kernel has an operation.
    results.reserve(ops.len());
    let records: Vec<Operation> = ops.iter().map(|_| Operation::new(me, carrier)).collect();
    let submitted = (records.iter().zip(ops))
        .take_while(|(record, op)| carrier.submit(record.token(), op, how.unheld).is_ok())
        .count();
    let under_way = &records[..submitted];
    let interruption = if submitted < ops.len() {
        Some(Ended::Unsupported)
    } else {
        first_wait(under_way, me, how)
    };
    cancel_and_wait(under_way, me, how);
    results.extend(
        under_way.iter().map(|record| (!record.was_cancelled()).then_some(record.result.get())),
    );
    let answered = results.iter().flatten().count();
    match interruption {
        Some(interruption) if answered == 0 || interruption == Ended::Unsupported => interruption,
        _ => Ended::Done(answered as i32),
    }
}

/// The calling fiber and its carrier, if operations may be submitted there.
fn begin() -> Result<(FiberRef, &'static Carrier), Ended> {
    let me = current_fiber().ok_or(Ended::Unsupported)?;
    let carrier = carrier::of(me);
    if carrier.must_not_switch(me) {
        return Err(Ended::Unsupported);
    }
    cancel::interrupted().map_err(Ended::Interrupted)?;
    Ok((me, carrier))
}

/// Waits until one of `all` is done: `None`. Or until something else ends the wait: returns what.
#[inline(always)]
fn first_wait(all: &[Operation], me: FiberRef, how: &Wait<'_>) -> Option<Ended> {
    let until = Until { deadline: how.deadline, cancellable: true };
    let done = || all.iter().any(|operation| operation.flight.is_done());
    loop {
        let over = || done() || !(how.holds)();
        let (outcome, limited) = park::await_signal(me, over, how.reason, until);
        if done() {
            return None;
        }
        match outcome {
            Outcome::TimedOut if !limited => return Some(Ended::Late),
            Outcome::TimedOut => return Some(Ended::Interrupted(Interrupted::TimedOut)),
            Outcome::Cancelled => return Some(Ended::Interrupted(Interrupted::Cancelled)),
            Outcome::Unparked | Outcome::Invalid => {
                if !(how.holds)() {
                    return Some(Ended::Pointless);
                }
            }
        }
    }
}

/// Asks for the cancellation of those of `all` that are not done, and waits until all are.
#[cold]
#[inline(never)]
fn cancel_and_wait(all: &[Operation], me: FiberRef, how: &Wait<'_>) {
    let here = carrier::of(me);
    let mut far = false;
    for operation in all {
        if operation.flight.was_done() {
            operation.flight.needs_no_errand();
        } else if std::ptr::eq(operation.carrier, here) {
            here.cancel(operation.token());
        } else {
            far = true;
            // SAFETY: it is sent once for each operation, and the loop below waits until it was run.
            unsafe { operation.carrier.send_errand(operation.errand()) };
        }
    }
    // Each completion wakes the fiber. An operation that is over stays so, and each look goes on where the last
    // one stopped.
    let first = Cell::new(0);
    let over = || {
        while let Some(one) = all.get(first.get()) {
            work::step();
            if !one.flight.is_over(far) {
                return false;
            }
            first.set(first.get() + 1);
        }
        true
    };
    while !over() {
        park::await_signal(me, over, how.reason, Until::WOKEN_ONLY);
    }
}
