//! Fibers made ready by others than the carriers that run them.
//!
//! A list through the fibers' headers, under a lock: putting one in allocates nothing. That matters
//! because a fiber can be made ready from within the program's allocator, by the unlocking of a
//! mutex that a fiber waits for.
//!
//! The link is that of the parking lot's lists: a fiber is out of those before it is made ready.

use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_context::lock::Lock;

use crate::fiber::FiberRef;

#[derive(Debug)]
pub(crate) struct Injector {
    list: Lock<List>,
    /// How many are in the list. A hint, but for who put one in or saw it being put in.
    len: AtomicUsize,
}

#[derive(Debug)]
struct List {
    first: Option<FiberRef>,
    last: Option<FiberRef>,
}

impl Injector {
    pub(crate) const fn new() -> Self {
        Injector { list: Lock::new(List { first: None, last: None }), len: AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Puts a fiber at the end. It is ready: off its stack, and nobody else has it.
    pub(crate) fn push(&self, fiber: FiberRef) {
        fiber.next.set(None);
        let mut list = self.list.lock();
        match list.last {
            Some(last) => last.next.set(Some(fiber)),
            None => list.first = Some(fiber),
        }
        list.last = Some(fiber);
        self.len.store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Takes up to `count` fibers out, the first to come first, and hands each to `to`, which may
    /// do with it what it likes.
    pub(crate) fn take(&self, count: usize, mut to: impl FnMut(FiberRef)) {
        if self.is_empty() {
            return;
        }
        let (mut first, taken) = {
            let mut list = self.list.lock();
            let first = list.first;
            let mut taken = 0;
            while let (Some(fiber), true) = (list.first, taken < count) {
                list.first = fiber.next.get();
                taken += 1;
            }
            if list.first.is_none() {
                list.last = None;
            }
            self.len.store(self.len.load(Ordering::Relaxed) - taken, Ordering::Relaxed);
            (first, taken)
        };
        // The chain is ours now, up to the last one taken.
        for _ in 0..taken {
            let Some(fiber) = first else { break };
            first = fiber.next.get();
            to(fiber);
        }
    }
}
