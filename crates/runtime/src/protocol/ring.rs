//! A queue in a buffer that grows.
//!
//! Like `VecDeque`, but with an operation that makes a yield cheap, [`rotate`](Ring::rotate), and with
//! memory from the kernel: the program's allocator may unlock a mutex and so queue a fiber, and must not
//! be called again then.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use carefree_ground::memory;

#[derive(Debug)]
pub(crate) struct Ring<T> {
    /// Its length is a power of two. The `len` places from `head` on are filled, modulo that length.
    buffer: Buffer<T>,
    head: usize,
    len: usize,
}

impl<T: Copy> Ring<T> {
    /// An empty queue with room for `capacity`, a power of two.
    pub(crate) fn new(capacity: usize) -> Ring<T> {
        assert!(capacity.is_power_of_two());
        Ring { buffer: Buffer::new(capacity), head: 0, len: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// For how many there is room without more memory.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    #[inline(always)]
    fn place(&mut self, index: usize) -> &mut MaybeUninit<T> {
        let mask = self.buffer.len() - 1;
        &mut self.buffer[(self.head + index) & mask]
    }

    /// The `index`th from the front.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<T> {
        let mask = self.buffer.len() - 1;
        // SAFETY: the first `len` places are filled.
        (index < self.len).then(|| unsafe { self.buffer[(self.head + index) & mask].assume_init() })
    }

    /// Lets the `index`th change places with the first.
    pub(crate) fn bring_forward(&mut self, index: usize) {
        if let (Some(first), Some(chosen)) = (self.get(0), self.get(index)) {
            self.place(index).write(first);
            self.place(0).write(chosen);
        }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        if self.len == self.buffer.len() {
            self.grow();
        }
        let end = self.len;
        self.place(end).write(value);
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let first = self.get(0)?;
        self.head += 1;
        self.len -= 1;
        Some(first)
    }

    /// Puts `value` at the end and takes the first out; nothing to do, and `None`, if the queue is
    /// empty. Never needs more room.
    #[inline(always)]
    pub(crate) fn rotate(&mut self, value: T) -> Option<T> {
        let first = self.get(0)?;
        let end = self.len;
        // In a full buffer this is the place of the first, which has been read.
        self.place(end).write(value);
        self.head += 1;
        Some(first)
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Ring::new(self.buffer.len() * 2);
        while let Some(value) = self.pop() {
            larger.push(value);
        }
        *self = larger;
    }
}

/// The memory of a queue, mapped for it alone.
#[derive(Debug)]
pub(crate) struct Buffer<T>(NonNull<[MaybeUninit<T>]>);

// SAFETY: it owns its memory, as a boxed slice does.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: a shared reference to it gives shared access only.
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T> Buffer<T> {
    pub(crate) fn new(places: usize) -> Buffer<T> {
        let bytes = places * size_of::<T>();
        let Ok(first) = memory::map(bytes) else {
            // As where an allocation fails: a wake-up cannot return an error.
            std::alloc::handle_alloc_error(
                std::alloc::Layout::array::<T>(places).expect("places fit in memory"),
            )
        };
        Buffer(NonNull::slice_from_raw_parts(first.cast(), places))
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        let bytes = self.0.len() * size_of::<T>();
        // SAFETY: `new` has mapped this memory, and no borrow of it outlives the buffer.
        unsafe { memory::unmap(self.0.cast(), bytes) };
    }
}

impl<T> std::ops::Deref for Buffer<T> {
    type Target = [MaybeUninit<T>];

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        // SAFETY: the memory stays mapped until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T> std::ops::DerefMut for Buffer<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: the memory stays mapped until this is dropped, and the borrow is exclusive.
        unsafe { self.0.as_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_queue_whatever_is_done_to_it() {
        let mut ring = Ring::new(2);
        let mut model = std::collections::VecDeque::new();
        let mut random = 1u64;
        for number in 1..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match random >> 61 {
                0..=3 => {
                    ring.push(number);
                    model.push_back(number);
                }
                4 | 5 => assert_eq!(ring.pop(), model.pop_front()),
                _ => {
                    let expected = model.pop_front();
                    if expected.is_some() {
                        model.push_back(number);
                    }
                    assert_eq!(ring.rotate(number), expected);
                }
            }
            assert_eq!(ring.len(), model.len());
            assert_eq!(ring.get(1), model.get(1).copied());
        }
    }
}
