//! Parking: how a fiber, or a plain thread, waits.
//!
//! Most waits are for a *key*: [`park`] waits until [`unpark`](crate::wait::lot::unpark) of that key. Where
//! the waker knows the fiber, there is no key: [`park_self`], [`sleep_until`], [`for_claim`] and
//! [`await_signal`]. Each wait is *begun* (`Plan::begin`, after which it can be ended from outside), and
//! then either *given up* or waited for until it has been ended (`wait`).

use std::mem;
use std::time::Duration;

use carefree_ground::{fatal, nap};

use crate::carrier::bucket;
use crate::carrier::carrier::{self, Next};
use crate::carrier::census;
use crate::carrier::clock::{self, NEVER};
use crate::carrier::policy::UNPARKED;
use crate::carrier::switch::{leave, yield_now};
use crate::carrier::wake::wake;
use crate::fiber::bed;
use crate::fiber::current::current;
use crate::fiber::current::without_parking;
use crate::fiber::frames;
use crate::fiber::header::{FiberRef, Kind};
use crate::protocol::episode::{
    BY_CANCEL, BY_COMPLETION, BY_TOKEN, COUNTED, Claim, OF_THREAD, Outcome, Ticket,
};
use crate::protocol::reason::Reason;
use crate::protocol::sync::Ordering;
use crate::wait::limits;
use crate::wait::lot;

/// What ends a wait besides its waker.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    /// When it ends, on [`clock::now`]'s clock; [`NEVER`] for no deadline.
    pub deadline: u64,
    /// Whether cancellation and [`timeout`](crate::timeout()) end it.
    pub cancellable: bool,
}

impl Until {
    /// Until woken or cancelled, or a [`timeout`](crate::timeout()) is over.
    pub const WOKEN: Until = Until { deadline: NEVER, cancellable: true };
    /// Until woken, and not before: for locks.
    pub const WOKEN_ONLY: Until = Until { deadline: NEVER, cancellable: false };
}

/// Parks the calling fiber (or plain thread) until [`unpark`](crate::wait::lot::unpark) of `key`.
///
/// `validate` is asked first, while nothing can unpark `key`: if it says `false` there is nothing to
/// wait for and `park` returns [`Outcome::Invalid`] at once. It must not park, panic or unpark.
///
/// [`Outcome::TimedOut`] says that the deadline has passed or that a [`timeout`](crate::timeout())
/// is over. A function that lets its own caller know of the latter calls
/// [`tell_timed_out`](crate::tell_timed_out).
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
#[inline(always)]
pub fn park_tagged(
    key: usize,
    tag: u32,
    validate: impl FnOnce() -> bool,
    reason: Reason,
    until: Until,
) -> Outcome {
    let me = current();
    let plan = Plan::new(me, reason, until, 0);
    // Without flags, nothing but an unpark ends the wait, and the waiter is a fiber.
    if plan.flags == 0 && plan.deadline == NEVER && !carrier::of(me).must_not_switch(me) {
        return park_held(me, key, tag, validate, &plan);
    }
    park_listed(me, key, tag, validate, &plan)
}

/// [`park_tagged`] where more than an unpark of `key` may end the wait.
#[inline(never)]
fn park_listed(
    me: FiberRef,
    key: usize,
    tag: u32,
    validate: impl FnOnce() -> bool,
    plan: &Plan,
) -> Outcome {
    let Some(ticket) = lot::enter(key, tag, me, validate, || plan.begin(me, key)) else {
        return Outcome::Invalid;
    };
    let outcome = wait(me, ticket, plan);
    bucket::leave(me);
    outcome
}

/// [`park_tagged`] for a fiber whose wait nothing but an unpark of `key` ends.
#[inline(always)]
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
    // SAFETY: `me` is the calling fiber, which may leave its stack now, and `enter_held` has begun its
    // wait.
    unsafe { leave(me, Next::ParkHeld(held)) };
    me.reason.store(Reason::Runs as u8, Ordering::Relaxed);
    bucket::leave(me);
    me.episode.finish()
}

/// Begins to wait for `key`, calls `then`, and waits: an unpark of `key` that comes after the call of
/// `then` wakes the caller. For condition variables, whose mutex `then` unlocks.
///
/// `then` may unpark others; a panic of it aborts the process. If it returns `false`, the wait is given up and the result
/// is [`Outcome::Invalid`].
///
/// # Safety
/// `then` does not park: the caller is in the list of the waiters for `key` by then, and its header has the links for one
/// list.
pub unsafe fn park_after(
    key: usize,
    then: impl FnOnce() -> bool,
    reason: Reason,
    until: Until,
) -> Outcome {
    let me = current();
    let plan = Plan::new(me, reason, until, 0);
    let ticket = lot::enter(key, 0, me, || true, || plan.begin(me, key));
    let ticket = ticket.expect("there is no condition");
    // A panic would leave this frame with the wait under way.
    if !or_abort(then) {
        // An episode cannot hold `Invalid`. Any other outcome does, because this one is not returned.
        let outcome = give_up(me, ticket, Outcome::TimedOut);
        bucket::leave(me);
        if outcome == Outcome::Unparked {
            // An unpark has woken this caller, which does not wait after all. The next waiter gets the unpark.
            lot::unpark(key, 1);
        }
        return Outcome::Invalid;
    }
    let outcome = wait(me, ticket, &plan);
    bucket::leave(me);
    outcome
}

