//! Waiting and waking: the one way a fiber stops running without ending, and the one way it goes on.
//!
//! Everything that waits is built on [`park`] and [`unpark`](crate::wait::lot::unpark), or on the two
//! waits that need no key because the waker knows the fiber: `park_self` and `sleep_until`.

use std::mem;
use std::time::Duration;

use carefree_ground::nap;

use crate::carrier::bucket;
use crate::carrier::carrier::{self, Next, yield_now};
use crate::carrier::census;
use crate::carrier::clock::{self, NEVER};
use crate::carrier::policy::UNPARKED;
use crate::carrier::wake::wake;
use crate::fiber::bed;
use crate::fiber::current::current;
use crate::fiber::current::without_parking;
use crate::fiber::header::{FiberRef, Kind};
use crate::protocol::episode::{
    BY_CANCEL, BY_COMPLETION, BY_TOKEN, COUNTED, Claim, OF_THREAD, Outcome, Ticket,
};
use crate::protocol::reason::Reason;
use crate::protocol::sync::Ordering;
use crate::wait::limits;
use crate::wait::lot;

/// When a wait ends if the waiter is not woken.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    /// The time, on [`clock::now`]'s clock; [`NEVER`] for no end.
    pub deadline: u64,
    /// Whether cancellation and [`timeout`](crate::timeout()) end it too.
    pub cancellable: bool,
}

impl Until {
    /// Until woken, cancelled or timed out from outside.
    pub const WOKEN: Until = Until { deadline: NEVER, cancellable: true };
    /// Until woken, whatever happens: for locks.
    pub const WOKEN_ONLY: Until = Until { deadline: NEVER, cancellable: false };
}

/// Parks the calling fiber (or plain thread) until [`unpark`](crate::wait::lot::unpark) of `key`.
///
/// `validate` is asked first, while nothing can unpark `key`: if it says `false` there is nothing to
/// wait for and `park` returns [`Outcome::Invalid`] at once. It must not park, panic or unpark.
///
/// [`Outcome::TimedOut`] says that the deadline has passed or that a [`timeout`](crate::timeout())
/// has ended. A caller that returns the latter to its own caller [tells](crate::tell_timed_out) so.
///
/// ```
/// use carefree_runtime::{Outcome, Reason, wait::{Until, park}};
///
/// static DOOR: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);
/// let open = || DOOR.load(std::sync::atomic::Ordering::Relaxed);
/// let key = (&raw const DOOR) as usize;
/// assert_eq!(park(key, || !open(), Reason::Other, Until::WOKEN), Outcome::Invalid);
/// ```
pub fn park(key: usize, validate: impl FnOnce() -> bool, reason: Reason, until: Until) -> Outcome {
    park_tagged(key, 0, validate, reason, until)
}

/// [`park`] with a tag that [`unpark_matching`](crate::wait::lot::unpark_matching) looks at.
pub fn park_tagged(
    key: usize,
    tag: u32,
    validate: impl FnOnce() -> bool,
    reason: Reason,
    until: Until,
) -> Outcome {
    let me = current();
    let plan = Plan::new(me, reason, until, 0);
    // (A thread that waits has flags.)
    if plan.flags == 0 && plan.deadline == NEVER && !carrier::of(me).must_not_switch() {
        return park_held(me, key, tag, validate, &plan);
    }
    let Some(ticket) = lot::enter(key, tag, me, validate, || plan.begin(me, key)) else {
        return Outcome::Invalid;
    };
    let outcome = wait(me, ticket, &plan);
    bucket::leave(me);
    outcome
}

/// Parks a fiber until it is unparked, whatever else happens.
#[inline]
fn park_held(
    me: FiberRef,
    key: usize,
    tag: u32,
    validate: impl FnOnce() -> bool,
    plan: &Plan,
) -> Outcome {
    let Some(held) = lot::enter_held(key, tag, me, validate, || plan.begin_held(me, key)) else {
        return Outcome::Invalid;
    };
    // SAFETY: `me` is the caller, running on its carrier, and its wait has begun.
    unsafe { carrier::leave(me, Next::ParkHeld(held)) };
    me.reason.store(Reason::Runs as u8, Ordering::Relaxed);
    bucket::leave(me);
    me.episode.finish()
}

/// Begins to wait for `key`, then calls `then`, then waits: an unpark of `key` from the moment
/// `then` is called wakes the caller. For condition variables, whose mutex is unlocked in between.
///
/// `then` may unpark others, but must not park or panic. If it says `false`, the wait is given up
/// and the result is [`Outcome::Invalid`].
pub fn park_after(
    key: usize,
    then: impl FnOnce() -> bool,
    reason: Reason,
    until: Until,
) -> Outcome {
    let me = current();
    let plan = Plan::new(me, reason, until, 0);
    let ticket = lot::enter(key, 0, me, || true, || plan.begin(me, key));
    let ticket = ticket.expect("there is no condition");
    if !then() {
        // `Invalid` cannot be noted in the episode, and nothing else ends a wait that way.
        let outcome = give_up(me, ticket, Outcome::TimedOut);
        bucket::leave(me);
        if outcome == Outcome::Unparked {
            // It was meant for one that waits.
            lot::unpark(key, 1);
        }
        return Outcome::Invalid;
    }
    let outcome = wait(me, ticket, &plan);
    bucket::leave(me);
    outcome
}

