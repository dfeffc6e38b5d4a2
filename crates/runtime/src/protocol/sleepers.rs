//! Which carriers look for work and which are down, without a lost wake-up.
//!
//! A carrier is *running* a fiber, *searching* for one, *dozing* or *asleep*. One that dozes looks again
//! by itself after [`DOZE`](crate::carrier::policy::DOZE) at most; one that is asleep must be woken.
//! Carriers doze first: what makes fibers ready need not wake a dozing carrier for each of them, but
//! only when fibers wait for so long that another carrier is worth its wake-up (a *backlog*); and
//! going to doze needs no fence that interrupts the carriers that run.
//!
//! What queues a fiber calls [`notify`](Sleepers::notify). It wakes a carrier that is asleep, or, given
//! a backlog, one that dozes, unless a carrier searches. More than one searcher would only fight over
//! the same fiber, so each searcher that finds one and was the last hands on ([`found`](Sleepers::found)):
//! wake-ups spread as long as there is work.
//!
//! # Proof that no fiber waits while all carriers sleep
//!
//! Producer, a carrier that runs: `queue; light; read the counts`.
//! Carrier that found nothing: `asleep += 1; searching -= 1; heavy; look everywhere again`. (The last one to lie down
//! makes a plain fence, see below.)
//!
//! Let P queue fiber F, and let every carrier be asleep afterwards. Consider each carrier C at its last
//! transition to sleep, and order its heavy fence with P's light fence (they order as `SeqCst` fences
//! do).
//!
//! 1. C's fence first: P sees C asleep, or that it was woken since. If P also sees that none searches
//!    and none dozes, it wakes a sleeper. If it sees a searcher or a dozing carrier S, then S had not
//!    yet gone to sleep for the last time, so for S case 2 holds; or S found other work, and,
//!    being the last searcher, handed on after P's push, for it saw P running.
//! 2. P's fence first: C's second look comes after its fence and sees F in its queue. C does not
//!    sleep.
//!
//! A carrier that dozes when P looks covers F: within its doze it looks at P's queue, and goes to sleep
//! only after a heavy fence and another look. In between it leaves F alone as long as P's carrier goes
//! on from fiber to fiber, for then F's turn comes there. So where a carrier dozes, the others may
//! go to sleep though they see F. A carrier that looks whether another dozes searches itself, so of
//! two that look each other up none takes the other for dozing; and one that dozed and found
//! other work hands on, as above.
//!
//! What is queued by a thread that is no carrier, or for one carrier only, goes by
//! [`notify_fenced`](Sleepers::notify_fenced) and [`claim_one`](Sleepers::claim_one). There both sides
//! have a full fence between what they write and what they read, also a carrier that goes to doze; so
//! the proof holds for all that are down, with "down" for "asleep".
//!
//! A woken carrier counts as searching from before its bit is cleared in the set of those that are down,
//! by whichever side clears it, the waker or the carrier itself; so between a wake-up's decision and
//! the carrier's return others see a searcher and do not wake more. Exactly one party clears the bit. A
//! waker that finds it cleared has counted in vain, and for that moment was a searcher S of case 1 that
//! searches for nothing; it makes up for it as S does, by looking for another to wake, even if it came
//! for that one carrier only.
//!
//! # The last one to lie down
//!
//! In a server at a moderate rate one carrier wakes and lies down for each request, and a heavy fence would cost it as
//! much as the request does. Where all others are down, C does without. It makes and reads, all sequentially
//! consistent: `asleep += 1; searching -= 1; a = active; d = down; b = active`, and finds `a == b` and `d` no less. As
//! `active` also counts those that joined, the same carriers were active at both reads, and as only these are down, each
//! counted once, all of them were down at the read between. Let carrier P queue a fiber afterwards.
//!
//! 1. P was active then. Before it runs a fiber it takes its count out of `down`: after C's read of that, and so after
//!    C's own change of the word. What P reads there later is no older than what it wrote, so it sees C asleep, or
//!    woken since. Its search ends after that, too, by a change of `searching`: so it does not see C search.
//! 2. P joined after C's second read of `active`. There is a full fence between that and the first fiber that it
//!    runs, so it sees all that C wrote before.
//!
//! What P had queued before it lay down, or was in reserve, C sees when it looks again: it has read what P changed then.
//!
//! # Carriers in reserve
//!
//! A searching carrier can [retire](Sleepers::retire), and be [recalled](Sleepers::recall). In reserve it
//! is none of the above: `active` counts the others. It retires as a search ends that has found
//! something: the last searcher hands on. So what was left to it is seen to by another that is down; and
//! if none is down, all that are active run.
//!
//! # Carriers that are kept
//!
//! Where a fiber waits in a call that is not seen, its carrier counts as one that runs, for as long as that takes.
//! To the others it would seem that it may always have left something to the search that ends, and each search
//! would wake another carrier in vain. So where none runs but such carriers, the last searcher S makes a heavy
//! fence instead, after it has ended its search by `searching -= 1`, and looks at all queues. Order that fence with
//! the light one of P, which may have gone on and queued a fiber. If P's comes first, S sees the fiber in P's queue
//! and hands on. If S's comes first, P sees no search. How many are kept is an estimate that decides only which way
//! is cheaper.
//!
//! # Counts
//!
//! A carrier is counted as down from before its bit is set until it is up again, and as searching until the
//! bit is set and from before it is cleared. So a carrier on its way is counted twice, never not at
//! all, and a last searcher that sees all others down is right about it. The carrier itself takes back
//! its count as down. A waker would do so some time after it has cleared the bit, and a carrier that
//! got up by itself meanwhile would leave what it queues to one that dozes: itself.

