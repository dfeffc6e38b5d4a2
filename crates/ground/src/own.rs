//! A value in a mapping of its own, where a `Box` or an `Arc` would ask the program's allocator.
//!
//! Some of the runtime's threads must go on while a fiber holds the lock of that allocator: what they did
//! next may be what lets the fiber run and give the lock back. A mapping takes whole pages, so this is for
//! what there are few of.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::mem::{align_of, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::memory;

/// What mappings are aligned to, at least.
const PAGE: usize = 4096;

/// Takes a value out of its box, and leaks the box's memory: for where the program's allocator may be locked.
pub fn unboxed<T>(boxed: Box<T>) -> T {
    // SAFETY: the box had a value, and is not used again.
    unsafe { Box::into_raw(boxed).read() }
}

/// A value with one owner, as in a `Box`.
pub struct Own<T>(NonNull<T>);

// SAFETY: it owns its value, as a `Box` does, and a mapping is tied to no thread.
unsafe impl<T: Send> Send for Own<T> {}
// SAFETY: a shared reference to it gives shared access only.
unsafe impl<T: Sync> Sync for Own<T> {}

impl<T> Own<T> {
    /// Moves a value there. Where the kernel refuses the memory, ends the process as a `Box` does.
    pub fn new(value: T) -> Own<T> {
        const { assert!(align_of::<T>() <= PAGE && size_of::<T>() > 0) };
        let Ok(place) = memory::map(size_of::<T>()) else { handle_alloc_error(Layout::new::<T>()) };
        let place = place.cast::<T>();
        // SAFETY: the mapping is large enough, aligned to a page, and nothing else uses it.
        unsafe { place.write(value) };
        Own(place)
    }

    /// Gives the value up, for [`from_raw`](Self::from_raw).
    pub fn into_raw(self) -> *mut T {
        let place = self.0;
        std::mem::forget(self);
        place.as_ptr()
    }

    /// Takes it back.
    ///
    /// # Safety
    /// `place` is from [`into_raw`](Self::into_raw), and is taken back once, when nothing borrows the value.
    pub unsafe fn from_raw(place: *mut T) -> Own<T> {
        // SAFETY: `into_raw` returns no null.
        Own(unsafe { NonNull::new_unchecked(place) })
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the value is there until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Own<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the value is there until this is dropped, and the borrow is exclusive.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        // SAFETY: written by `new`, and nothing borrows it any more; the mapping is this value's alone.
        unsafe {
            self.0.drop_in_place();
            memory::unmap(self.0.cast(), size_of::<T>());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Own<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

struct Counted<T> {
    owners: AtomicUsize,
    value: T,
}

/// A value with several owners, as in an `Arc`.
pub struct Shared<T>(NonNull<Counted<T>>);

// SAFETY: as for an `Arc`: owners on several threads share the value, and the last one drops it.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Moves a value there. Where the kernel refuses the memory, ends the process as an `Arc` does.
    pub fn new(value: T) -> Shared<T> {
        let counted = Own::new(Counted { owners: AtomicUsize::new(1), value });
        // SAFETY: `into_raw` returns no null.
        Shared(unsafe { NonNull::new_unchecked(counted.into_raw()) })
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // SAFETY: there until its last owner is dropped, and `self` is one.
        unsafe { self.0.as_ref() }.owners.fetch_add(1, Ordering::Relaxed);
        Shared(self.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: there until its last owner is dropped, and `self` is one.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: there until its last owner is dropped, and `self` is one.
        if unsafe { self.0.as_ref() }.owners.fetch_sub(1, Ordering::Release) == 1 {
            // What the others have done to the value comes before its end.
            fence(Ordering::Acquire);
            // SAFETY: `new` has made it, and its last owner is this.
            drop(unsafe { Own::from_raw(self.0.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_value_is_dropped_with_its_last_owner() {
        let inside = Arc::new(());
        let own = Own::new(([7u8; 3 * PAGE], Arc::clone(&inside)));
        let (bytes, _) = &*own;
        assert_eq!(bytes[3 * PAGE - 1], 7);
        let raw = own.into_raw();
        assert_eq!(Arc::strong_count(&inside), 2);
        // SAFETY: from `into_raw`, once.
        drop(unsafe { Own::from_raw(raw) });
        assert_eq!(Arc::strong_count(&inside), 1);

        let first = Shared::new(Arc::clone(&inside));
        let owners: Vec<_> = (0..8).map(|_| first.clone()).collect();
        let threads = owners.into_iter().map(|owner| std::thread::spawn(move || drop(owner)));
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(Arc::strong_count(&inside), 2);
        drop(first);
        assert_eq!(Arc::strong_count(&inside), 1);
    }
}
