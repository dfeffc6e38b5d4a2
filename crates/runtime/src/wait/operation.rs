//! What the kernel does for a fiber that waits: an [`Op`] in flight.
//!
//! # The protocol
//!
//! An operation's record lies on the stack of the fiber that waits for it, beside the buffers the
//! kernel works on; its address is the token the reactor is given. So the fiber must not go on
//! before the kernel is done with both, whatever ends its wait:
//!
//! 1. The fiber submits on the carrier it runs on and waits. Its wait ends by the completion
//!    (`BY_COMPLETION`), or by a deadline, a cancellation, or because the operation has become
//!    pointless ([`Wait::holds`]).
//! 2. If the completion has not come then, the fiber asks for the operation to be cancelled and
//!    waits again, now for nothing but the completion. It may have been moved to another carrier
//!    meanwhile, whose reactor knows nothing of the operation: then it asks the first one by an
//!    errand, and waits also until that has been run. (An errand run later would find another
//!    operation under the same token.)
//! 3. The completion decides, even if the fiber had asked to cancel: what was read is not lost. Only if
//!    the kernel says that it was cancelled, the wait ends as it was interrupted; and a time limit
//!    counts as reached only when a call tells its caller so ([`tell_timed_out`](crate::tell_timed_out)).
//!
//! # Several at once
//!
//! [`perform_any`] submits several operations and waits until one is done. All are submitted before
//! the fiber can be moved, so to one carrier. Each has a record of its own, in memory that the fiber
//! gives back after step 2 has been taken for every one of them: whichever are not done when the
//! first wait ends are cancelled and waited for, also after a success. *No completion is missed*:
//! each is a bit of its own that is sent before the wait is ended, and the fiber looks at all the bits
//! when a wait has begun; so by the argument of `signal` it either finds the bit or
//! is woken. Completions that end a wait early, or come when none is under way, do no harm: the waiter
//! looks again.
//!
//! *The completing thread touches the record last when it sends `done`* (see `flight`, and its model); it
//! has read before which fiber to wake. That fiber may be awake, see the signal, and be gone by then. The
//! wake-up then ends the wait of another operation, of this fiber or of a later one under the same
//! header, if one is under way: such waits look again.

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
    /// What for, in dumps.
    pub reason: Reason,
    /// When the operation is given up, on the clock of
    /// [`clock::now`](carefree_reactor::clock::now); [`NEVER`] for no limit.
    pub deadline: u64,
    /// Whether there is still something to wait for. Asked when the wait has begun and whenever
    /// a closing fiber has ended it: see [`crate::wait::waiters`].
    pub holds: &'a dyn Fn() -> bool,
    /// Whether the operation's file must be gone with the process
    /// ([`Driver::submit_unheld`](carefree_reactor::Driver::submit_unheld)).
    pub unheld: bool,
}

impl Wait<'_> {
    /// Waits for `reason` until completion.
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
    /// The kernel has answered: with a number that is not negative, or a negated `errno`.
    Done(i32),
    /// The deadline passed first; nothing was done.
    Late,
    /// The fiber was cancelled or timed out first; nothing was done. A call that returns the latter to
    /// its caller [tells](crate::tell_timed_out) so.
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
pub unsafe fn perform(op: &Op, how: &Wait<'_>) -> Ended {
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
    results.clear();
    let (me, carrier) = match begin() {
        Ok(begun) => begun,
        Err(ended) => return ended,
    };
    // Reserved now: nothing may fail once the kernel has the first of them.
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

/// Whether the caller may have operations done, and where.
fn begin() -> Result<(FiberRef, &'static Carrier), Ended> {
    let me = current_fiber().ok_or(Ended::Unsupported)?;
    let carrier = carrier::of(me);
    if carrier.must_not_switch() {
        return Err(Ended::Unsupported);
    }
    cancel::interrupted().map_err(Ended::Interrupted)?;
    Ok((me, carrier))
}

/// Waits until one of `all` is done or the wait is interrupted; then says how.
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

/// Asks for the end of those of `all` that are not done, and waits for it.
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
            // SAFETY: the loop below waits until it was run.
            unsafe { operation.carrier.send_errand(operation.errand()) };
        }
    }
    // What was over stays so. A thousand that complete one by one wake the fiber as often, and it need
    // not look through all of them each time.
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
