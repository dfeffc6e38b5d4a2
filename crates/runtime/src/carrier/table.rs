//! The carriers of a runtime, by index: those it began with, and spare ones that were added.
//!
//! Their memory is the kernel's: a carrier may be added to run the fiber that holds the lock of the program's
//! allocator.

use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Index;
use std::ptr;

use carefree_ground::own::Own;

use crate::protocol::sync::{AtomicPtr, AtomicUsize, Ordering};

/// A list that grows while others read it. What is in it stays there until the list is dropped.
pub(crate) struct Table<C> {
    places: Box<[AtomicPtr<C>]>,
    len: AtomicUsize,
    /// How many it began with.
    base: usize,
    owns: PhantomData<Own<C>>,
}

impl<C> Table<C> {
    /// With these carriers, and room for so many in all.
    pub(crate) fn new(carriers: impl ExactSizeIterator<Item = Own<C>>, room: usize) -> Self {
        let base = carriers.len();
        let mut places: Vec<_> = carriers.map(|one| AtomicPtr::new(one.into_raw())).collect();
        places.resize_with(room.max(base), || AtomicPtr::new(ptr::null_mut()));
        Table {
            places: places.into_boxed_slice(),
            len: AtomicUsize::new(base),
            base,
            owns: PhantomData,
        }
    }

    /// How many there were at first: those that run fibers while none is kept by one.
    #[inline]
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Whether carriers can be added to these.
    pub(crate) fn has_room(&self) -> bool {
        self.places.len() > self.base
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&C> {
        let place = self.places.get(index)?;
        // SAFETY: null, or a carrier that is dropped with the table; published with release.
        unsafe { place.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    pub(crate) fn iter(&self) -> Iter<'_, C> {
        Iter { table: self, next: 0, end: self.len() }
    }

    /// Adds the carrier that `make` makes of its index, unless there is no room. One thread at a time
    /// calls this.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> Own<C>) -> Option<&C> {
        let index = self.len();
        let place = self.places.get(index)?;
        place.store(make(index).into_raw(), Ordering::Release);
        self.len.store(index + 1, Ordering::Release);
        self.get(index)
    }
}

impl<C> Index<usize> for Table<C> {
    type Output = C;

    fn index(&self, index: usize) -> &C {
        self.get(index).expect("a carrier's index")
    }
}

impl<'a, C> IntoIterator for &'a Table<C> {
    type Item = &'a C;
    type IntoIter = Iter<'a, C>;

    fn into_iter(self) -> Iter<'a, C> {
        self.iter()
    }
}

impl<C> Drop for Table<C> {
    fn drop(&mut self) {
        for place in &mut self.places {
            let carrier = *place.get_mut();
            if !carrier.is_null() {
                // SAFETY: from `Own::into_raw`, and nothing borrows the table any more.
                drop(unsafe { Own::from_raw(carrier) });
            }
        }
    }
}

impl<C: std::fmt::Debug> std::fmt::Debug for Table<C> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self).finish()
    }
}

/// The carriers that were there when it began.
pub(crate) struct Iter<'a, C> {
    table: &'a Table<C>,
    next: usize,
    end: usize,
}

impl<'a, C> Iterator for Iter<'a, C> {
    type Item = &'a C;

    #[inline]
    fn next(&mut self) -> Option<&'a C> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        self.table.get(self.next - 1)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl<C> ExactSizeIterator for Iter<'_, C> {}
impl<C> FusedIterator for Iter<'_, C> {}