use std::ops::{ControlFlow, Deref};

use crate::protocol::set::Set;
use crate::protocol::sync::{AtomicU32, AtomicU64, Ordering, fence, heavy, light};

/// One that dozes, and one that is asleep, in the word of those that are down.
const DOZING: u64 = 1;
const ASLEEP: u64 = 1 << 32;

/// One that becomes active, in the word of those that are.
const JOINED: u64 = 1 << 32 | 1;

/// How many carriers are down.
#[derive(Clone, Copy)]
struct Down(u64);

impl Down {
    fn dozing(self) -> u64 {
        self.0 & 0xffff_ffff
    }

    fn asleep(self) -> u64 {
        self.0 >> 32
    }

    fn all(self) -> u64 {
        self.dozing() + self.asleep()
    }
}

/// Carriers that fibers keep.
pub(crate) struct Kept<F> {
    /// How many: an estimate.
    pub(crate) about: u32,
    /// Whether fibers wait at carriers other than the caller.
    pub(crate) left_something: F,
}

#[cfg(all(test, loom))]
impl Kept<fn() -> bool> {
    pub(crate) const NONE: Self = Kept { about: 0, left_something: || false };
}

/// A carrier's time down, which [`wake_up`](Sleepers::wake_up) ends.
#[derive(Debug)]
#[must_use]
pub(crate) struct Rest {
    carrier: usize,
    /// [`DOZING`] or [`ASLEEP`].
    counted: u64,
    /// Whether it lay down last, so that its fence interrupted no other.
    #[cfg_attr(not(all(test, loom)), expect(dead_code, reason = "for a model"))]
    is_last: bool,
}

/// What has a line of memory for itself: other parts are read much more often than it is written, or the other
/// way round.
#[derive(Debug)]
#[repr(align(64))]
struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[derive(Debug)]
pub(crate) struct Sleepers {
    /// Carriers that are not in reserve; in the upper half, how often one has joined them.
    active: Apart<AtomicU64>,
    searching: Apart<AtomicU32>,
    down: Apart<AtomicU64>,
    dozing: Set,
    asleep: Set,
    reserve: Set,
}

impl Sleepers {
    /// Of so many carriers none is down, and so many search.
    pub(crate) fn new(active: u32, searching: u32) -> Self {
        Sleepers {
            active: Apart(AtomicU64::new(active.into())),
            searching: Apart(AtomicU32::new(searching)),
            down: Apart(AtomicU64::new(0)),
            dozing: Set::new(),
            asleep: Set::new(),
            reserve: Set::new(),
        }
    }

    /// Carriers that are not in reserve.
    pub(crate) fn active(&self) -> u32 {
        self.active.load(Ordering::SeqCst) as u32
    }

