//! The furnished stacks that a carrier keeps for its next fibers, and those that are promised to it.
//!
//! A stack comes back without a call of the allocator: the list never grows, and what it has no room for goes to the
//! [process's pool](crate::fiber::idle).

use std::io;

use carefree_context::stack::{Stack, StackPool, StackSize};

use crate::fiber::furnish::{FiberStack, Furnished, Refused};
use crate::fiber::idle::{self, BATCH};
use crate::fiber::size;

/// Furnished stacks of the default size that a carrier keeps.
const LOCAL: usize = 512;
/// How many stacks a carrier acquires at first; then always twice as many, up to a batch. Each has a guard, and large
/// stacks a page table for that, which a process with few fibers need not hold, and its forks not copy.
const FIRST: usize = 4;
/// How many are furnished at once for fibers that start: what is written to a stack long before its fiber runs would
/// have left the cache by then.
const AHEAD: usize = 8;

/// Stacks that a carrier keeps for its next fibers.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// Without room at first, for a carrier is made without the program's allocator; then never more than it
    /// [has room](Stock::make_room) for.
    idle: Vec<Furnished>,
    /// Stacks that are not furnished yet.
    bare: Vec<Stack>,
    /// How many stacks are promised to this carrier, and not yet to a fiber.
    promises: usize,
    /// How many stacks were acquired at the last time; 0 if none were.
    acquired: usize,
}

impl Stock {
    /// Makes room for stacks that come back. To be called where an allocator may be.
    pub(crate) fn make_room(&mut self) {
        if self.idle.capacity() == 0 {
            self.idle.reserve_exact(LOCAL);
        }
    }

    /// Takes a furnished stack of `size`.
    ///
    /// # Errors
    /// Those of `refused`.
    #[inline]
    pub(crate) fn take(&mut self, size: StackSize, refused: Refused) -> io::Result<Furnished> {
        if size != size::default() {
            return self.take_other(size, refused);
        }
        match self.take_idle() {
            Some(stack) => Ok(stack.reset()),
            None => self.take_bare(refused),
        }
    }

    /// Takes a stack that is to be reset.
    #[inline(always)]
    fn take_idle(&mut self) -> Option<Furnished> {
        let stack = self.idle.pop()?;
        // Where many fibers have ended, the next stacks are not in the cache any more.
        let ahead = |places| self.idle.len().checked_sub(places).and_then(|i| self.idle.get(i));
        if let Some(soon) = ahead(2) {
            soon.prefetch_far();
        }
        if let Some(later) = ahead(4) {
            later.prefetch();
        }
        Some(stack)
    }

    /// Promises a fiber a stack of the default size, if that can be done; see
    /// [`unstarted`](crate::fiber::unstarted).
    #[inline]
    pub(crate) fn promise(&mut self) -> bool {
        if self.promises == 0 && !self.have_promised() {
            return false;
        }
        self.promises -= 1;
        true
    }

    /// Has the pool of bare stacks promise some more.
    #[cold]
    fn have_promised(&mut self) -> bool {
        let promised = StackPool::global().promise(size::default(), BATCH).is_ok();
        if promised {
            self.promises = BATCH;
        }
        promised
    }

    /// Takes back the promise of a fiber that has not started, or has got a stack without it.
    #[inline(always)]
    pub(crate) fn keep_promise(&mut self) {
        self.promises += 1;
    }

    /// Gives back promises of which there are too many. To be called where an allocator may be, for which a holder of
    /// the pool's lock may wait.
    #[inline]
    pub(crate) fn tidy(&mut self) {
        if self.promises > 4 * BATCH {
            self.give_promises_back(self.promises - 2 * BATCH);
        }
    }

    #[cold]
    #[inline(never)]
    fn give_promises_back(&mut self, count: usize) {
        self.promises -= count;
        StackPool::global().unpromise(size::default(), count);
    }

    /// Takes the stack that was promised to a fiber, if one is at hand whose reset calls no allocator. The fiber is to
    /// [reset](crate::fiber::furnish::reset_variables) it. Calls no allocator, and takes no lock.
    #[inline(always)]
    pub(crate) fn take_promised_idle(&mut self) -> Option<Furnished> {
        if self.idle.last()?.has_dynamic_storage() {
            return None;
        }
        let stack = self.take_idle()?;
        self.keep_promise();
        Some(stack)
    }

