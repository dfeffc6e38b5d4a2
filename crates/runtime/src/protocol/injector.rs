//! A list to which any thread adds, and that carriers take from: fibers made ready by others than the
//! carriers that run them.
//!
//! It is linked through what is in it, under a lock: putting one in allocates nothing. That matters
//! because a fiber can be made ready from within the program's allocator, by the unlocking of a
//! mutex that a fiber waits for.

use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_ground::lock::Lock;

/// What can be in one such list at a time, by a link of its own.
pub(crate) trait Linked: Copy {
    /// The one after this.
    fn next(self) -> Option<Self>;
    /// Changes [`next`](Self::next). The caller alone has `self`, or holds the lock of its list.
    fn set_next(self, next: Option<Self>);
}

#[derive(Debug)]
pub(crate) struct Injector<T> {
    list: Lock<List<T>>,
    /// How many are in the list. A hint, except to a thread that put one in or saw it being put in.
    len: AtomicUsize,
}

#[derive(Debug)]
struct List<T> {
    first: Option<T>,
    last: Option<T>,
}

impl<T: Linked> Injector<T> {
    pub(crate) const fn new() -> Self {
        Injector { list: Lock::new(List { first: None, last: None }), len: AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Puts `one`, which only the caller has, at the end.
    pub(crate) fn push(&self, one: T) {
        one.set_next(None);
        let mut list = self.list.lock();
        match list.last {
            Some(last) => last.set_next(Some(one)),
            None => list.first = Some(one),
        }
        list.last = Some(one);
        self.len.store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Takes up to `count` out, the first to come first, and hands each to `to`, which may do with it
    /// what it likes.
    pub(crate) fn take(&self, count: usize, mut to: impl FnMut(T)) {
        if self.is_empty() {
            return;
        }
        let (mut first, taken) = {
            let mut list = self.list.lock();
            let first = list.first;
            let mut taken = 0;
            while let (Some(one), true) = (list.first, taken < count) {
                list.first = one.next();
                taken += 1;
            }
            if list.first.is_none() {
                list.last = None;
            }
            self.len.store(self.len.load(Ordering::Relaxed) - taken, Ordering::Relaxed);
            (first, taken)
        };
        // Up to the last one taken, the chain is the caller's now.
        for _ in 0..taken {
            let Some(one) = first else { break };
            first = one.next();
            to(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Link(usize, Cell<Option<&'static Link>>);

    impl Linked for &'static Link {
        fn next(self) -> Option<Self> {
            self.1.get()
        }

        fn set_next(self, next: Option<Self>) {
            self.1.set(next);
        }
    }

    #[test]
    fn the_first_to_come_is_the_first_to_be_taken() {
        let link = |number| -> &'static Link { Box::leak(Box::new(Link(number, Cell::new(None)))) };
        let (injector, mut taken) = (Injector::new(), Vec::new());
        (0..5).for_each(|number| injector.push(link(number)));
        // One that is taken may be put in again at once.
        injector.take(3, |one| {
            taken.push(one.0);
            injector.push(one);
        });
        injector.take(100, |one| taken.push(one.0));
        assert_eq!(taken, [0, 1, 2, 3, 4, 0, 1, 2]);
        assert!(injector.is_empty());
    }
}