    /// To be called by a carrier that was added, before it runs the first fiber. (While its thread begins it does
    /// not count: the others would retire, and what it has to wait for then may be a fiber that they have
    /// queued.)
    pub(crate) fn set_out(&self) {
        self.active.fetch_add(JOINED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// A searching carrier goes into reserve if more than `most` are active. Returns whether it did, and
    /// a carrier to wake, if any, as [`found`](Self::found) does. In reserve it does nothing until it is
    /// [recalled](Self::recall), after which it searches.
    pub(crate) fn retire(
        &self,
        carrier: usize,
        most: u32,
        kept: Kept<impl FnOnce() -> bool>,
        more: impl FnOnce() -> bool,
    ) -> (bool, Option<usize>) {
        let less = |active: u64| (active as u32 > most).then(|| active - 1);
        if self.active.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
            return (false, None);
        }
        let sleeper = self.ended_search(0, kept, more);
        self.reserve.insert(carrier);
        fence(Ordering::SeqCst);
        (true, sleeper)
    }

    /// Turns a carrier in reserve, or another in its place, into one that searches; the caller must wake it.
    pub(crate) fn recall(&self) -> Option<usize> {
        while let Some(carrier) = self.reserve.first() {
            // Counted before it can see that it was recalled, and go on.
            self.active.fetch_add(JOINED, Ordering::SeqCst);
            self.searching.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.reserve.remove(carrier) {
                return Some(carrier);
            }
            // It was discharged: the runtime ends. What was left to this search meanwhile is for another carrier.
            self.active.fetch_sub(1, Ordering::SeqCst);
            if self.searching.fetch_sub(1, Ordering::SeqCst) == 1 {
                return self.claim();
            }
        }
        None
    }

    /// Whether a carrier is in reserve.
    pub(crate) fn is_in_reserve(&self, carrier: usize) -> bool {
        self.reserve.contains(carrier)
    }

    /// Takes a carrier out of the reserve for good. False: it was recalled.
    pub(crate) fn discharge(&self, carrier: usize) -> bool {
        self.reserve.remove(carrier)
    }

    fn down(&self) -> Down {
        Down(self.down.load(Ordering::SeqCst))
    }

    /// To be called after a carrier that runs has queued a fiber; `backlog` says whether fibers wait
    /// there for long. Returns the carrier that the caller must wake, if any.
    #[inline(always)]
    #[must_use]
    pub(crate) fn notify(&self, backlog: impl FnOnce() -> bool) -> Option<usize> {
        light();
        self.notify_without_fence(backlog)
    }

    #[inline(always)]
    fn notify_without_fence(&self, backlog: impl FnOnce() -> bool) -> Option<usize> {
        let down = Down(self.down.load(Ordering::Relaxed));
        if down.0 == 0 { None } else { self.notify_slow(down, backlog) }
    }

    #[inline(never)]
    fn notify_slow(&self, down: Down, backlog: impl FnOnce() -> bool) -> Option<usize> {
        let backlog = backlog();
        if (backlog || down.dozing() == 0) && self.searching.load(Ordering::Relaxed) == 0 {
            self.claim()
        } else {
            None
        }
    }

    /// To be called after a fiber was put where all carriers look that are about to go down. Returns the
    /// carrier that the caller must wake, if any.
    #[must_use]
    pub(crate) fn notify_fenced(&self) -> Option<usize> {
        fence(Ordering::SeqCst);
        if self.searching.load(Ordering::SeqCst) == 0 { self.claim() } else { None }
    }

    /// Turns some carrier that is down into a searcher; the caller must wake it.
    pub(crate) fn claim(&self) -> Option<usize> {
        loop {
            // Those that doze were up last.
            let sets = [&self.dozing, &self.asleep];
            let (set, carrier) = sets.into_iter().find_map(|set| Some((set, set.first()?)))?;
            if let ControlFlow::Break(claimed) = self.claim_from(set, carrier) {
                return claimed;
            }
        }
    }

    /// Turns a given carrier into a searcher if it is down. Returns the carrier that the caller must wake, if
    /// any: that one, or another one in its place.
    #[must_use]
    pub(crate) fn claim_one(&self, carrier: usize) -> Option<usize> {
        fence(Ordering::SeqCst);
        let sets = [&self.dozing, &self.asleep];
        let set = sets.into_iter().find(|set| set.contains(carrier))?;
        match self.claim_from(set, carrier) {
            ControlFlow::Break(claimed) => claimed,
            ControlFlow::Continue(()) => self.claim(),
        }
    }

    /// Tries to turn a carrier into a searcher. To go on means that it woke by itself, and that the caller has
    /// to look for another one.
    fn claim_from(&self, set: &Set, carrier: usize) -> ControlFlow<Option<usize>> {
        // Counted before the bit is cleared: otherwise a thread could see, in between, neither a searcher nor a
        // carrier that is down where there is one.
        self.searching.fetch_add(1, Ordering::SeqCst);
        if set.remove(carrier) {
            return ControlFlow::Break(Some(carrier));
        }
        // A thread that has pushed meanwhile may have taken this attempt for a search and left those that are
        // down, that one perhaps among them again, to it. So it ends as a search does: the last one hands on.
        if self.searching.fetch_sub(1, Ordering::SeqCst) == 1 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(None)
        }
    }

