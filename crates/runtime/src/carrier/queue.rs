//! A carrier's run queue.
//!
//! First in, first out, with one *LIFO slot* in front: a fiber that the running one wakes goes there,
//! because what it needs is still in the cache. Two fibers that wake each other would keep all others from
//! running, so after [`LIFO_RUNS`] turns in a row the slot is passed over once.
//!
//! Fibers that have yet to start, and so have no stack, are in a queue of their own. They start while fewer than a
//! *window* of those that have started are ready: see [`STARTED`] and [`TURNS`].
//!
//! The queue is under a [`Bias`]: its carrier, the owner, gets it by plain memory accesses. A carrier that
//! has nothing to run [asks](Queue::ask) the owner for fibers; the owner answers at its next use of the
//! queue, with half of those that wait. Only where the owner does not come to that, because its fiber
//! runs for long, are they [taken](Queue::take_from) as by a thief, which interrupts every processor
//! that runs the process.
//!
//! The rejected design, a ring from which all take by a compare-and-swap, is in `deque`, to be built in place
//! of this one: `docs/scheduling.md` has the figures of both, and the command that prints them.
//!
//! # The bias is held over a switch
//!
//! A fiber that yields must not be found in the queue before its context is saved, which the switch does.
//! So the yielding fiber calls [`Queue::lock`], takes the next fiber, queues itself, and switches; what
//! runs next calls [`Locked::unlock`]. Until then no thief sees the queue.

use std::ptr::NonNull;

#[cfg(not(loom))]
use crate::carrier::policy::UNDER_WAY;
use crate::carrier::policy::{AHEAD, CAPACITY, LIFO_RUNS, Place, STARTED, TURNS};
use crate::fiber::current::prefetch_stack;
#[cfg(not(loom))]
use crate::fiber::current::without_parking;
use crate::fiber::header::FiberRef;
use crate::fiber::unstarted::is_unstarted;
use crate::protocol::bias::Bias;
use crate::protocol::parcel::{Answer, Parcel, ROOM};
use crate::protocol::ring::Ring;
#[cfg(not(loom))]
use crate::protocol::sync::clock;
use crate::protocol::sync::{AtomicUsize, Ordering, UnsafeCell, pause};

#[derive(Debug)]
pub(crate) struct Queue {
    bias: Bias<Parcel<FiberRef>>,
    /// By which the owner asks for fibers of other queues.
    parcel: Parcel<FiberRef>,
    /// Queued fibers: exact for the owner, a hint for others.
    len: AtomicUsize,
    inner: UnsafeCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    lifo: Option<FiberRef>,
    lifo_runs: u32,
    ring: Ring<FiberRef>,
    /// Those that have yet to start.
    unstarted: Ring<FiberRef>,
    /// How many are let start before others have to wait for it.
    window: usize,
    /// How many have started in a row.
    starts: usize,
    /// How many turns others have had since.
    turns: usize,
}

