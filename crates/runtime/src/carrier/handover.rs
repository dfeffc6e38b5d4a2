//! Fibers that were taken out of one carrier's queue, for all others.
//!
//! Not in the [injector](crate::protocol::injector): a fiber that was woken on its way out is queued while it is
//! in the parking lot's list still, and the link of the two is the same. So these are in a [`Ring`], whose
//! memory is the kernel's: a fiber that is queued may hold a lock of the program's allocator, so neither the
//! monitor nor a carrier may call that one before all of them are where they will run.

use crate::carrier::policy::CAPACITY;
use crate::carrier::queue::Queue;
use crate::fiber::header::FiberRef;
use crate::protocol::ring::Ring;
use crate::protocol::sync::{AtomicUsize, Lock, Ordering, const_fn};

/// How many are moved at a time, at most.
const BATCH: usize = 64;
/// A carrier takes one of so many that are there, and leaves the rest to others: the first that it takes may keep it.
const SHARE: usize = 8;

#[derive(Debug)]
pub(crate) struct Handover {
    /// None until there are some.
    fibers: Lock<Option<Ring<FiberRef>>>,
    /// How many there are. Written under the lock; a thread that knows of one there does not read 0.
    len: AtomicUsize,
}

impl Handover {
    const_fn! {
        pub(crate) fn new() -> Handover {
            Handover { fibers: Lock::new(None), len: AtomicUsize::new(0) }
        }
    }

    /// How many there are, as a hint.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts all that `next` returns behind those that are there. Returns whether there were any.
    pub(crate) fn put(&self, mut next: impl FnMut() -> Option<FiberRef>) -> bool {
        let mut any = false;
        loop {
            // `next` may wait for a moment, so the lock is not held meanwhile.
            let mut batch = [None; BATCH];
            let filled = batch.iter_mut().zip(std::iter::from_fn(&mut next));
            if filled.map(|(place, fiber)| *place = Some(fiber)).count() == 0 {
                return any;
            }
            any = true;
            let mut fibers = self.fibers.lock();
            let ring = fibers.get_or_insert_with(|| Ring::new(CAPACITY));
            batch.into_iter().flatten().for_each(|fiber| ring.push(fiber));
            self.len.store(ring.len(), Ordering::Relaxed);
        }
    }

    /// Puts some of what is queued in `from` behind those that are there, for a thread that is not its owner.
    /// Returns whether there were any.
    pub(crate) fn put_from(&self, from: &Queue) -> bool {
        let mut loot = from.loot();
        self.put(|| loot.next())
    }

    /// Takes the first out, up to a [`SHARE`], and hands them to `to`.
    pub(crate) fn take(&self, to: impl FnMut(FiberRef)) {
        if self.is_empty() {
            return;
        }
        let mut batch = [None; BATCH];
        // One of the least size is kept: it will be wanted again soon. Unmapped when the lock is free again.
        let mut emptied = None;
        {
            let mut fibers = self.fibers.lock();
            let Some(ring) = fibers.as_mut() else { return };
            let share = ring.len().div_ceil(SHARE).min(BATCH);
            batch[..share].fill_with(|| ring.pop());
            self.len.store(ring.len(), Ordering::Relaxed);
            if ring.len() == 0 && ring.capacity() > CAPACITY {
                emptied = fibers.take();
            }
        }
        drop(emptied);
        batch.into_iter().flatten().for_each(to);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fiber::header::Header;

    #[test]
    fn fibers_are_taken_by_shares_in_the_order_in_which_they_came() {
        let all: Vec<_> = (0..SHARE * BATCH + 8)
            .map(|_| FiberRef::new(Box::leak(Box::new(Header::new()))))
            .collect();
        let (handover, mut taken) = (Handover::new(), Vec::new());
        assert!(!handover.put(|| None) && handover.is_empty());
        let mut rest = all.iter().copied();
        assert!(handover.put(|| rest.next()));
        assert_eq!(handover.len(), all.len());
        handover.take(|fiber| taken.push(fiber));
        assert_eq!(taken.len(), BATCH);
        while !handover.is_empty() {
            let (before, there) = (taken.len(), handover.len());
            handover.take(|fiber| taken.push(fiber));
            assert_eq!(taken.len() - before, there.div_ceil(SHARE).min(BATCH));
            assert_eq!(handover.len(), all.len() - taken.len());
        }
        assert!(taken == all);
        handover.take(|_| unreachable!("it is empty"));
    }

    /// A fiber that was woken on its way out is handed over while it is in the parking lot's list.
    #[test]
    fn the_links_of_a_fiber_are_left_alone() {
        let [one, before, after] =
            [(); 3].map(|()| FiberRef::new(Box::leak(Box::new(Header::new()))));
        one.next.set(Some(after));
        one.previous.set(Some(before));
        let (handover, mut rest) = (Handover::new(), vec![one, before, after].into_iter());
        assert!(handover.put(|| rest.next()));
        (0..3).for_each(|_| handover.take(|_| ()));
        assert!(handover.is_empty());
        assert!(one.next.get() == Some(after) && one.previous.get() == Some(before));
        assert!(before.next.get().is_none() && after.previous.get().is_none());
    }
}