    /// A running carrier starts to search.
    pub(crate) fn search(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// A searching carrier has found a fiber and runs it; `more` says whether something waits that any
    /// carrier could take. Returns a carrier to wake, if any: the last searcher hands the search on.
    #[must_use]
    pub(crate) fn found(
        &self,
        kept: Kept<impl FnOnce() -> bool>,
        more: impl FnOnce() -> bool,
    ) -> Option<usize> {
        self.ended_search(1, kept, more)
    }

    /// A search has ended; of the active carriers so many are the caller.
    fn ended_search(
        &self,
        caller: u32,
        kept: Kept<impl FnOnce() -> bool>,
        more: impl FnOnce() -> bool,
    ) -> Option<usize> {
        if self.searching.fetch_sub(1, Ordering::SeqCst) != 1 {
            return None;
        }
        let down = self.down();
        let others = u64::from(self.active()).saturating_sub(down.all() + u64::from(caller));
        fence(Ordering::SeqCst);
        // A carrier that ran meanwhile may have queued a fiber, and left it to this search.
        let may_be_left = || match others {
            0 => false,
            // See "Carriers that are kept".
            _ if others <= kept.about.into() => {
                down.asleep() != 0 && {
                    heavy();
                    (kept.left_something)()
                }
            }
            _ => true,
        };
        if down.dozing() == 0 && may_be_left() || more() { self.claim() } else { None }
    }

    /// Whether a carrier searches.
    pub(crate) fn some_search(&self) -> bool {
        self.searching.load(Ordering::SeqCst) != 0
    }

    /// Whether a carrier runs a fiber or searches, other than the caller, which searches, and `kept` others.
    pub(crate) fn some_other_is_up(&self, kept: u32) -> bool {
        // (One that was claimed counts as down until it is up.)
        self.searching.load(Ordering::SeqCst) > 1
            || self.down().all() + 1 + u64::from(kept) < u64::from(self.active())
    }

    /// Whether a carrier dozes or is asleep, or is on its way.
    pub(crate) fn is_down(&self, carrier: usize) -> bool {
        self.dozing.contains(carrier) || self.asleep.contains(carrier)
    }

    /// How many carriers run a fiber or search, about.
    pub(crate) fn up(&self) -> u32 {
        self.active().saturating_sub(self.down().all() as u32)
    }

    /// Whether some carrier is down.
    pub(crate) fn some_are_down(&self) -> bool {
        self.down().all() != 0
    }

    /// Whether no carrier runs a fiber or searches.
    pub(crate) fn all_are_down(&self) -> bool {
        self.down().all() >= u64::from(self.active()) && !self.some_search()
    }

    /// Whether every carrier is asleep that is not in reserve, and none was claimed.
    pub(crate) fn all_are_asleep(&self) -> bool {
        self.down().asleep() == u64::from(self.active()) && !self.some_search()
    }

    /// A searching carrier has found nothing and is about to doze: it must look once more at what is
    /// announced with a full fence, and then doze no longer than it may. In either case it calls
    /// [`wake_up`](Self::wake_up) afterwards.
    pub(crate) fn doze(&self, carrier: usize) -> Rest {
        self.down.fetch_add(DOZING, Ordering::SeqCst);
        self.dozing.insert(carrier);
        self.searching.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Rest { carrier, counted: DOZING, is_last: false }
    }

    /// A searching carrier has found nothing and is about to sleep: it must look everywhere once
    /// more, and may sleep then. In either case it calls [`wake_up`](Self::wake_up) afterwards.
    pub(crate) fn lie_down(&self, carrier: usize) -> Rest {
        self.down.fetch_add(ASLEEP, Ordering::SeqCst);
        self.asleep.insert(carrier);
        self.searching.fetch_sub(1, Ordering::SeqCst);
        let active = self.active.load(Ordering::SeqCst);
        let all_down = self.down().all() >= u64::from(active as u32);
        let is_last = all_down && self.active.load(Ordering::SeqCst) == active;
        if is_last {
            // See "The last one to lie down".
            fence(Ordering::SeqCst);
        } else {
            heavy();
        }
        Rest { carrier, counted: ASLEEP, is_last }
    }

    /// The carrier is down no more and counts as searching: from now on, or since another thread
    /// decided so (then the result is false).
    pub(crate) fn wake_up(&self, Rest { carrier, counted, .. }: Rest) -> bool {
        let set = if counted == DOZING { &self.dozing } else { &self.asleep };
        self.searching.fetch_add(1, Ordering::SeqCst);
        let by_itself = set.remove(carrier);
        if !by_itself {
            // The waker has counted it.
            self.searching.fetch_sub(1, Ordering::SeqCst);
        }
        self.down.fetch_sub(counted, Ordering::SeqCst);
        by_itself
    }

    /// Whether a carrier is asleep, or is just lying down.
    pub(crate) fn is_sleeping(&self, carrier: usize) -> bool {
        self.asleep.contains(carrier)
    }

    /// Carriers asleep.
    pub(crate) fn sleeping(&self) -> u32 {
        self.down().asleep() as u32
    }

    /// Whether a carrier dozes, or is on its way.
    pub(crate) fn some_doze(&self) -> bool {
        self.down().dozing() != 0
    }
}

#[cfg(all(test, loom))]
mod model;
