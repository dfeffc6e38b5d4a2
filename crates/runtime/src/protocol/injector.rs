//! A list to which any thread adds and from which carriers take: of fibers that other threads have made
//! ready, and of errands.
//!
//! Its members link each other, under a lock, so adding one allocates nothing. The program's allocator
//! may make a fiber ready, when it unlocks a mutex, and must not be called again then.

#[cfg(loom)]
use carefree_ground::lock::Lock;
#[cfg(loom)]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(loom))]
use crate::protocol::sync::{AtomicUsize, Lock, Ordering};

/// A member of such a list. It has one link, so it is in one list at a time.
pub(crate) trait Linked: Copy {
    /// The member after this one.
    fn next(self) -> Option<Self>;
    /// Changes [`next`](Self::next). The caller alone has access to `self`, or holds its list's lock.
    fn set_next(self, next: Option<Self>);
}

#[derive(Debug)]
pub(crate) struct Injector<T> {
    list: Lock<List<T>>,
    /// Members of the list. Written under the lock; without it, it may be read too low or too high,
    /// but not 0 by a thread that knows of one in the list.
    len: AtomicUsize,
}

#[derive(Debug)]
struct List<T> {
    first: Option<T>,
    last: Option<T>,
}

impl<T: Linked> Injector<T> {
    /// How many are in the list, as a hint.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(crate) const fn new() -> Self {
        Injector { list: Lock::new(List { first: None, last: None }), len: AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Puts `one`, to which only the caller has access, at the end.
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

    /// Takes up to `count` members out, first in, first out, and hands each to `to`, which may put it
    /// into a list again.
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
        // Those taken are still linked, and no other thread has access to them.
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
    fn members_are_taken_in_the_order_in_which_they_came() {
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