// SAFETY: `inner` is accessed only by the thread that has the bias.
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new() -> Self {
        Queue {
            bias: Bias::new(),
            parcel: Parcel::new(),
            len: AtomicUsize::new(0),
            inner: UnsafeCell::new(Inner {
                lifo: None,
                lifo_runs: 0,
                ring: Ring::new(CAPACITY),
                unstarted: Ring::new(CAPACITY),
                window: STARTED,
                starts: 0,
                turns: 0,
            }),
        }
    }

    /// Queued fibers: exact for the owner, a hint for others.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps thieves out until [`unlock`](Self::unlock).
    ///
    /// # Safety
    /// The caller runs on the owning carrier, and the queue is not locked.
    #[inline(always)]
    pub(crate) unsafe fn lock(&self) -> Locked<'_> {
        // SAFETY: this function demands the same.
        unsafe { self.lock_beside(0) }
    }

    /// [`lock`](Self::lock) by a fiber that yields, and is about to queue itself. So the owner has that one to run
    /// if it gives the only other away.
    ///
    /// # Safety
    /// As for [`lock`](Self::lock).
    #[inline(always)]
    pub(crate) unsafe fn lock_to_yield(&self) -> Locked<'_> {
        // SAFETY: this function demands the same.
        unsafe { self.lock_beside(1) }
    }

    /// [`lock`](Self::lock) by an owner that has so many fibers to run besides those queued.
    ///
    /// # Safety
    /// As for [`lock`](Self::lock).
    #[inline(always)]
    unsafe fn lock_beside(&self, beside: usize) -> Locked<'_> {
        // SAFETY: the caller is on the owning carrier's thread, and has not locked the queue.
        let letter = unsafe { self.bias.enter() };
        let mut locked = Locked { queue: self };
        if let Some(letter) = letter {
            locked.answer(letter, beside);
        }
        locked
    }

    /// The queue, for a caller to which a switch has come that left it locked.
    ///
    /// # Safety
    /// The caller runs on the owning carrier, and the queue is locked.
    #[inline(always)]
    pub(crate) unsafe fn locked(&self) -> Locked<'_> {
        Locked { queue: self }
    }

    /// Queues a fiber.
    ///
    /// # Safety
    /// The caller runs on the owning carrier, and the queue is not locked.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, fiber: FiberRef, place: Place) {
        // SAFETY: this function demands the same.
        let mut locked = unsafe { self.lock() };
        locked.push(fiber, place);
        locked.unlock();
    }

    /// Asks the owner of `other` for half of its queued fibers, and waits for the answer as long as
    /// `patient` says so. Returns the first of them and queues the others here.
    ///
    /// # Safety
    /// The caller runs on the carrier that owns this queue, which is another than `other` and not locked.
    pub(crate) unsafe fn ask(
        &self,
        other: &Queue,
        mut patient: impl FnMut() -> bool,
    ) -> Answer<FiberRef> {
        self.parcel.expect();
        if !other.bias.ask(&self.parcel) {
            return Answer::Nothing;
        }
        while !self.parcel.is_filled() {
            // (If it is being answered just now, that takes a moment.)
            if (other.is_empty() || !patient()) && other.bias.take_back(&self.parcel) {
                return if other.is_empty() { Answer::Nothing } else { Answer::Unanswered };
            }
            pause();
        }
        let mut first = None;
        // SAFETY: asked above, and filled; the caller owns this queue, which is not locked.
        unsafe {
            let mut mine = self.lock();
            self.parcel.open(|fiber| match first {
                None => first = Some(fiber),
                Some(_) => mine.push(fiber, Place::Last),
            });
            mine.unlock();
        }
        first.map_or(Answer::Nothing, Answer::Thing)
    }

    /// Takes half of what waits at `other`, whose owner does not answer: returns the first of it and
    /// puts the rest here.
    ///
    /// # Safety
    /// As for [`ask`](Self::ask).
    pub(crate) unsafe fn take_from(&self, other: &Queue) -> Option<FiberRef> {
        let mut loot = other.loot();
        let first = loot.next();
        let mut rest = loot.peekable();
        if rest.peek().is_some() {
            // SAFETY: the caller is on the carrier that owns this queue, and has not locked it.
            let mut mine = unsafe { self.lock() };
            rest.for_each(|fiber| mine.push(fiber, Place::Last));
            mine.unlock();
        }
        first
    }

    /// Takes half of what waits here, up to [`ROOM`], for a thread that is not the owner, which does not answer.
    pub(crate) fn loot(&self) -> impl Iterator<Item = FiberRef> {
        let mut loot = [None; ROOM];
        if !self.is_empty() {
            self.bias.steal(|| {
                self.inner.with_mut(|inner| {
                    // SAFETY: the bias keeps the owner and other thieves out.
                    let inner = unsafe { &mut *inner };
                    let half = (inner.ring.len() + inner.unstarted.len()).div_ceil(2).min(ROOM);
                    // The owner's fiber may go on for long: those that have started would wait for all others here.
                    loot[..half].fill_with(|| inner.ring.pop().or_else(|| inner.unstarted.pop()));
                    loot[0] = loot[0].or_else(|| inner.lifo.take());
                    self.len.store(inner.len(), Ordering::Relaxed);
                });
            });
        }
        loot.into_iter().map_while(|fiber| fiber)
    }
}

