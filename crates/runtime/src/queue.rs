//! A carrier's run queue.
//!
//! First in, first out, with one *LIFO slot* in front: a fiber that is woken by a running one goes
//! there, because what it needs is still in the cache. To keep two fibers that wake each other from
//! starving the rest, the slot is passed over after [`LIFO_RUNS`] turns in a row.
//!
//! The owner's operations are plain memory accesses under a [`Bias`]; a thief takes half of the
//! queue (or the slot, if there is nothing else) while it holds the bias, so a fiber that runs long
//! holds up nobody behind it.

use std::collections::VecDeque;

use crate::bias::Bias;
use crate::fiber::FiberRef;
use crate::sync::{AtomicUsize, Ordering, UnsafeCell};

/// Turns the LIFO slot gets before the queue is served.
const LIFO_RUNS: u32 = 3;
/// Fibers a thief takes at most.
const STEAL_MAX: usize = 128;

/// Where a woken fiber is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The LIFO slot: for who gets something from the one that runs.
    Next,
    /// The end: for who waits for many, one after the other.
    Last,
}

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
    ring: VecDeque<FiberRef>,
}

// SAFETY: `inner` is accessed under the bias only.
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new() -> Self {
        Queue {
            bias: Bias::new(),
            len: AtomicUsize::new(0),
            inner: UnsafeCell::new(Inner {
                lifo: None,
                lifo_runs: 0,
                ring: VecDeque::with_capacity(256),
            }),
        }
    }

    /// # Safety
    /// The caller runs on the owning carrier.
    #[inline(always)]
    unsafe fn own<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        // SAFETY: the caller is the owner; the bias keeps thieves out while `f` runs.
        unsafe { self.bias.own(|| self.inner.with_mut(|inner| f(&mut *inner))) }
    }

    #[inline(always)]
    fn count(&self, more: usize, less: usize) {
        // Only who holds the bias writes it, so no read-modify-write is needed.
        self.len.store(self.len.load(Ordering::Relaxed) + more - less, Ordering::Relaxed);
    }

    /// Puts a fiber at the end.
    ///
    /// # Safety
    /// The caller runs on the owning carrier.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, fiber: FiberRef) {
        // SAFETY: the caller's promise.
        unsafe {
            self.own(|inner| {
                self.count(1, 0);
                inner.ring.push_back(fiber);
            });
        }
    }

    /// Puts a fiber into the LIFO slot; who was there goes to the end.
    ///
    /// # Safety
    /// The caller runs on the owning carrier.
    #[inline]
    pub(crate) unsafe fn push_next(&self, fiber: FiberRef) {
        // SAFETY: the caller's promise.
        unsafe {
            self.own(|inner| {
                self.count(1, 0);
                if let Some(former) = inner.lifo.replace(fiber) {
                    inner.ring.push_back(former);
                }
            });
        }
    }

    /// Takes the next fiber to run.
    ///
    /// # Safety
    /// The caller runs on the owning carrier.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self) -> Option<FiberRef> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.own(|inner| {
                let next = if inner.lifo.is_none() {
                    inner.lifo_runs = 0;
                    let next = inner.ring.pop_front();
                    inner.prefetch();
                    next
                } else {
                    inner.pop_with_slot()
                };
                if next.is_some() {
                    self.count(0, 1);
                }
                next
            })
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

    /// Takes half of what waits here: returns the first of it and puts the rest into `to`.
    ///
    /// # Safety
    /// The caller runs on the carrier that owns `to`, which is another queue.
    pub(crate) unsafe fn steal_into(&self, to: &Queue) -> Option<FiberRef> {
        if self.is_empty() {
            return None;
        }
        let mut loot = Vec::new();
        let first = self.bias.steal(|| {
            self.inner.with_mut(|inner| {
                // SAFETY: the bias keeps the owner and other thieves out.
                let inner = unsafe { &mut *inner };
                let half = inner.ring.len().div_ceil(2).min(STEAL_MAX);
                let mut taken = inner.ring.drain(..half);
                let first = taken.next();
                loot.extend(taken);
                let first = first.or_else(|| inner.lifo.take());
                self.count(0, loot.len() + usize::from(first.is_some()));
                first
            })
        })??;
        for fiber in loot {
            // SAFETY: the caller's promise.
            unsafe { to.push(fiber) };
        }
        Some(first)
    }
}

impl Inner {
    /// Brings what the next switches will touch into the cache.
    ///
    /// With thousands of fibers, the first touch of a fiber's stack misses the cache and, since
    /// stacks lie 256 KiB apart, the TLB: 150 ns on the 2-core VM, ten times the switch itself. The
    /// queue knows who is next, so the miss can be waited for while the one before runs. A stack's
    /// address is in its header, so the header must come one switch earlier.
    #[inline(always)]
    fn prefetch(&self) {
        if let Some(soon) = self.ring.front() {
            soon.prefetch_stack();
            if let Some(later) = self.ring.get(1) {
                later.prefetch_header();
            }
        }
    }

    fn pop_with_slot(&mut self) -> Option<FiberRef> {
        self.lifo_runs += 1;
        if self.lifo_runs > LIFO_RUNS {
            self.lifo_runs = 0;
            if let Some(fiber) = self.ring.pop_front() {
                return Some(fiber);
            }
        }
        self.lifo.take()
    }
}
