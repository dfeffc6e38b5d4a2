//! Vectors in memory mapped for them alone, for what must not call the program's allocator.
//!
//! A fiber may wait, be woken and go on within the allocator, for one of its locks or in a short sleep. What
//! the scheduler does on its way there and back would enter the allocator a second time. And a report says why
//! a program hangs: the cause may be its allocator. So both use memory from neither the global
//! allocator nor malloc. It grows as a `Vec` does; if the kernel refuses more, a report is truncated.

use std::alloc::Layout;
use std::fmt;
use std::mem::{align_of, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::{kernel, memory};

/// The least size of a mapping in bytes, and what sizes are multiples of.
const LEAST: usize = 4096;

/// A vector in a mapping. An empty one has none.
pub struct Mapped<T: Copy> {
    first: NonNull<T>,
    len: usize,
    /// Bytes mapped.
    bytes: usize,
}

// SAFETY: it owns its mapping, as a `Vec` owns its memory, and a mapping is tied to no thread.
unsafe impl<T: Copy + Send> Send for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// An empty vector, without a mapping.
    pub const fn new() -> Mapped<T> {
        assert!(align_of::<T>() <= LEAST && size_of::<T>() > 0);
        Mapped { first: NonNull::dangling(), len: 0, bytes: 0 }
    }

    /// Makes room for `more` elements; returns whether there is.
    #[inline]
    pub fn reserve(&mut self, more: usize) -> bool {
        more <= self.capacity() - self.len || self.grow(more)
    }

    #[cold]
    fn grow(&mut self, more: usize) -> bool {
        let needed = self.len.checked_add(more).and_then(|len| len.checked_mul(size_of::<T>()));
        let Some(needed) = needed.filter(|needed| *needed <= isize::MAX as usize / 2) else {
            return false;
        };
        let bytes = needed.max(2 * self.bytes).next_multiple_of(LEAST);
        let mapped = if self.bytes == 0 {
            memory::map(bytes).ok()
        } else {
            let (old, moves) = (self.first.as_ptr() as usize, libc::MREMAP_MAYMOVE as usize);
            // SAFETY: only this vector uses the mapping, and `&mut self` excludes borrows from it.
            let moved =
                unsafe { kernel::call(libc::SYS_mremap, [old, self.bytes, bytes, moves, 0, 0]) };
            moved.ok().and_then(|address| NonNull::new(address as *mut u8))
        };
        let Some(first) = mapped else { return false };
        (self.first, self.bytes) = (first.cast(), bytes);
        true
    }

    /// Adds an element at the end; returns whether there was room for it.
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        if !self.reserve(1) {
            return false;
        }
        // SAFETY: there is room for one more element.
        unsafe { self.first.as_ptr().add(self.len).write(value) };
        self.len += 1;
        true
    }

    /// Adds an element at the end. Where the kernel has no memory for it, the process ends, as where an
    /// allocation fails.
    #[inline]
    pub fn push_or_abort(&mut self, value: T) {
        if !self.push(value) {
            abort::<T>();
        }
    }

    /// Moves all elements of `other` to the end. Without memory for them, the process ends.
    pub fn append(&mut self, other: &mut Mapped<T>) {
        if self.len == 0 {
            std::mem::swap(self, other);
        } else if !self.extend(other) {
            abort::<T>();
        }
        other.clear();
    }

    /// Removes the last element, and returns it.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.last().copied()?;
        self.len -= 1;
        Some(last)
    }

    /// Adds elements at the end; returns whether there was room for them.
    pub fn extend(&mut self, values: &[T]) -> bool {
        if !self.reserve(values.len()) {
            return false;
        }
        // SAFETY: there is room for this many more elements, and `&mut self` excludes that `values`
        // borrows from the mapping.
        unsafe {
            let end = self.first.as_ptr().add(self.len);
            ptr::copy_nonoverlapping(values.as_ptr(), end, values.len());
        }
        self.len += values.len();
        true
    }

    /// For how many elements there is room.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes / size_of::<T>()
    }

    /// Removes all elements but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// Ends the process for want of memory.
#[cold]
fn abort<T>() -> ! {
    std::alloc::handle_alloc_error(Layout::new::<T>())
}

impl Mapped<u8> {
    /// Calls `fill` with the room behind the end, at least `least` bytes, to write to it and return
    /// how many bytes it has written. Returns its result; `None` without room.
    pub fn fill<E>(
        &mut self,
        least: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        if !self.reserve(least) {
            return None;
        }
        // SAFETY: the mapping has `bytes` bytes, and the kernel has initialised all of them.
        let room = unsafe {
            std::slice::from_raw_parts_mut(self.first.as_ptr().add(self.len), self.bytes - self.len)
        };
        let (most, filled) = (room.len(), fill(room));
        if let Ok(count) = &filled {
            self.len += (*count).min(most);
        }
        Some(filled)
    }
}

impl<T: Copy> Default for Mapped<T> {
    fn default() -> Self {
        Mapped::new()
    }
}

impl<T: Copy> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were written; a page is aligned for them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for Mapped<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` elements were written; a page is aligned for them, and `&mut self` is the
        // only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T: Copy> Drop for Mapped<T> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: only this vector uses the mapping, and nothing borrows from it any more.
            unsafe { memory::unmap(self.first.cast(), self.bytes) };
        }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Mapped<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_keeps_what_was_there() {
        let mut numbers = Mapped::new();
        assert!(numbers.is_empty() && !format!("{numbers:?}").contains('0'));
        for n in 0..10_000u64 {
            assert!(numbers.push(n));
        }
        assert!(numbers.iter().copied().eq(0..10_000));
        numbers[9] = 77;
        numbers.truncate(10);
        assert_eq!(numbers.last(), Some(&77));
        numbers.push_or_abort(78);
        assert_eq!((numbers.pop(), numbers.len()), (Some(78), 10));
        assert_eq!(Mapped::<u64>::new().pop(), None);
        assert!(!numbers.reserve(usize::MAX) && !numbers.reserve(usize::MAX / 16));
        assert_eq!(numbers.len(), 10);
    }
}