/// A queue locked by its owner. Dropping this does not unlock it: the lock outlasts a switch.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    queue: &'a Queue,
}

impl Locked<'_> {
    #[inline(always)]
    fn with<R>(&mut self, f: impl FnOnce(&mut Inner) -> R) -> R {
        let inner = self.queue.inner.get_mut();
        // SAFETY: the bias keeps thieves out, and the owner, one thread, is here.
        let inner = unsafe { inner.deref() };
        let result = f(inner);
        self.queue.len.store(inner.len(), Ordering::Relaxed);
        result
    }

    /// Answers another carrier that asks for fibers: half of those queued and of `beside`, which the owner has to
    /// run besides. Those that have yet to start come first, for nothing of theirs is in this carrier's cache; then
    /// those that have waited the longest. Never the only one, which would run here next.
    ///
    /// Where the owner's fiber yields and is left alone, [that one gets under way](get_under_way) meanwhile.
    #[cold]
    fn answer(&mut self, letter: NonNull<Parcel<FiberRef>>, beside: usize) {
        let alone = self.with(|inner| {
            let half = (inner.len() + beside) / 2;
            let mut pop = || inner.unstarted.pop().or_else(|| inner.ring.pop());
            let fibers = std::iter::from_fn(&mut pop).take(half);
            // SAFETY: the asking carrier waits, so its parcel is there; it was taken out of the letter
            // box just now, by the owner alone.
            unsafe { letter.as_ref().fill(fibers) };
            half > 0 && inner.len() == 0
        });
        if alone {
            get_under_way();
        }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, fiber: FiberRef, place: Place) {
        let inner = self.queue.inner.get_mut();
        // SAFETY: as in `with`.
        let inner = unsafe { inner.deref() };
        inner.push(fiber, place);
        self.queue.len.store(inner.len(), Ordering::Relaxed);
    }

    /// Takes the next fiber to run.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<FiberRef> {
        self.with(Inner::pop)
    }

    /// Takes the fiber that `draw` chooses: it gets their number, and returns a lower one.
    pub(crate) fn pop_drawn(&mut self, draw: impl FnOnce(usize) -> usize) -> Option<FiberRef> {
        self.with(|inner| {
            // Where the order is drawn, the slot has no precedence.
            if let Some(fiber) = inner.lifo.take() {
                inner.ring.push(fiber);
            }
            while let Some(fiber) = inner.unstarted.pop() {
                inner.ring.push(fiber);
            }
            let len = inner.ring.len();
            if len > 1 {
                inner.ring.bring_forward(draw(len));
            }
            inner.ring.pop()
        })
    }

    /// Queues `fiber` at the end and takes the next one to run.
    #[inline(always)]
    pub(crate) fn rotate(&mut self, fiber: FiberRef) -> Option<FiberRef> {
        self.queue.inner.with_mut(|inner| {
            // SAFETY: as in `with`. (`len` need not be written: one comes and one goes, or none.)
            let inner = unsafe { &mut *inner };
            if !inner.has_ring_only() {
                let next = inner.pop_woken().or_else(|| inner.pop_chosen());
                inner.ring.push(fiber);
                return next;
            }
            inner.lifo_runs = 0;
            let next = inner.ring.rotate(fiber);
            inner.prefetch();
            next
        })
    }

    /// Lets thieves in again.
    #[inline(always)]
    pub(crate) fn unlock(self) {
        // SAFETY: a `Locked` is made for the owner alone, which is inside the bias.
        unsafe { self.queue.bias.leave() };
    }
}

