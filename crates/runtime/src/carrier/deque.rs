//! The run queue that was rejected, for comparison: a ring from which any carrier takes.
//!
//! Built in place of [`queue`](super::queue) with the feature `rejected-deque`; `.ci/queues` builds both
//! and measures them in turn (figures: docs/scheduling.md). It is what tokio and Go have: the owner pushes at the
//! tail by a plain store, and all, the owner as well, take from the head by a compare-and-swap. The slot
//! in front is a word that is exchanged. So a thief needs neither an answer nor a `membarrier`, and the
//! owner pays a locked instruction for each fiber that it runs.
//!
//! A fiber that yields must not be found before its context is saved. The other queue is locked over the
//! switch; from this one a thief takes at any time, so the yielding fiber is kept aside (`aside`) until
//! what runs next calls [`Locked::unlock`].
//!
//! # Proof
//!
//! A thief reads the head `h`, the tail, then the level, and places from `h` on, and moves the head on from
//! `h` by a compare-and-swap. The head only grows, so if that succeeds no other has taken these. Nor were
//! their places overwritten when they were read: the owner writes to the place of `h` again only after it
//! has read, with acquire, a head above `h`, hence after the read. Before it grows the ring, the owner
//! copies what is in it, and does not write to the former places any more, which stay mapped; a thief
//! that sees a tail beyond the copy, which was stored with release, sees the new level as well.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr;

use carefree_context::arch;

use crate::carrier::policy::{AHEAD, CAPACITY, LIFO_RUNS, Place};
use crate::fiber::header::FiberRef;
use crate::protocol::parcel::{Answer, ROOM};
use crate::protocol::ring::Buffer;
use crate::protocol::sync::{AtomicPtr, AtomicUsize, Ordering};

/// How often the ring can double.
const LEVELS: usize = 24;

/// A queued fiber, and where its stack is, to be fetched into the cache.
#[derive(Debug)]
struct Seat(AtomicPtr<u8>, AtomicPtr<u8>);

#[derive(Debug, Default)]
pub(crate) struct Queue {
    head: AtomicUsize,
    /// The ring has `CAPACITY << level` seats, which are `rings[level]`.
    level: AtomicUsize,
    rings: [UnsafeCell<Option<Buffer<Seat>>>; LEVELS],
    lifo: AtomicPtr<u8>,
    // What the owner alone writes, on other cache lines than the head:
    tail: AtomicUsize,
    lifo_runs: Cell<u32>,
    aside: Cell<Option<FiberRef>>,
}

// SAFETY: what is not Sync in it is accessed by the owner alone, but for the rings: see `seats`.
unsafe impl Sync for Queue {}

fn fiber_of(pointer: *mut u8) -> Option<FiberRef> {
    // SAFETY: null, or from `FiberRef::as_ptr`.
    (!pointer.is_null()).then(|| unsafe { FiberRef::from_ptr(pointer) })
}

impl Queue {
    pub(crate) fn new() -> Self {
        let mut queue = Queue::default();
        *queue.rings[0].get_mut() = Some(Buffer::new(CAPACITY));
        queue
    }

    /// Queued fibers: exact for the owner, while it is not locked, a hint for others.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        let in_ring = self.tail.load(Ordering::Relaxed).saturating_sub(head);
        in_ring + usize::from(!self.lifo.load(Ordering::Relaxed).is_null())
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn seats(&self) -> &[MaybeUninit<Seat>] {
        let level = self.level.load(Ordering::Acquire);
        // SAFETY: that ring was written before the level was stored, and stays until the queue is dropped.
        unsafe { (*self.rings[level].get()).as_deref().unwrap_unchecked() }
    }

    #[inline(always)]
    fn seat(&self, index: usize) -> &Seat {
        let seats = self.seats();
        // SAFETY: the kernel maps zeros, and a seat may be all zeros.
        unsafe { seats[index & (seats.len() - 1)].assume_init_ref() }
    }

    /// Puts a fiber at the end of the ring. For the owner.
    #[inline(always)]
    fn append(&self, fiber: FiberRef) {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail - self.head.load(Ordering::Acquire) == self.seats().len() {
            self.grow(tail);
        }
        // SAFETY: the fiber has left its stack, and this thread alone has it until `tail` is stored.
        let stack = unsafe { (*fiber.context.get()).stack_pointer() };
        let Seat(place, hint) = self.seat(tail);
        place.store(fiber.as_ptr(), Ordering::Relaxed);
        hint.store(stack, Ordering::Relaxed);
        self.tail.store(tail + 1, Ordering::Release);
    }

    #[cold]
    fn grow(&self, tail: usize) {
        let (len, level) = (self.seats().len(), self.level.load(Ordering::Relaxed) + 1);
        let mut ring = Buffer::<Seat>::new(2 * len);
        for index in tail - len..tail {
            let Seat(place, hint) = self.seat(index);
            let [place, hint] = [place, hint].map(|one| one.load(Ordering::Relaxed).into());
            ring[index & (2 * len - 1)].write(Seat(place, hint));
        }
        // SAFETY: no thread looks at this ring before it sees the level.
        unsafe { *self.rings[level].get() = Some(ring) };
        self.level.store(level, Ordering::Release);
    }

