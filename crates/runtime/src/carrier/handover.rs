//! Fibers that were taken out of one carrier's queue, for all others.
//!
//! Not in the [injector](crate::protocol::injector): a fiber that was woken on its way out is queued while it is
//! in the parking lot's list still, and the link of the two is the same. So these are in batches of memory
//! of their own, which are made and freed without the lock.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_ground::lock::Lock;

use crate::fiber::header::FiberRef;

/// Fibers in a batch, at most: a carrier takes one at a time.
const BATCH: usize = 64;

#[derive(Debug)]
struct Batch {
    fibers: Vec<FiberRef>,
    next: Option<Box<Batch>>,
}

#[derive(Debug)]
pub(crate) struct Handover {
    first: Lock<Option<Box<Batch>>>,
    /// Fibers in the batches. Written under the lock; a thread that knows of one there does not read 0.
    len: AtomicUsize,
}

impl Handover {
    pub(crate) const fn new() -> Handover {
        Handover { first: Lock::new(None), len: AtomicUsize::new(0) }
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
            let fibers: Vec<_> = std::iter::from_fn(&mut next).take(BATCH).collect();
            if fibers.is_empty() {
                return any;
            }
            any = true;
            let more = fibers.len();
            let batch = Box::new(Batch { fibers, next: None });
            let mut place = self.first.lock();
            let mut last = &mut *place;
            while let Some(batch) = last {
                last = &mut batch.next;
            }
            *last = Some(batch);
            self.len.store(self.len() + more, Ordering::Relaxed);
        }
    }

    /// Takes a batch out and hands its fibers to `to`.
    pub(crate) fn take(&self, to: impl FnMut(FiberRef)) {
        if self.is_empty() {
            return;
        }
        let batch = {
            let mut first = self.first.lock();
            let Some(mut batch) = mem::take(&mut *first) else { return };
            *first = batch.next.take();
            self.len.store(self.len() - batch.fibers.len(), Ordering::Relaxed);
            batch
        };
        batch.fibers.into_iter().for_each(to);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fiber::header::Header;

    #[test]
    fn batches_are_taken_in_the_order_in_which_they_came() {
        let all: Vec<_> =
            (0..2 * BATCH + 3).map(|_| FiberRef::new(Box::leak(Box::new(Header::new())))).collect();
        let (handover, mut taken) = (Handover::new(), Vec::new());
        assert!(!handover.put(|| None) && handover.is_empty());
        let mut rest = all.iter().copied();
        assert!(handover.put(|| rest.next()));
        assert_eq!(handover.len(), all.len());
        for left in [BATCH + 3, 3, 0] {
            handover.take(|fiber| taken.push(fiber));
            assert_eq!(handover.len(), left);
        }
        assert!(taken == all);
        handover.take(|_| unreachable!("it is empty"));
    }
}
