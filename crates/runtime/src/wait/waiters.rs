//! The fibers that wait for operations on one thing, a file as a rule, which another fiber may close.
//!
//! The closing fiber ends their waits, and does not go on before the last of them has left. What that
//! costs is the work for those fibers: no other fiber of the process is looked at.
//!
//! # Where they are found
//!
//! A fiber that enters counts itself in `word`. If it is the first in, it is the *lone* one and writes
//! its name down in `lone`, which is all that the common case costs: one reader, parked. A fiber that
//! finds others there enters a list, under a lock, by a record in its own frame (its [`Seat`]).
//!
//! ```text
//!  waiter:  count += 1; was CLOSING: count -= 1, give up    closer:  CLOSING = 1
//!           count was 0: lone = me, else enter the list              wake lone, and all in the list
//!           begin to wait; is it CLOSING? give up                    park until count = 0
//!           …                                                        CLOSING = 0
//!           leave the list, if in it
//!           count -= 1; was CLOSING and count now 0: unpark
//! ```
//!
//! # Proof
//!
//! *There is one lone fiber at most.* To find a count of 0 a fiber must come after the one before has
//! counted back. That one wrote `lone` before, and its decrement is read by the later fiber's increment
//! (all changes of `word` are read-modify-writes, which acquire and release): so the later name is the
//! one that stays.
//!
//! *The closing fiber misses none.* Take a waiter that counted itself before `CLOSING` was set, so that
//! the count is not 0. It looks at `word` once more when its wait has begun, by a read-modify-write.
//! Either that finds `CLOSING`, and the waiter gives up. Or it comes before the closer's own
//! read-modify-write, which acquires what the waiter did until then: it wrote its name, or entered the
//! list, and began to wait. Then the closer finds it and ends that wait, or another has ended it, and
//! the waiter looks again before it waits again.
//!
//! *It waits for none that comes late.* A fiber that counts itself after `CLOSING` was set sees that at
//! once and counts back.
//!
//! *It touches no record of a fiber that has gone on.* The closer takes each record out of the list under
//! the lock, copies the name in it, and never reads the record again. A waiter does not leave its frame
//! before it has had the lock and its record is out of the list.
//!
//! *A name that is not up to date does no harm*: that of a lone fiber that has left while others are
//! still in the list, or one copied from a record whose fiber has left since. Headers are never given
//! back, and of that fiber at most a wait for the completion of another operation is ended; such waits
//! look again (see `operation`).
//!
//! *The bit is cleared before the thing is gone*, so what comes next under the same name begins anew.
//!
//! # Cost
//!
//! Each waiter is taken out of the list once, by itself or by the closer, in constant time.

use std::ptr;

use crate::carrier::carrier::yield_now;
use crate::carrier::wake::wake_completed;
use crate::fiber::current;
use crate::fiber::header::FiberRef;
use crate::protocol::reason::Reason;
use crate::protocol::sync::{AtomicPtr, AtomicU32, Cell, Lock, Ordering, const_fn};
use crate::protocol::work;
use crate::wait::lot;
use crate::wait::park::{self, Until};

/// In [`Waiters::word`]: it is being closed.
const CLOSING: u32 = 1 << 31;

/// Fibers whose waits are ended between two takings of the lock.
const BATCH: usize = 32;

/// The fibers that wait for one thing that may be closed.
#[derive(Debug)]
pub struct Waiters {
    /// How many there are, and [`CLOSING`].
    word: AtomicU32,
    /// The one that came when there was none.
    lone: AtomicPtr<u8>,
    /// The others.
    list: Lock<List>,
}

#[derive(Debug)]
struct List(*const Seat);

// SAFETY: the records in a list live while they are in it, and are reached under its lock only.
unsafe impl Send for List {}

/// Where a fiber that waits stands in the list: a record in its own frame.
#[derive(Debug)]
pub struct Seat {
    /// The fiber's name.
    fiber: Cell<*mut u8>,
    next: Cell<*const Seat>,
    previous: Cell<*const Seat>,
    /// Whether it is in the list. Written under the lock.
    listed: Cell<bool>,
}

/// The place of one that waits.
#[derive(Debug)]
pub struct Waiter<'w> {
    waiters: &'w Waiters,
    /// Its place, unless it is the lone one.
    seat: Option<&'w Seat>,
}

impl Seat {
    const_fn! {
        /// One that is not taken.
        #[inline]
        pub fn new() -> Seat {
            Seat {
                fiber: Cell::new(ptr::null_mut()),
                next: Cell::new(ptr::null()),
                previous: Cell::new(ptr::null()),
                listed: Cell::new(false),
            }
        }
    }
}

#[cfg(all(test, loom))]
impl Seat {
    /// The memory is the fiber's again, and nothing is to look at it.
    pub(crate) fn retire(&self) {
        self.fiber.set(ptr::null_mut());
        self.next.set(ptr::null());
        self.previous.set(ptr::null());
        self.listed.set(false);
    }
}

impl Default for Seat {
    fn default() -> Seat {
        Seat::new()
    }
}

impl List {
    fn push(&mut self, seat: &Seat) {
        seat.next.set(self.0);
        seat.previous.set(ptr::null());
        // SAFETY: a record in the list lives.
        if let Some(first) = unsafe { self.0.as_ref() } {
            first.previous.set(seat);
        }
        seat.listed.set(true);
        self.0 = seat;
    }

