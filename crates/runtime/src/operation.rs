//! What the kernel does for a fiber that waits: an [`Op`] in flight.
//!
//! # The protocol
//!
//! An operation's record lies on the stack of the fiber that waits for it, beside the buffers the
//! kernel works on; its address is the token the reactor is given. So the fiber must not go on
//! before the kernel is done with both, whatever ends its wait:
//!
//! 1. The fiber submits on the carrier it runs on and waits. Its wait ends by the completion
//!    ([`BY_COMPLETION`](crate::episode::BY_COMPLETION)), or by a deadline, a cancellation, or
//!    because the operation has become pointless ([`Wait::holds`]).
//! 2. If the completion has not come then, the fiber asks for the operation to be cancelled and
//!    waits again, now for nothing but the completion. It may have been moved to another carrier
//!    meanwhile, whose reactor knows nothing of the operation: then it asks the first one by an
//!    [errand](crate::carrier::Carrier::send_errand), and waits also until that has been run. (An
//!    errand run later would find another operation under the same token.)
//! 3. The completion's result counts, even if the fiber had asked to cancel: what was read is not
//!    lost. Only if the kernel says that it was cancelled the wait ends as it was interrupted.
//!
//! *Who completes touches the record last when he sends `done`*, and reads whom to wake before. The
//! fiber may be awake, see the signal, and be gone when he comes to wake it. He then ends the wait
//! of another operation, of this fiber or of a later one under the same header, if one is under way:
//! such waits look again.

use std::cell::Cell;

use carefree_reactor::Op;
use carefree_reactor::clock::NEVER;

use crate::cancel::{self, Interrupted};
use crate::carrier::{self, Carrier};
use crate::episode::Outcome;
use crate::fiber::FiberRef;
use crate::reason::Reason;
use crate::registry;
use crate::signal::Signal;
use crate::wait::{self, Until};

/// How to wait for an operation.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// What for, in dumps.
    pub reason: Reason,
    /// What on: names the waits that [`interrupt`] ends.
    pub key: usize,
    /// When the operation is given up, on the clock of
    /// [`clock::now`](carefree_reactor::clock::now); [`NEVER`] for no limit.
    pub deadline: u64,
    /// Whether there is still something to wait for. Asked when the wait has begun and whenever
    /// [`interrupt`] has ended it. What it looks at must be changed before that is called, and both
    /// sides must use read-modify-writes, so that one of them sees the other.
    pub holds: &'a dyn Fn() -> bool,
}

impl Wait<'_> {
    /// Waits for `reason` until completion.
    pub const fn until_done(reason: Reason) -> Wait<'static> {
        Wait { reason, key: 0, deadline: NEVER, holds: &|| true }
    }
}

impl std::fmt::Debug for Wait<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Wait")
            .field("reason", &self.reason)
            .field("key", &self.key)
            .field("deadline", &self.deadline)
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
    /// The fiber was cancelled or timed out first; nothing was done.
    Interrupted(Interrupted),
    /// [`Wait::holds`] said that there is nothing to wait for; nothing was done.
    Pointless,
    /// Nothing was tried: the reactor has no such operation, or the caller cannot park.
    Unsupported,
}

/// An operation in flight.
struct Operation {
    /// Who waits for it.
    fiber: FiberRef,
    /// Whose reactor has it.
    carrier: &'static Carrier,
    result: Cell<i32>,
    done: Signal,
    /// The errand to cancel it has been run.
    heard: Signal,
}

/// Has the kernel do `op` while the calling fiber is parked.
///
/// # Safety
/// What `op` points to is valid until this returns.
pub unsafe fn perform(op: &Op, how: &Wait<'_>) -> Ended {
    let Some(me) = wait::current_fiber() else { return Ended::Unsupported };
    let carrier = carrier::of(me);
    if carrier.must_not_switch() {
        return Ended::Unsupported;
    }
    if let Err(interrupted) = cancel::check() {
        return Ended::Interrupted(interrupted);
    }
    let operation = Operation {
        fiber: me,
        carrier,
        result: Cell::new(0),
        done: Signal::new(),
        heard: Signal::new(),
    };
    if carrier.submit((&raw const operation) as u64, op).is_err() {
        return Ended::Unsupported;
    }
    let interruption = operation.first_wait(me, how);
    if let Some(interruption) = interruption {
        operation.cancel_and_wait(me, how);
        // An operation that was under way says EINTR when it is cancelled.
        if matches!(-operation.result.get(), libc::ECANCELED | libc::EINTR) {
            return interruption;
        }
    }
    Ended::Done(operation.result.get())
}

impl Operation {
    /// Waits until the operation is done or its wait is interrupted; then says how.
    fn first_wait(&self, me: FiberRef, how: &Wait<'_>) -> Option<Ended> {
        let until = Until { deadline: how.deadline, cancellable: true };
        loop {
            let over = || self.done.is_sent() || !(how.holds)();
            let (outcome, limited) = wait::await_signal(me, over, how.reason, how.key, until);
            if self.done.is_sent() {
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

    /// Asks for the operation's end and waits for it.
    fn cancel_and_wait(&self, me: FiberRef, how: &Wait<'_>) {
        let token = (self as *const Self) as u64;
        let here = carrier::of(me);
        let far = !std::ptr::eq(self.carrier, here);
        if far {
            self.carrier.send_errand(token);
        } else {
            here.cancel(token);
        }
        let over = || self.done.is_sent() && (!far || self.heard.is_sent());
        while !over() {
            wait::await_signal(me, over, how.reason, how.key, Until::WOKEN_ONLY);
        }
    }
}

/// The operation `token` is done.
///
/// # Safety
/// `token` was given to a reactor by [`perform`], and this is its one completion.
pub(crate) unsafe fn complete(token: u64, result: i32) {
    // SAFETY: the record lives until `done` is sent.
    let operation = unsafe { &*(token as *const Operation) };
    let fiber = operation.fiber;
    operation.result.set(result);
    // The last touch.
    operation.done.send();
    wait::wake_completed(fiber);
}

/// Runs an errand on the carrier it was sent to: `cancel` is its reactor's.
///
/// # Safety
/// `token` comes from [`Carrier::send_errand`].
pub(crate) unsafe fn run_errand(token: u64, cancel: impl FnOnce(u64)) {
    // SAFETY: the record lives until `heard` is sent.
    let operation = unsafe { &*(token as *const Operation) };
    let fiber = operation.fiber;
    if !operation.done.peek() {
        cancel(token);
    }
    // The last touch.
    operation.heard.send();
    wait::wake_completed(fiber);
}

/// Has all operations with `key` asked again whether their waits [hold](Wait::holds).
///
/// Looks at every fiber of the process: for what happens rarely.
pub fn interrupt(key: usize) {
    // Woken when the registry is free again: waking may take locks of its own.
    let mut waiting = Vec::new();
    registry::for_each_alive(|fiber| {
        if fiber.key.load(std::sync::atomic::Ordering::Relaxed) == key && fiber.episode.is_waiting()
        {
            waiting.push(fiber);
        }
    });
    for fiber in waiting {
        wait::wake_completed(fiber);
    }
}