    /// Takes the stack that was promised to a fiber, which is to [reset](crate::fiber::furnish::reset_variables) it.
    ///
    /// # Errors
    /// When there is no memory for its guard or its bookkeeping. The fiber still has the promise.
    pub(crate) fn take_promised(&mut self) -> io::Result<Furnished> {
        if self.idle.is_empty() {
            self.take_from_pool();
        }
        if let Some(mut stack) = self.take_idle() {
            self.keep_promise();
            stack.drop_dynamic_storage();
            return Ok(stack);
        }
        // Those of the carrier, and that of the fiber.
        self.promises += 1;
        let stack = self.take_promised_bare();
        if stack.is_err() {
            self.return_promise();
        }
        stack
    }

    /// Furnishes some stacks, using up promises of this carrier, and takes one.
    fn take_promised_bare(&mut self) -> io::Result<Furnished> {
        if self.bare.is_empty() {
            let wanted = self.promises.min(self.next_batch());
            StackPool::global().acquire_promised(size::default(), wanted, &mut self.bare)?;
            self.promises -= self.bare.len();
        }
        // (At least one is there.)
        let mut failed = None;
        for stack in self.bare.drain(self.bare.len().saturating_sub(AHEAD)..) {
            match Furnished::new(stack) {
                Ok(stack) => self.idle.push(stack),
                Err(error) => failed = Some(error),
            }
        }
        self.idle.pop().ok_or_else(|| failed.expect("one was furnished, or failed"))
    }

    /// Gives a fiber its promise back: one that is left, or another.
    #[cold]
    fn return_promise(&mut self) {
        if self.promises == 0 && !self.have_promised() {
            // There was no memory for some words of bookkeeping, and none to try again later.
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<FiberStack>());
        }
        self.promises -= 1;
    }

    /// How many stacks to acquire.
    fn next_batch(&mut self) -> usize {
        self.acquired = (2 * self.acquired).clamp(FIRST, BATCH);
        self.acquired
    }

    #[cold]
    fn take_bare(&mut self, refused: Refused) -> io::Result<Furnished> {
        // Furnished one at a time: what is written to a stack long before its fiber runs would have left
        // the cache by then.
        match self.bare.pop() {
            Some(stack) => Furnished::new(stack),
            None => self.refill(refused),
        }
    }

    /// [`take`](Self::take) for a size that is not kept here.
    fn take_other(&mut self, size: StackSize, refused: Refused) -> io::Result<Furnished> {
        idle::take_pooled(size, |refusal| {
            self.clear();
            refused(size, refusal)
        })
    }

    /// Takes furnished stacks from the process's pool.
    fn take_from_pool(&mut self) {
        self.make_room();
        idle::take_some(&mut self.idle);
    }

    fn refill(&mut self, refused: Refused) -> io::Result<Furnished> {
        self.take_from_pool();
        if let Some(stack) = self.idle.pop() {
            return Ok(stack.reset());
        }
        let batch = self.next_batch();
        let mut acquired = StackPool::global().acquire_many(size::default(), batch, &mut self.bare);
        if acquired.is_err() && self.promises > 0 {
            // They may be all that is left.
            self.give_promises_back(self.promises);
            acquired = StackPool::global().acquire_many(size::default(), batch, &mut self.bare);
        }
        match acquired {
            Err(refusal) if self.bare.is_empty() => {
                Furnished::new(refused(size::default(), refusal)?)
            }
            _ => self.take_bare(refused),
        }
    }

    /// Takes back the stack of a fiber that has ended. Calls no allocator.
    #[inline]
    pub(crate) fn put(&mut self, stack: Furnished) {
        if stack.size() != size::default() {
            return idle::put(stack);
        }
        if self.idle.len() == self.idle.capacity() {
            return self.put_full(stack);
        }
        self.idle.push(stack);
    }

    #[cold]
    fn put_full(&mut self, stack: Furnished) {
        if self.idle.is_empty() {
            return idle::put(stack);
        }
        idle::put_many(size::default(), self.idle.drain(..BATCH));
        self.idle.push(stack);
    }

    /// Gives all back to the pools.
    pub(crate) fn clear(&mut self) {
        idle::put_many(size::default(), self.idle.drain(..));
        StackPool::global().release_many(&mut self.bare);
        if self.promises > 0 {
            self.give_promises_back(self.promises);
        }
    }
}