    fn remove(&mut self, seat: &Seat) {
        work::step();
        // SAFETY: a record in the list lives.
        let (previous, next) = unsafe { (seat.previous.get().as_ref(), seat.next.get().as_ref()) };
        match previous {
            Some(previous) => previous.next.set(seat.next.get()),
            None => self.0 = seat.next.get(),
        }
        if let Some(next) = next {
            next.previous.set(seat.previous.get());
        }
        seat.listed.set(false);
    }
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters::new()
    }
}

impl Waiters {
    const_fn! {
        /// Without any.
        pub fn new() -> Waiters {
            Waiters {
                word: AtomicU32::new(0),
                lone: AtomicPtr::new(ptr::null_mut()),
                list: Lock::new(List(ptr::null())),
            }
        }
    }

    /// `fiber` is about to wait. If it is `Err`, then not: a closing fiber is at work, and the waiter
    /// has to leave.
    #[inline]
    fn enter_as<'w>(&'w self, fiber: *mut u8, seat: &'w Seat) -> Result<Waiter<'w>, Waiter<'w>> {
        let before = self.word.fetch_add(1, Ordering::AcqRel);
        if before == 0 {
            self.lone.store(fiber, Ordering::Relaxed);
            return Ok(Waiter { waiters: self, seat: None });
        }
        if before & CLOSING != 0 {
            return Err(Waiter { waiters: self, seat: None });
        }
        seat.fiber.set(fiber);
        self.list.lock().push(seat);
        Ok(Waiter { waiters: self, seat: Some(seat) })
    }

    /// Takes a few of those in the list out of it. How many.
    fn take(&self, fibers: &mut [*mut u8; BATCH]) -> usize {
        let mut list = self.list.lock();
        let mut count = 0;
        for fiber in fibers {
            // SAFETY: a record in the list lives.
            let Some(seat) = (unsafe { list.0.as_ref() }) else { break };
            *fiber = seat.fiber.get();
            list.remove(seat);
            count += 1;
        }
        count
    }

    /// Ends the waits of all by `wake`, and waits by `park` until they have left: it is asked to park
    /// the caller while what it is given says so. False: it is being closed already.
    ///
    /// `wake` may find the fiber gone, and its name another fiber's.
    fn close_by(&self, wake: impl Fn(*mut u8), mut park: impl FnMut(&dyn Fn() -> bool)) -> bool {
        let before = self.word.fetch_or(CLOSING, Ordering::AcqRel);
        if before & CLOSING != 0 {
            return false;
        }
        if before != 0 {
            wake(self.lone.load(Ordering::Relaxed));
            let mut fibers = [ptr::null_mut(); BATCH];
            loop {
                let count = self.take(&mut fibers);
                fibers[..count].iter().for_each(|fiber| wake(*fiber));
                if count < BATCH {
                    break;
                }
            }
            let some = || self.word.load(Ordering::Acquire) != CLOSING;
            while some() {
                park(&some);
            }
        }
        // One may have counted itself just now, and will count back.
        self.word.fetch_and(!CLOSING, Ordering::Release);
        true
    }

    /// Whether there are any, or it is being closed.
    #[inline]
    pub fn is_waited_on(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }
}

impl Waiter<'_> {
    /// Whether the thing is still there to wait for.
    #[inline]
    pub fn holds(&self) -> bool {
        // A read-modify-write: see the proof.
        self.waiters.word.fetch_or(0, Ordering::AcqRel) & CLOSING == 0
    }

    /// Leaves. Whether it was the last that the closing fiber waits for.
    #[inline]
    fn leave(&self) -> bool {
        if let Some(seat) = self.seat {
            let mut list = self.waiters.list.lock();
            if seat.listed.get() {
                list.remove(seat);
            }
        }
        self.waiters.word.fetch_sub(1, Ordering::AcqRel) == CLOSING + 1
    }
}

impl Waiters {
    /// Counts the caller among those that wait, until what is returned is dropped; `None` if the
    /// thing is just being closed.
    #[inline]
    pub fn enter<'w>(&'w self, seat: &'w Seat) -> Option<Waiter<'w>> {
        let me = current::current_fiber().map_or(ptr::null_mut(), FiberRef::as_ptr);
        match self.enter_as(me, seat) {
            Ok(waiter) => Some(waiter),
            Err(late) => {
                // Counts back. Then the closer may go on: a fiber that calls again and again until
                // it succeeds would never let it.
                drop(late);
                yield_now();
                None
            }
        }
    }

    /// Has all waits ended whose fibers are here, and waits until these have left. False: another
    /// thread or fiber does so already.
    ///
    /// Such a wait is for operations alone ([`crate::wait::operation`]) and [holds](Waiter::holds) as
    /// long as those that entered say so.
    #[cold]
    pub fn close(&self) -> bool {
        let wake = |fiber: *mut u8| {
            if !fiber.is_null() {
                // SAFETY: it comes from `enter`.
                wake_completed(unsafe { FiberRef::from_ptr(fiber) });
            }
        };
        self.close_by(wake, |some| {
            park::park(self.key(), some, Reason::Close, Until::WOKEN_ONLY);
        })
    }

    fn key(&self) -> usize {
        (&raw const self.word) as usize
    }

    /// Forgets all: in the child of a fork, to which they have not come along.
    ///
    /// # Safety
    /// There is one thread, and it is not in here.
    #[cfg(not(loom))]
    pub unsafe fn renew(&self) {
        self.word.store(0, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.list.renew(List(ptr::null())) };
    }
}

impl Drop for Waiter<'_> {
    #[inline]
    fn drop(&mut self) {
        // Its name is all that is used of the waiters from here on.
        let key = self.waiters.key();
        if self.leave() {
            lot::unpark(key, usize::MAX);
        }
    }
}