    /// Takes as many as `count` says, of those that are in the ring, into `to`. For any thread.
    #[inline(always)]
    fn take(&self, count: impl Fn(usize) -> usize, to: &mut [Option<FiberRef>]) {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let tail = self.tail.load(Ordering::Acquire);
            let count = count(tail.saturating_sub(head)).min(to.len());
            if count == 0 {
                return;
            }
            for (offset, place) in to.iter_mut().enumerate().take(count) {
                *place = fiber_of(self.seat(head + offset).0.load(Ordering::Relaxed));
            }
            let (now, then) = (Ordering::AcqRel, Ordering::Relaxed);
            if self.head.compare_exchange(head, head + count, now, then).is_ok() {
                return;
            }
            to[..count].fill(None);
        }
    }

    /// The fiber in the slot. For any thread.
    fn woken(&self) -> Option<FiberRef> {
        let some = !self.lifo.load(Ordering::Relaxed).is_null();
        some.then(|| fiber_of(self.lifo.swap(ptr::null_mut(), Ordering::Acquire))).flatten()
    }

    /// The first fiber of the ring. For the owner.
    #[inline(always)]
    fn first(&self) -> Option<FiberRef> {
        let mut first = [None];
        self.take(|waiting| waiting.min(1), &mut first);
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        if head + AHEAD < tail {
            let stack = self.seat(head + AHEAD).1.load(Ordering::Relaxed);
            (0..3).for_each(|line| arch::prefetch(stack.wrapping_add(line * 64)));
            arch::prefetch(self.seat(head + 2 * AHEAD).0.load(Ordering::Relaxed));
        }
        first[0]
    }

    /// # Safety
    /// The caller runs on the owning carrier, and the queue is not locked. (So with all that follow.)
    #[inline(always)]
    pub(crate) unsafe fn lock(&self) -> Locked<'_> {
        Locked { queue: self }
    }

    /// # Safety
    /// As for [`lock`](Self::lock).
    #[inline(always)]
    pub(crate) unsafe fn lock_to_yield(&self) -> Locked<'_> {
        Locked { queue: self }
    }

    /// # Safety
    /// The caller runs on the owning carrier, and the queue is locked.
    #[inline(always)]
    pub(crate) unsafe fn locked(&self) -> Locked<'_> {
        Locked { queue: self }
    }

    /// # Safety
    /// As for [`lock`](Self::lock).
    #[inline]
    pub(crate) unsafe fn push(&self, fiber: FiberRef, place: Place) {
        Locked { queue: self }.push(fiber, place);
        Locked { queue: self }.unlock();
    }

    /// Takes half of the ring of `other`: returns the first fiber and queues the rest here.
    fn rob(&self, other: &Queue) -> Option<FiberRef> {
        let mut loot = other.half();
        let first = loot.next();
        loot.for_each(|fiber| self.append(fiber));
        first
    }

    /// Takes half of the ring.
    fn half(&self) -> impl Iterator<Item = FiberRef> {
        let mut half = [None; ROOM];
        self.take(|waiting| waiting.div_ceil(2), &mut half);
        half.into_iter().map_while(|fiber| fiber)
    }

    /// # Safety
    /// As for [`lock`](Self::lock).
    pub(crate) unsafe fn take_from(&self, other: &Queue) -> Option<FiberRef> {
        self.rob(other).or_else(|| other.woken())
    }

    /// Takes half of the ring, or what has been woken, for a thread that is not the owner.
    pub(crate) fn loot(&self) -> impl Iterator<Item = FiberRef> {
        let mut half = self.half().peekable();
        let woken = if half.peek().is_none() { self.woken() } else { None };
        half.chain(woken)
    }

    /// There is no need to ask, but for what the owner has just woken, which is to run next.
    ///
    /// # Safety
    /// As for [`lock`](Self::lock).
    pub(crate) unsafe fn ask(
        &self,
        other: &Queue,
        mut patient: impl FnMut() -> bool,
    ) -> Answer<FiberRef> {
        while !other.is_empty() {
            if let Some(first) = self.rob(other) {
                return Answer::Thing(first);
            }
            if !patient() {
                return Answer::Unanswered;
            }
        }
        Answer::Nothing
    }
}

/// A queue in use by its owner, which keeps no thief out.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    queue: &'a Queue,
}

impl Locked<'_> {
    #[inline(always)]
    pub(crate) fn push(&mut self, fiber: FiberRef, place: Place) {
        let queue = self.queue;
        if place == Place::Last {
            // Before a switch no more than one is pushed, the fiber that leaves.
            if let Some(former) = queue.aside.replace(Some(fiber)) {
                queue.append(former);
            }
        } else if queue.lifo.load(Ordering::Relaxed).is_null() {
            queue.lifo.store(fiber.as_ptr(), Ordering::Release);
        } else if let Some(former) = fiber_of(queue.lifo.swap(fiber.as_ptr(), Ordering::AcqRel)) {
            queue.append(former);
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<FiberRef> {
        let queue = self.queue;
        if queue.lifo.load(Ordering::Relaxed).is_null() {
            queue.lifo_runs.set(0);
            return queue.first();
        }
        let runs = (queue.lifo_runs.get() + 1) % (LIFO_RUNS + 1);
        queue.lifo_runs.set(runs);
        let in_turn = if runs == 0 { queue.first() } else { None };
        in_turn.or_else(|| queue.woken()).or_else(|| queue.first())
    }

    /// With one carrier, where no other takes.
    pub(crate) fn pop_drawn(&mut self, draw: impl FnOnce(usize) -> usize) -> Option<FiberRef> {
        let queue = self.queue;
        queue.woken().into_iter().for_each(|fiber| queue.append(fiber));
        for _ in 0..if queue.len() > 1 { draw(queue.len()) } else { 0 } {
            queue.first().into_iter().for_each(|fiber| queue.append(fiber));
        }
        queue.first()
    }

    #[inline(always)]
    pub(crate) fn rotate(&mut self, fiber: FiberRef) -> Option<FiberRef> {
        let next = self.pop()?;
        self.push(fiber, Place::Last);
        Some(next)
    }

    #[inline(always)]
    pub(crate) fn unlock(self) {
        if let Some(fiber) = self.queue.aside.take() {
            self.queue.append(fiber);
        }
    }
}
