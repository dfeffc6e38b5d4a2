//! Ending the wait of a fiber or thread from outside: each function claims the wait, and makes the fiber
//! ready if the claim succeeds.

use crate::carrier::bucket;
use crate::carrier::carrier;
use crate::carrier::census;
use crate::carrier::policy::{COMPLETED, CUT_SHORT, Place};
use crate::fiber::bed;
use crate::fiber::header::FiberRef;
use crate::protocol::episode::{BY_CANCEL, BY_COMPLETION, Claim, Outcome, Ticket};
use crate::protocol::work;

/// Ends the wait `ticket`: what the fiber waits for has been done.
pub(crate) fn end_claimed(fiber: FiberRef, ticket: Ticket) {
    wake(fiber, fiber.episode.claim(ticket, Outcome::Unparked), COMPLETED);
}

/// Ends the wait of a fiber for operations, if it is in one; which one is not known, so the fiber looks
/// whether it has to wait again.
pub(crate) fn wake_completed(fiber: FiberRef) {
    work::step();
    wake(fiber, fiber.episode.claim_by(BY_COMPLETION, Outcome::Unparked), COMPLETED);
}

/// Ends the wait of a cancelled fiber.
pub(crate) fn wake_cancelled(fiber: FiberRef) {
    wake(fiber, fiber.episode.claim_by(BY_CANCEL, Outcome::Cancelled), CUT_SHORT);
}

/// Ends the wait `ticket` because its deadline has passed.
pub(crate) fn wake_timed_out(fiber: FiberRef, ticket: Ticket) {
    wake(fiber, fiber.episode.claim(ticket, Outcome::TimedOut), CUT_SHORT);
}

/// Makes `fiber` go on, if `claim` leaves that to the claimant.
pub(crate) fn wake(fiber: FiberRef, claim: Claim, place: Place) {
    match claim {
        Claim::Lost | Claim::Early => {}
        Claim::Thread { counted } => wake_thread(fiber, counted),
        Claim::Ready => {
            bucket::leave(fiber);
            carrier::make_ready(fiber, place);
        }
    }
}

/// Wakes a thread whose wait the caller has ended.
pub(crate) fn wake_thread(thread: FiberRef, counted: bool) {
    if counted {
        census::thread_woken();
    }
    // The header may be another thread's by now, which looks whether its wait was ended.
    bed::of(thread).idle.wake();
}