/// The rest of [`park_tagged`], from where the fiber is in the list and about to leave its stack: for models
/// that need not try all interleavings before that.
#[cfg(all(test, loom))]
pub(crate) fn go_on_parking(me: FiberRef, ticket: Ticket) -> Outcome {
    let outcome = wait(me, ticket, &Plan::new(me, Reason::Other, Until::WOKEN_ONLY, 0));
    bucket::leave(me);
    outcome
}

/// Parameters of one wait.
struct Plan {
    reason: Reason,
    /// Flags of its [`Episode`](crate::protocol::episode::Episode).
    flags: u64,
    deadline: u64,
    /// The earliest end of a [`timeout`](crate::timeout) that the caller is within. `deadline` is not later.
    limit: u64,
}

impl Plan {
    #[inline(always)]
    fn new(me: FiberRef, reason: Reason, until: Until, mut flags: u64) -> Plan {
        let mut limit = NEVER;
        if until.cancellable {
            let in_force = limits::of(me);
            flags |= if in_force.shielded { 0 } else { BY_CANCEL };
            limit = in_force.until;
        }
        let deadline = until.deadline.min(limit);
        // A thread's wait without a deadline is counted, because the search for deadlocks needs the number.
        if me.kind.get() == Kind::Thread {
            flags |= OF_THREAD | if deadline == NEVER { COUNTED } else { 0 };
        }
        Plan { reason, flags, deadline, limit }
    }

    /// Begins the wait, which others can end from now on.
    fn begin(&self, me: FiberRef, key: usize) -> Ticket {
        if self.flags & COUNTED != 0 {
            census::thread_waits();
        }
        self.note(me, key);
        me.episode.begin(self.flags)
    }

    /// [`begin`](Self::begin) under the lock of the key's bucket, which stays locked.
    fn begin_held(&self, me: FiberRef, key: usize) {
        self.note(me, key);
        me.episode.begin_held();
    }

    /// To be called by a wait that returns `outcome` to the program: if a [`timeout`](crate::timeout) has cut
    /// it short, notes that the program is told.
    fn tell(&self, outcome: Outcome) {
        if outcome == Outcome::TimedOut && self.limit <= self.deadline {
            limits::tell_timed_out();
        }
    }

    /// Notes in the header what the wait is for.
    fn note(&self, me: FiberRef, key: usize) {
        me.key.store(key, Ordering::Relaxed);
        me.reason.store(self.reason as u8, Ordering::Relaxed);
    }
}

/// Parks the calling fiber or thread until [`unpark`]; returns at once if that came before.
pub(crate) fn park_self(until: Until) -> Outcome {
    let me = current();
    let plan = Plan::new(me, Reason::Park, until, BY_TOKEN);
    let ticket = plan.begin(me, 0);
    if me.token.take() {
        return give_up(me, ticket, Outcome::Unparked);
    }
    let outcome = wait(me, ticket, &plan);
    plan.tell(outcome);
    // Wakers that found no wait have left a token: one of them may have ended this wait after that, and
    // others may have come since. This return answers all of them.
    if outcome == Outcome::Unparked && me.token.peek() {
        me.token.take();
    }
    outcome
}

/// Wakes `fiber` from [`park_self`]; if it is not in there, leaves it a token.
pub(crate) fn unpark(fiber: FiberRef) {
    let mut claim = fiber.episode.claim_by(BY_TOKEN, Outcome::Unparked);
    if claim == Claim::Lost {
        // It may begin to wait just now: then it finds the token, or this finds the wait (see `signal`).
        fiber.token.send();
        claim = fiber.episode.claim_by(BY_TOKEN, Outcome::Unparked);
        if claim == Claim::Lost {
            // It may be in `std::thread::park`, or about to be: see `handle::parker`.
            if let Some(standard) = fiber.header().standard() {
                standard.unpark();
            }
        }
    }
    wake(fiber, claim, UNPARKED);
}

/// Puts the calling fiber (or plain thread) to sleep until `deadline`, on
/// [`clock::now`](carefree_reactor::clock::now)'s clock. Dumps show `reason`.
///
/// [`Outcome::Cancelled`] and, before the deadline, [`Outcome::TimedOut`] say that it was cut short.
pub fn sleep_until(deadline: u64, reason: Reason) -> Outcome {
    let me = current();
    let plan = Plan::new(me, reason, Until { deadline, cancellable: true }, 0);
    let ticket = plan.begin(me, 0);
    let outcome = wait(me, ticket, &plan);
    plan.tell(outcome);
    outcome
}