/// [`park_tagged`] from where the fiber is in the list and about to leave its stack. With this a model need
/// not try all ways to come there.
#[cfg(all(test, loom))]
pub(crate) fn go_on_parking(me: FiberRef, ticket: Ticket) -> Outcome {
    let outcome = wait(me, ticket, &Plan::new(me, Reason::Other, Until::WOKEN_ONLY, 0));
    bucket::leave(me);
    outcome
}

/// How a wait is to be.
struct Plan {
    reason: Reason,
    /// What may end it, and other flags of [`crate::protocol::episode`].
    flags: u64,
    deadline: u64,
    /// When a [`timeout`](crate::timeout) cuts it short; no earlier than `deadline`.
    limit: u64,
}

impl Plan {
    fn new(me: FiberRef, reason: Reason, until: Until, mut flags: u64) -> Plan {
        let mut limit = NEVER;
        if until.cancellable {
            // A shielded fiber is not disturbed while it waits.
            if let Some(at) = limits::of(me) {
                flags |= BY_CANCEL;
                limit = at;
            }
        }
        let deadline = until.deadline.min(limit);
        if me.kind.get() == Kind::Thread {
            flags |= OF_THREAD | if deadline == NEVER { COUNTED } else { 0 };
        }
        Plan { reason, flags, deadline, limit }
    }

    fn begin(&self, me: FiberRef, key: usize) -> Ticket {
        if self.flags & COUNTED != 0 {
            census::thread_waits();
        }
        self.note(me, key);
        me.episode.begin(self.flags)
    }

    /// [`begin`](Self::begin) under the lock of the key's bucket, which is kept.
    fn begin_held(&self, me: FiberRef, key: usize) {
        self.note(me, key);
        me.episode.begin_held();
    }

    /// Takes note of a limit that has cut a wait short whose caller is told so by `outcome`.
    fn tell(&self, outcome: Outcome) {
        if outcome == Outcome::TimedOut && self.limit <= self.deadline {
            limits::tell_timed_out();
        }
    }

    fn note(&self, me: FiberRef, key: usize) {
        me.key.store(key, Ordering::Relaxed);
        me.reason.store(self.reason as u8, Ordering::Relaxed);
    }
}

/// Parks the calling fiber (or thread) until its handle's `unpark`, or returns at once if that came
/// before.
pub(crate) fn park_self(until: Until) -> Outcome {
    let me = current();
    let plan = Plan::new(me, Reason::Park, until, BY_TOKEN);
    let ticket = plan.begin(me, 0);
    if me.token.take() {
        return give_up(me, ticket, Outcome::Unparked);
    }
    let outcome = wait(me, ticket, &plan);
    plan.tell(outcome);
    // A waker that came while the wait began has left a token before ending it, and so has one that came
    // too: this return is theirs as well.
    if outcome == Outcome::Unparked && me.token.peek() {
        me.token.take();
    }
    outcome
}

/// Wakes `fiber` from [`park_self`], or leaves it a token.
pub(crate) fn unpark(fiber: FiberRef) {
    let mut claim = fiber.episode.claim_by(BY_TOKEN, Outcome::Unparked);
    if claim == Claim::Lost {
        // It does not wait; or began to just now, and then one of us finds the other.
        fiber.token.send();
        claim = fiber.episode.claim_by(BY_TOKEN, Outcome::Unparked);
        if claim == Claim::Lost {
            // Perhaps it is parked by std, or is about to be: see `parker::about_to_park`.
            if let Some(standard) = fiber.header().standard() {
                standard.unpark();
            }
        }
    }
    wake(fiber, claim, UNPARKED);
}

/// Puts the calling fiber (or plain thread) to sleep until `deadline`, on
/// [`clock::now`](carefree_reactor::clock::now)'s clock; `reason` is what dumps show.
///
/// [`Outcome::Cancelled`] or, before the deadline, [`Outcome::TimedOut`] say that it was cut short.
pub fn sleep_until(deadline: u64, reason: Reason) -> Outcome {
    let me = current();
    let plan = Plan::new(me, reason, Until { deadline, cancellable: true }, 0);
    let ticket = plan.begin(me, 0);
    let outcome = wait(me, ticket, &plan);
    plan.tell(outcome);
    outcome
}

