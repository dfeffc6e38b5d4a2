//! Waiting for System V's queues and semaphores, in the order of arrival.
//!
//! The kernel serves the longest waiter that what has come is right for: of two that wait for a message, the second one
//! gets it only if the first one wants another type. They are no files that a fiber could wait for, so fibers ask by
//! calls that do not wait; and if each asked when it runs, one that came later could be served first, and the first one
//! never. So the waiters of all objects of a kind stand in a list, in the order in which they came, and whichever thread
//! may have changed an object asks for all that wait for it, from the first on, and again from there after each that is
//! served ([`serve`](Turns::serve)). Those that want the same as one that was not served are passed over.
//!
//! Other processes may change an object, which nothing tells. So the first waiter for an object does this now and then,
//! after sleeps that grow up to [`LONGEST_SLEEP`].
//!
//! *No change by this process is missed.* A waiter enters the list, is counted, and asks, all under the list's lock. What
//! changes the object calls the kernel, then looks at the count, and asks for the waiters under the lock. The kernel makes
//! both calls on the object one after the other. If the waiter's comes second, it is served. If it comes first, the other
//! thread sees all that was written before it: it sees the count, and then, under the lock, the waiter.
//!
//! *No answer is lost.* An answer is left under the list's lock, which takes the waiter out of the list, and then the
//! waiter is unparked, whose `validate` asks whether it was answered. A waiter whose wait ends otherwise takes the lock,
//! looks for an answer, and leaves the list only if there is none.

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use carefree_ground::lock::Lock;
use carefree_reactor::clock::NEVER;
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Outcome, Reason, clock, lot};

use crate::call::answer::{Answer, check_cut};
use crate::call::host;
use crate::wait::polling::{LONGEST_SLEEP, SHORTEST_SLEEP};

/// The waiters for all objects of one kind.
#[derive(Debug)]
pub(super) struct Turns {
    list: Lock<List>,
    /// How many there are.
    waiting: AtomicUsize,
}

/// What a waiter wants of its object, as far as it can be said: of two that want the same, the second one is not served
/// if the first one was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A message of this type; with the flag that means all others.
    Receive(c_long, c_int),
    /// Room for so many bytes.
    Send(usize),
    /// To change this semaphore by so much.
    Change(u16, i16),
    /// Something else, which no other waiter wants.
    Own,
}

/// A call that does not wait, and answers `None` where one that may wait would.
pub(super) type Attempt<'a> = &'a (dyn Fn() -> Option<Answer> + Sync);

/// A waiter. It does not move while it is in the list.
struct Waiter<'a> {
    object: c_int,
    wish: Wish,
    attempt: Attempt<'a>,
    /// Accessed under the list's lock.
    answer: Cell<Option<Answer>>,
    /// Whether there is an answer, for `validate`, which is called under another lock.
    answered: AtomicBool,
    /// Whether it is the first one for its object. Set under the list's lock, and never cleared.
    first: AtomicBool,
    next: Cell<*const Waiter<'static>>,
    previous: Cell<*const Waiter<'static>>,
}

#[derive(Debug)]
struct List {
    first: *const Waiter<'static>,
    last: *const Waiter<'static>,
}

// SAFETY: waiters in the list live as long as they are in there, and are reached only under the list's lock. Their
// attempts are `Sync`.
unsafe impl Send for List {}

impl Waiter<'_> {
    /// Its place, for the list.
    fn place(&self) -> *const Waiter<'static> {
        ptr::from_ref(self).cast()
    }

    /// What it parks by: its own address, which nothing else parks by.
    fn key(&self) -> usize {
        self.place().addr()
    }
}

impl List {
    const EMPTY: List = List { first: ptr::null(), last: ptr::null() };

    /// The first waiter for `object`, from `place` on.
    fn find(&self, mut place: *const Waiter<'static>, object: c_int) -> Option<&Waiter<'static>> {
        // SAFETY: waiters in the list live, and are accessed under its lock.
        while let Some(waiter) = unsafe { place.as_ref() } {
            if waiter.object == object {
                return Some(waiter);
            }
            place = waiter.next.get();
        }
        None
    }

    fn append(&mut self, waiter: &Waiter<'_>) {
        let is_first = self.find(self.first, waiter.object).is_none();
        waiter.first.store(is_first, Ordering::Relaxed);
        waiter.previous.set(self.last);
        // SAFETY: as in `find`.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.set(waiter.place()),
            None => self.first = waiter.place(),
        }
        self.last = waiter.place();
    }