/// Waits until [`end_claimed`](crate::carrier::wake::end_claimed) is called with what `start` gets. If
/// `start` returns false, nothing will call that, and there is no wait. `start` must not park or panic.
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

/// Waits until an operation is completed. The wait may also end because an errand was run, or by a wake-up for
/// an earlier operation, so the caller checks what has happened. If `over` says so when the wait has begun,
/// this returns at once. The second result says that an [`Outcome::TimedOut`] is that of a
/// [`timeout`](crate::timeout), and not of `until`'s deadline.
#[inline(always)]
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

/// Ends the caller's own wait, which has begun but is not needed, with `outcome`; or with that of another
/// party, if that has ended the wait before.
fn give_up(me: FiberRef, ticket: Ticket, outcome: Outcome) -> Outcome {
    if me.episode.claim(ticket, outcome) == (Claim::Thread { counted: true }) {
        census::thread_woken();
    }
    finish(me)
}

/// Ends a wait that can be cut short. Returns what ended it.
#[inline(always)]
fn finish(me: FiberRef) -> Outcome {
    let outcome = me.episode.finish();
    if outcome == Outcome::Cancelled {
        // For a call that a signal has interrupted: it is begun again or not by what it has waited for.
        me.cut.store(me.reason.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    me.reason.store(Reason::Runs as u8, Ordering::Relaxed);
    outcome
}

/// The common part of all waits but [`park_held`]: suspends the caller, whose wait has begun, until it has
/// ended.
///
/// What most waits do not need is in functions of its own: the frames of a fiber that waits should fit on the
/// page that its thread-local storage is on.
fn wait(me: FiberRef, ticket: Ticket, plan: &Plan) -> Outcome {
    if plan.flags & BY_CANCEL != 0 {
        let cancelled = me.cancel.is_sent();
        if cancelled || (plan.limit != NEVER && plan.limit <= clock::now()) {
            return interrupted_before(me, ticket, cancelled);
        }
    }
    match me.kind.get() {
        Kind::Fiber if plan.deadline == NEVER => suspend(me, ticket, NEVER),
        Kind::Fiber => suspend_until(me, ticket, plan.deadline),
        Kind::Thread => sleep_as_thread(me, ticket, plan.deadline, plan.reason),
    }
    finish(me)
}

/// Gives up a wait that a cancellation, or else a [`timeout`](crate::timeout), had ended before it began.
#[cold]
#[inline(never)]
fn interrupted_before(me: FiberRef, ticket: Ticket, cancelled: bool) -> Outcome {
    let interruption = if cancelled { Outcome::Cancelled } else { Outcome::TimedOut };
    let outcome = give_up(me, ticket, interruption);
    // A fiber that calls this in a loop must not keep all others from running.
    yield_now();
    outcome
}

/// Suspends the calling fiber until its wait has been ended.
#[inline(always)]
fn suspend(me: FiberRef, ticket: Ticket, deadline: u64) {
    if carrier::of(me).must_not_switch(me) {
        stand(me, ticket, deadline);
    } else if !me.episode.is_woken() {
        // SAFETY: `me` is the calling fiber, which may leave its stack now; its wait has begun.
        unsafe { leave(me, Next::Park) };
    }
}

/// [`suspend`] with a timer that ends the wait at `deadline`.
#[inline(never)]
fn suspend_until(me: FiberRef, ticket: Ticket, deadline: u64) {
    let (shard, key) = carrier::of(me).set_timer(deadline, me, ticket);
    suspend(me, ticket, deadline);
    frames::fetch_outer();
    if me.episode.outcome() != Outcome::TimedOut {
        without_parking(|| {
            // SAFETY: a shard is part of a carrier of the fiber's runtime, which lives as long as its fibers.
            unsafe { (*shard).remove(key) };
        });
    }
}

/// [`wait`] for a plain thread: sleeps until the wait has been ended.
fn sleep_as_thread(me: FiberRef, ticket: Ticket, deadline: u64, reason: Reason) {
    let idle = &bed::of(me).idle;
    // Threads in place of fibers do not look for deadlocks: there may be ten thousand.
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

/// Time between two looks of a fiber that must not leave its stack.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// Waits by blocking the carrier, for a fiber that must not leave its stack: see
/// [`Carrier::must_not_switch`](crate::carrier::carrier::Carrier::must_not_switch).
#[cold]
fn stand(me: FiberRef, ticket: Ticket, deadline: u64) {
    while !me.episode.is_woken() {
        nap::sleep(LOOK_AGAIN);
        if deadline != NEVER && clock::now() >= deadline {
            me.episode.claim(ticket, Outcome::TimedOut);
        }
    }
}

/// Runs `f` for a caller from whose frame other fibers or threads borrow, so that no panic may leave it:
/// a panic of `f` aborts the process.
pub(crate) fn or_abort<R>(f: impl FnOnce() -> R) -> R {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            fatal::abort(format_args!("panicked while others still borrow from this stack frame"));
        }
    }
    let bomb = Bomb;
    let result = f();
    mem::forget(bomb);
    result
}
