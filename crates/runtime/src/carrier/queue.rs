//! A carrier's run queue.
//!
//! First in, first out, with one *LIFO slot* in front: a fiber that is woken by a running one goes
//! there, because what it needs is still in the cache. To keep two fibers that wake each other from
//! starving the rest, the slot is passed over after [`LIFO_RUNS`] turns in a row.
//!
//! The owner's operations are plain memory accesses under a [`Bias`]; a thief takes half of the
//! queue (or the slot, if there is nothing else) while it holds the bias, so a fiber that runs long
//! holds up none behind it.
//!
//! # The bias is held over a switch
//!
//! A fiber that yields may be queued only when its context is saved, which the switch does. Instead
//! of queueing it afterwards, the owner holds the bias over the switch: [`Queue::lock`], take the
//! next fiber and queue the old one, switch; and what runs next calls [`Queue::unlock`]. Until then
//! no thief sees the queue.

use crate::carrier::policy::{AHEAD, CAPACITY, LIFO_RUNS, Place, STEAL_MAX};
use crate::fiber::current::prefetch_stack;
use crate::fiber::header::FiberRef;
use crate::protocol::bias::Bias;
use crate::protocol::ring::Ring;
use crate::protocol::sync::{AtomicUsize, Ordering, UnsafeCell};

#[derive(Debug)]
pub(crate) struct Queue {
    bias: Bias,
    /// How many fibers wait: exact for the owner, a hint for others.
    len: AtomicUsize,
    inner: UnsafeCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    lifo: Option<FiberRef>,
    lifo_runs: u32,
    ring: Ring<FiberRef>,
}

// SAFETY: `inner` is accessed under the bias only.
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new() -> Self {
        Queue {
            bias: Bias::new(),
            len: AtomicUsize::new(0),
            inner: UnsafeCell::new(Inner { lifo: None, lifo_runs: 0, ring: Ring::new(CAPACITY) }),
        }
    }

    /// Fibers waiting: exact for the owner, a hint for others.
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
        // SAFETY: the caller's promise.
        unsafe { self.bias.enter() };
        Locked { queue: self }
    }

    /// The queue, which was locked before a switch.
    ///
    /// # Safety
    /// The caller runs on the owning carrier, and the queue is locked.
    #[inline(always)]
    pub(crate) unsafe fn locked(&self) -> Locked<'_> {
        Locked { queue: self }
    }

    /// Puts a fiber in its place.
    ///
    /// # Safety
    /// The caller runs on the owning carrier, and the queue is not locked.
    #[inline]
    pub(crate) unsafe fn push(&self, fiber: FiberRef, place: Place) {
        // SAFETY: the caller's promise.
        let mut locked = unsafe { self.lock() };
        locked.push(fiber, place);
        locked.unlock();
    }

    /// Takes half of what waits here: returns the first of it and puts the rest into `to`.
    ///
    /// # Safety
    /// The caller runs on the carrier that owns `to`, which is another queue and not locked.
    pub(crate) unsafe fn steal_into(&self, to: &Queue) -> Option<FiberRef> {
        if self.is_empty() {
            return None;
        }
        let mut loot = [None; STEAL_MAX];
        let first = self.bias.steal(|| {
            self.inner.with_mut(|inner| {
                // SAFETY: the bias keeps the owner and other thieves out.
                let inner = unsafe { &mut *inner };
                let half = inner.ring.len().div_ceil(2).min(STEAL_MAX);
                let first = if half == 0 { inner.lifo.take() } else { inner.ring.pop() };
                for place in loot.iter_mut().take(half.saturating_sub(1)) {
                    *place = inner.ring.pop();
                }
                self.len.store(inner.len(), Ordering::Relaxed);
                first
            })
        })??;
        if loot[0].is_some() {
            // SAFETY: the caller's promise.
            let mut to = unsafe { to.lock() };
            for fiber in loot.into_iter().map_while(|place| place) {
                to.push(fiber, Place::Last);
            }
            to.unlock();
        }
        Some(first)
    }
}

/// A queue the owner has to itself. It stays locked when this is dropped: see [`Queue`].
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    queue: &'a Queue,
}

impl Locked<'_> {
    #[inline(always)]
    fn with<R>(&mut self, f: impl FnOnce(&mut Inner) -> R) -> R {
        let inner = self.queue.inner.get_mut();
        // SAFETY: the bias keeps thieves out, and there is one owner.
        let inner = unsafe { inner.deref() };
        let result = f(inner);
        self.queue.len.store(inner.len(), Ordering::Relaxed);
        result
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, fiber: FiberRef, place: Place) {
        self.with(|inner| match place {
            Place::Last => inner.ring.push(fiber),
            Place::Next => {
                if let Some(former) = inner.lifo.replace(fiber) {
                    inner.ring.push(former);
                }
            }
        });
    }

    /// Takes the next fiber to run.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<FiberRef> {
        self.with(|inner| {
            if inner.lifo.is_some() {
                return inner.pop_with_slot();
            }
            inner.lifo_runs = 0;
            let next = inner.ring.pop();
            inner.prefetch();
            next
        })
    }

    /// Takes the one that `draw`, which is told how many there are, chooses.
    pub(crate) fn pop_drawn(&mut self, draw: impl FnOnce(usize) -> usize) -> Option<FiberRef> {
        self.with(|inner| {
            // Where the order is drawn, none has precedence.
            if let Some(fiber) = inner.lifo.take() {
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
            // SAFETY: as in `with`. The number of those that wait stays the same.
            let inner = unsafe { &mut *inner };
            if inner.lifo.is_some() {
                let next = inner.pop_with_slot();
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
        // SAFETY: locked by the owner, which the caller is.
        unsafe { self.queue.bias.leave() };
    }
}

impl Inner {
    #[inline(always)]
    fn len(&self) -> usize {
        self.ring.len() + usize::from(self.lifo.is_some())
    }

    fn pop_with_slot(&mut self) -> Option<FiberRef> {
        self.lifo_runs += 1;
        if self.lifo_runs > LIFO_RUNS {
            self.lifo_runs = 0;
            if let Some(fiber) = self.ring.pop() {
                return Some(fiber);
            }
        }
        self.lifo.take()
    }

    /// Brings what the next switches will touch into the cache.
    ///
    /// With thousands of fibers, the first touch of a fiber's stack misses the cache and, since
    /// stacks lie 256 KiB apart, the TLB: several times the cost of the switch itself. The
    /// queue knows which fiber is next, so the miss can be waited for while others run. A stack's address is
    /// in its header, so the header must come earlier still.
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