/// Waits until [`end_claimed`] with the ticket that `start` is given. If `start` says that nothing
/// will, there is no wait. It must not park or panic.
pub(crate) fn for_claim(reason: Reason, start: impl FnOnce(FiberRef, Ticket) -> bool) {
    let me = current();
    let plan = Plan::new(me, reason, Until::WOKEN_ONLY, 0);
    let ticket = plan.begin(me, 0);
    if start(me, ticket) {
        wait(me, ticket, &plan);
    } else {
        give_up(me, ticket, Outcome::Unparked);
    }
}

/// Waits for the completion of an operation of the kernel's, or returns at once if `over` says so
/// when the wait has begun. Also returns whether a [`timeout`](crate::timeout) would cut it short first.
pub(crate) fn await_signal(
    me: FiberRef,
    over: impl FnOnce() -> bool,
    reason: Reason,
    until: Until,
) -> (Outcome, bool) {
    let plan = Plan::new(me, reason, until, BY_COMPLETION);
    let ticket = plan.begin(me, 0);
    let outcome =
        if over() { give_up(me, ticket, Outcome::Unparked) } else { wait(me, ticket, &plan) };
    (outcome, plan.limit <= plan.deadline)
}

/// A wait has begun, but there is no need for it: ends it with `outcome`, unless another party
/// was faster.
fn give_up(me: FiberRef, ticket: Ticket, outcome: Outcome) -> Outcome {
    if me.episode.claim(ticket, outcome) == (Claim::Thread { counted: true }) {
        census::thread_woken();
    }
    me.reason.store(Reason::Runs as u8, Ordering::Relaxed);
    me.episode.finish()
}

/// The part all waits share: from a wait that has begun to its end.
fn wait(me: FiberRef, ticket: Ticket, plan: &Plan) -> Outcome {
    let &Plan { reason, flags, deadline, limit } = plan;
    if flags & BY_CANCEL != 0 {
        let cancelled = me.cancel.is_sent();
        if cancelled || (limit != NEVER && limit <= clock::now()) {
            let interruption = if cancelled { Outcome::Cancelled } else { Outcome::TimedOut };
            let outcome = give_up(me, ticket, interruption);
            // A loop around a wait that is over at once must not keep all others from running.
            yield_now();
            return outcome;
        }
    }
    match me.kind.get() {
        Kind::Fiber => {
            let carrier = carrier::of(me);
            let timer = (deadline != NEVER).then(|| carrier.set_timer(deadline, me, ticket));
            if carrier.must_not_switch() {
                stand(me, ticket, deadline);
            } else if !me.episode.is_woken() {
                // SAFETY: `me` is the caller, running on its carrier, and its wait has begun.
                unsafe { carrier::leave(me, Next::Park) };
            }
            if let Some((shard, key)) = timer {
                if me.episode.outcome() != Outcome::TimedOut {
                    without_parking(|| {
                        // SAFETY: a shard lives as long as its runtime, and that as long as its
                        // fibers.
                        unsafe { (*shard).remove(key) };
                    });
                }
            }
        }
        Kind::Thread => sleep_as_thread(me, ticket, deadline, reason),
    }
    me.reason.store(Reason::Runs as u8, Ordering::Relaxed);
    me.episode.finish()
}

/// A plain thread sleeps until its wait is ended.
fn sleep_as_thread(me: FiberRef, ticket: Ticket, deadline: u64, reason: Reason) {
    let idle = &bed::of(me).idle;
    // Where threads stand for fibers, the others look: they may be ten thousand.
    let looks = deadline == NEVER && reason.is_for_fibers() && !bed::is_spawned(me);
    let mut seen = looks.then(census::Seen::default);
    while !me.episode.is_woken() {
        match &mut seen {
            Some(seen) => {
                let look = clock::after(census::LOOK);
                idle.wait(Some(look));
                if clock::now() >= look && !me.episode.is_woken() {
                    census::look(seen);
                }
            }
            None if deadline == NEVER => {
                idle.wait(None);
            }
            None => {
                idle.wait(Some(deadline));
                if clock::now() >= deadline {
                    me.episode.claim(ticket, Outcome::TimedOut);
                }
            }
        }
    }
}

/// How long a fiber that must not leave its stack sleeps before it looks again.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// Waits without leaving the stack, for a fiber that must not (see
/// [`Carrier::must_not_switch`](crate::carrier::carrier::Carrier::must_not_switch)).
#[cold]
fn stand(me: FiberRef, ticket: Ticket, deadline: u64) {
    while !me.episode.is_woken() {
        nap::sleep(LOOK_AGAIN);
        if deadline != NEVER && clock::now() >= deadline {
            me.episode.claim(ticket, Outcome::TimedOut);
        }
    }
}

/// Runs `f` for a caller whose frame fibers borrow from: that frame must not be left by a panic,
/// and so none gets past here.
pub(crate) fn or_abort<R>(f: impl FnOnce() -> R) -> R {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            eprintln!("carefree: a wait failed that fibers borrow from the caller of; aborting");
            std::process::abort();
        }
    }
    let bomb = Bomb;
    let result = f();
    mem::forget(bomb);
    result
}
