//! The fibers that wait for operations on one thing that another fiber may close: as a rule, a file.
//!
//! The closing fiber (or thread) ends their waits, and does not go on before the last of them has left. That
//! takes work for each of these fibers, and for no other fiber of the process.
//!
//! # Where they are found
//!
//! A fiber that enters counts itself in `word`. If the count was 0 it is the *lone* one: it stores its name,
//! a pointer to its header, in `lone`. That is all that the common case costs, one parked reader. Otherwise
//! it enters a list, under a lock, by a record in its own frame (its [`Seat`]).
//!
//! ```text
//!  waiter:  count += 1                                  closer:  CLOSING = 1
//!           CLOSING was 1?  count -= 1, give up                  wake lone, and all in the list
//!           count was 0?  lone = me, else enter the list         park until count = 0
//!           begin to wait                                        CLOSING = 0
//!           CLOSING is 1?  give up
//!           …
//!           leave the list, if in it
//!           count -= 1
//!           CLOSING is 1 and count is 0?  unpark the closer
//! ```
//!
//! # Proof
//!
//! *There is one lone fiber at most.* A fiber that finds a count of 0 has counted itself after all fibers
//! before it have counted back. The last lone one stored its name before that; its decrement releases the
//! store, and the later increment acquires it (all changes of `word` are read-modify-writes). So the later
//! name is the one that stays.
//!
//! *The closer misses none.* Take a waiter that counted itself before `CLOSING` was set. When its wait has
//! begun it looks at `word` once more, by a read-modify-write. Either that finds `CLOSING`, and the waiter
//! gives up. Or it comes before the read-modify-write by which the closer sets `CLOSING`, which acquires
//! all that the waiter did until then: its name is stored, or its record listed, and its wait has begun.
//! So the closer finds it. If something else has ended that wait, the waiter looks again before it waits
//! again.
//!
//! *The closer waits for no late one.* A fiber that counts itself after `CLOSING` was set sees that at once
//! and counts back.
//!
//! *No record is accessed when its fiber has gone on.* The closer takes a record out of the list and copies
//! its name under the lock, and does not access it again. A waiter leaves its frame only after it has had
//! the lock and its record is out of the list.
//!
//! *An outdated name does no harm*: that of a lone fiber that has left while others are in the list, or one
//! copied from the record of a fiber that has left since. Headers are never unmapped, so at most that
//! fiber's wait for another operation is ended, or that of a later fiber with the same header. Such waits
//! look whether they have to go on (see `operation`).
//!
//! *The bit is cleared before the thing is closed*, so another thing under the same number starts without.
//!
//! # Cost
//!
//! Each waiter is taken out of the list once, by itself or by the closer, in constant time.

use std::ptr;

use crate::carrier::switch::yield_now;
use crate::carrier::wake::wake_completed;
use crate::fiber::current;
use crate::fiber::header::FiberRef;
use crate::protocol::reason::Reason;
use crate::protocol::sync::{AtomicPtr, AtomicU32, Cell, Lock, Ordering, const_fn};
use crate::protocol::work;
use crate::wait::lot;
use crate::wait::park::{self, Until};

/// In [`Waiters::word`]: the thing is being closed.
const CLOSING: u32 = 1 << 31;

/// How many fibers the closer takes out of the list at a time.
const BATCH: usize = 32;

/// The fibers that wait for one thing that may be closed.
#[derive(Debug)]
pub struct Waiters {
    /// The number of waiters, and [`CLOSING`].
    word: AtomicU32,
    /// The name of the waiter that came when there was none.
    lone: AtomicPtr<u8>,
    /// The other waiters.
    list: Lock<List>,
}

#[derive(Debug)]
struct List(*const Seat);

// SAFETY: a record in the list is there until it is taken out, and is accessed under the lock only.
unsafe impl Send for List {}

/// A waiter's record in the list. It lies in the waiter's frame.
#[derive(Debug)]
pub struct Seat {
    /// The waiter's name.
    fiber: Cell<*mut u8>,
    next: Cell<*const Seat>,
    previous: Cell<*const Seat>,
    /// Whether it is in the list. Written under the lock.
    listed: Cell<bool>,
}

/// A fiber that is counted as waiting, until this is dropped.
#[derive(Debug)]
pub struct Waiter<'w> {
    waiters: &'w Waiters,
    /// Its record, if it is in the list.
    seat: Option<&'w Seat>,
}