    /// Takes a waiter out. The next one for its object takes its turn at looking for what others have changed.
    fn remove(&mut self, waiter: &Waiter<'_>) {
        let (next, previous) = (waiter.next.get(), waiter.previous.get());
        // SAFETY: as in `find`.
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.set(next),
                None => self.first = next,
            }
            match next.as_ref() {
                Some(next) => next.previous.set(previous),
                None => self.last = previous,
            }
        }
        if waiter.first.load(Ordering::Relaxed) {
            if let Some(heir) = self.find(next, waiter.object) {
                heir.first.store(true, Ordering::Release);
                lot::unpark(heir.key(), 1);
            }
        }
    }

    /// Asks for all that wait for `object`; returns how many were answered.
    fn serve(&mut self, object: c_int) -> usize {
        let mut answered = 0;
        'anew: loop {
            // The last ones that were not served: more of them are seldom told apart.
            let mut refused = [Wish::Own; 4];
            let mut count = 0;
            let mut place = self.first;
            while let Some(waiter) = self.find(place, object) {
                place = waiter.next.get();
                if waiter.wish != Wish::Own && refused.contains(&waiter.wish) {
                    continue;
                }
                let Some(answer) = (waiter.attempt)() else {
                    refused[count % refused.len()] = waiter.wish;
                    count += 1;
                    continue;
                };
                let waiter = waiter.place();
                // SAFETY: it is in the list, so it lives; its fiber takes the lock before it goes on.
                unsafe {
                    self.remove(&*waiter);
                    (*waiter).answer.set(Some(answer));
                    (*waiter).answered.store(true, Ordering::Release);
                }
                lot::unpark(waiter.addr(), 1);
                answered += 1;
                // What this one has taken, or given, may be right for one before it.
                continue 'anew;
            }
            return answered;
        }
    }
}

impl Turns {
    pub(super) const fn new() -> Turns {
        Turns { list: Lock::new(List::EMPTY), waiting: AtomicUsize::new(0) }
    }

    /// To be called by what may have changed `object`: asks for all that wait for it.
    #[inline]
    pub(super) fn serve(&self, object: c_int) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            let answered = self.list.lock().serve(object);
            self.waiting.fetch_sub(answered, Ordering::AcqRel);
        }
    }

    /// Waits until `attempt` answers, for a call that may be [steady](host::can_be_cut).
    ///
    /// # Errors
    /// Those of `attempt`; what says that the fiber was interrupted; `EAGAIN` when `deadline` has passed.
    pub(super) fn wait(
        &self,
        steady: bool,
        deadline: u64,
        (object, wish): (c_int, Wish),
        attempt: Attempt<'_>,
    ) -> Answer {
        let waiter = Waiter {
            object,
            wish,
            attempt,
            answer: Cell::new(None),
            answered: AtomicBool::new(false),
            first: AtomicBool::new(false),
            next: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
        };
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.list.lock().append(&waiter);
        self.serve(object);
        let mut span = SHORTEST_SLEEP;
        let given_up = loop {
            let first = waiter.first.load(Ordering::Acquire);
            let wakes = if first { clock::now() + span } else { NEVER };
            let cancellable = host::can_be_cut(steady);
            let until = Until { deadline: wakes.min(deadline), cancellable };
            let waits = || {
                !waiter.answered.load(Ordering::Acquire)
                    && waiter.first.load(Ordering::Acquire) == first
            };
            let outcome = wait::park(waiter.key(), waits, Reason::Ipc, until);
            if waiter.answered.load(Ordering::Acquire) {
                break Ok(());
            }
            if let Err(errno) = check_cut(outcome, steady) {
                break Err(errno);
            }
            if outcome == Outcome::TimedOut {
                self.serve(object);
                if deadline != NEVER && clock::now() >= deadline {
                    break Err(libc::EAGAIN);
                }
                span = (span * 2).min(LONGEST_SLEEP);
            }
        };
        let mut list = self.list.lock();
        match (waiter.answer.get(), given_up) {
            (Some(answer), _) => answer,
            (None, given_up) => {
                list.remove(&waiter);
                self.waiting.fetch_sub(1, Ordering::AcqRel);
                Err(given_up.err().unwrap_or(libc::EAGAIN))
            }
        }
    }

    /// In the child of a fork, where nothing waits.
    ///
    /// # Safety
    /// There is one thread, and it is not in here.
    pub(super) unsafe fn renew(&self) {
        // SAFETY: as this function demands.
        unsafe { self.list.renew(List::EMPTY) };
        self.waiting.store(0, Ordering::Relaxed);
    }
}
