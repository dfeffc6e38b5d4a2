//! The list of a scope's coroutines.

use std::cell::Cell;
use std::ptr;

/// A node of the list: the scope's own, which is the list's head, or one in a coroutine's control
/// block. Null where there is no neighbour. One thread owns all nodes of a list.
pub(super) struct Links {
    previous: Cell<*const Links>,
    next: Cell<*const Links>,
}

impl Links {
    /// A node in no list, or the head of an empty one.
    pub(super) const fn none() -> Links {
        Links { previous: Cell::new(ptr::null()), next: Cell::new(ptr::null()) }
    }

    /// The next node, or null.
    pub(super) fn next(&self) -> *const Links {
        self.next.get()
    }

    /// Inserts `new` behind this node.
    ///
    /// # Safety
    /// Both nodes stay alive at their addresses until they are [removed](Self::remove), or, for the
    /// head, until the list is empty.
    pub(super) unsafe fn insert(&self, new: *const Links) {
        let next = self.next.replace(new);
        // SAFETY: `new` is alive. So is `next`: it was inserted under the same condition and is
        // still in the list.
        unsafe {
            (*new).previous.set(self);
            (*new).next.set(next);
            if let Some(next) = next.as_ref() {
                next.previous.set(new);
            }
        }
    }

    /// Removes this node from its list, if it is in one.
    ///
    /// # Safety
    /// The node is not a head, and is alive.
    #[inline]
    pub(super) unsafe fn remove(&self) {
        // SAFETY: only `insert` sets these pointers, and it requires nodes to stay alive as long as
        // they are in the list, as both neighbours are.
        unsafe {
            if let Some(previous) = self.previous.get().as_ref() {
                previous.next.set(self.next.get());
                if let Some(next) = self.next.get().as_ref() {
                    next.previous.set(previous);
                }
            }
        }
    }
}