/// Waits until the fiber that was given away has most likely begun elsewhere. One that yields, and has none left to
/// yield to, probably waits for it: a few more yields, which take no time now, and it would park, to be woken by the
/// other on that carrier, where both would be together again.
///
/// The queue is locked. So the clock is libc's own: what stands in for it handles signals, and a handler may wait, and go
/// on elsewhere.
fn get_under_way() {
    // In a model, nothing takes time.
    #[cfg(not(loom))]
    without_parking(|| {
        let until = clock::now() + UNDER_WAY;
        while clock::now() < until {
            pause();
        }
    });
}

impl Inner {
    #[inline(always)]
    fn len(&self) -> usize {
        self.ring.len() + self.unstarted.len() + usize::from(self.lifo.is_some())
    }

    /// Whether neither is a fiber in the slot, nor one that has yet to start.
    #[inline(always)]
    fn has_ring_only(&self) -> bool {
        self.lifo.is_none() & (self.unstarted.len() == 0)
    }

    #[inline(always)]
    fn push(&mut self, fiber: FiberRef, place: Place) {
        match place {
            Place::Last if is_unstarted(fiber) => self.unstarted.push(fiber),
            Place::Last => self.ring.push(fiber),
            Place::Next => {
                if let Some(former) = self.lifo.replace(fiber) {
                    self.ring.push(former);
                }
            }
        }
    }

    /// Takes the next fiber to run.
    #[inline(always)]
    fn pop(&mut self) -> Option<FiberRef> {
        if !self.has_ring_only() {
            return self.pop_woken().or_else(|| self.pop_chosen());
        }
        self.lifo_runs = 0;
        let next = self.ring.pop();
        self.prefetch();
        next
    }

    /// Whether a fiber is to start, rather than one of the ring to go on. Some have yet to start.
    fn chooses_start(&mut self) -> bool {
        if let Some(soon) = self.unstarted.get(2 * AHEAD) {
            soon.prefetch_to_start();
        }
        let started = self.ring.len();
        if started < self.window / 4 {
            self.window = (self.window / 2).max(STARTED);
        } else if started >= self.window && self.turns >= TURNS * self.window {
            self.window *= 2;
        }
        // One of those that have started has a turn now and then, though others start all the time.
        let start = started == 0 || started < self.window && self.starts < self.window;
        match start {
            true => (self.starts, self.turns) = (self.starts + 1, 0),
            false => (self.starts, self.turns) = (0, self.turns + 1),
        }
        start
    }

    /// Takes the fiber in the slot, unless that is passed over.
    #[inline(always)]
    fn pop_woken(&mut self) -> Option<FiberRef> {
        if self.lifo_runs >= LIFO_RUNS {
            return None;
        }
        let woken = self.lifo.take()?;
        self.lifo_runs += 1;
        Some(woken)
    }

    /// Takes the next fiber to run, where not only the ring has some, and the slot is passed over.
    #[inline(never)]
    fn pop_chosen(&mut self) -> Option<FiberRef> {
        self.lifo_runs = 0;
        let other = match self.unstarted.len() != 0 && self.chooses_start() {
            true => self.unstarted.pop(),
            false => self.ring.pop(),
        };
        other.or_else(|| self.lifo.take())
    }

    /// Brings what the next switches will touch into the cache.
    ///
    /// With thousands of fibers, the first access to a fiber's stack misses the cache and, since stacks
    /// lie 256 KiB apart, the TLB. That costs several times as much as the switch itself. The queue knows
    /// which fibers are next, so their stacks are fetched while others run. A stack's address is in its
    /// fiber's header, which is fetched earlier still.
    #[inline(always)]
    fn prefetch(&self) {
        if let Some(soon) = self.ring.get(AHEAD) {
            prefetch_stack(soon);
            if let Some(later) = self.ring.get(2 * AHEAD) {
                later.prefetch_header();
            }
        }
    }
}