impl Seat {
    const_fn! {
        /// A record that is in no list.
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
    /// Writes to the record when the fiber uses its memory for something else: loom reports later
    /// accesses.
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
        // SAFETY: the lock is held, and a record in the list is there.
        if let Some(first) = unsafe { self.0.as_ref() } {
            first.previous.set(seat);
        }
        seat.listed.set(true);
        self.0 = seat;
    }

    fn remove(&mut self, seat: &Seat) {
        work::step();
        // SAFETY: the lock is held, and a record in the list is there.
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
        /// Without waiters.
        pub fn new() -> Waiters {
            Waiters {
                word: AtomicU32::new(0),
                lone: AtomicPtr::new(ptr::null_mut()),
                list: Lock::new(List(ptr::null())),
            }
        }
    }

    /// Counts `fiber`, which is about to wait. `Err` if the thing is being closed: it must be dropped, to count
    /// back.
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

    /// Takes up to [`BATCH`] records out of the list, and copies their names. Returns how many.
    fn take(&self, fibers: &mut [*mut u8; BATCH]) -> usize {
        let mut list = self.list.lock();
        let mut count = 0;
        for fiber in fibers {
            // SAFETY: the lock is held, and a record in the list is there.
            let Some(seat) = (unsafe { list.0.as_ref() }) else { break };
            *fiber = seat.fiber.get();
            list.remove(seat);
            count += 1;
        }
        count
    }

    /// Ends all waits by `wake`, and waits by `park` until the waiters have left. `park` parks the caller until
    /// it is unparked, if its argument returns true. Returns false if the thing is being closed already.
    ///
    /// `wake` may get the name of a fiber that has left.
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
        // A late one may still be counted, and will count back. Relaxed: a read-modify-write carries on
        // what the waiters' decrements released, and the closer's own changes were made under the lock.
        self.word.fetch_and(!CLOSING, Ordering::Relaxed);
        true
    }

    /// Whether there are waiters, or the thing is being closed.
    #[inline]
    pub fn is_waited_on(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }
}

impl Waiter<'_> {
    /// Whether no other waited when this one came.
    #[inline]
    pub fn came_alone(&self) -> bool {
        self.seat.is_none()
    }

    /// Whether the thing is still there to wait for: to be asked when a wait has begun, too.
    #[inline]
    pub fn holds(&self) -> bool {
        // A read-modify-write: see the proof.
        self.waiters.word.fetch_or(0, Ordering::AcqRel) & CLOSING == 0
    }

    /// Counts back. Returns whether this was the last waiter that the closer waits for.
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
    /// Counts the calling fiber as waiting until the result is dropped; `None` if the thing is being
    /// closed.
    ///
    /// # Safety
    /// The result is dropped, not forgotten, before `seat` is used again or freed: until then the list of waiters may
    /// have the seat in it.
    #[inline]
    pub unsafe fn enter<'w>(&'w self, seat: &'w Seat) -> Option<Waiter<'w>> {
        let me = current::current_fiber().map_or(ptr::null_mut(), FiberRef::as_ptr);
        match self.enter_as(me, seat) {
            Ok(waiter) => Some(waiter),
            Err(late) => {
                // Counts back, and lets the closer run: the caller may try again until it succeeds.
                drop(late);
                yield_now();
                None
            }
        }
    }

    /// Ends the waits of all that have entered, and waits until they have left. False: another thread or
    /// fiber does so already.
    ///
    /// A fiber that has entered waits for operations only ([`crate::wait::operation`]), with
    /// [`Waiter::holds`] as their condition.
    #[cold]
    pub fn close(&self) -> bool {
        let wake = |fiber: *mut u8| {
            if !fiber.is_null() {
                // SAFETY: `enter` has got the pointer from `FiberRef::as_ptr`.
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

    /// Forgets all waiters: in the child of a fork, which has none of the parent's other fibers.
    ///
    /// # Safety
    /// There is one thread, and it is not in here.
    #[cfg(not(loom))]
    pub unsafe fn renew(&self) {
        self.word.store(0, Ordering::Relaxed);
        // SAFETY: there is one thread, and it does not have the lock.
        unsafe { self.list.renew(List(ptr::null())) };
    }
}

impl Drop for Waiter<'_> {
    #[inline]
    fn drop(&mut self) {
        // Taken now, for the `Waiters` may be freed once this has counted back.
        let key = self.waiters.key();
        if self.leave() {
            lot::unpark(key, usize::MAX);
        }
    }
}
