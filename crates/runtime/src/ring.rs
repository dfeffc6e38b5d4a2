//! A queue of fibers in a buffer that grows.
//!
//! Like `VecDeque`, with one operation more that makes a yield cheap: [`rotate`](Ring::rotate). And
//! its memory comes from the kernel, not from the program's allocator, which may be the one that
//! unlocks a mutex and so has a fiber queued.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use carefree_context::kernel;

use crate::fiber::FiberRef;

#[derive(Debug)]
pub(crate) struct Ring {
    /// Its length is a power of two; the `len` places from `head` on, modulo that, are filled.
    buffer: Buffer,
    head: usize,
    len: usize,
}

impl Ring {
    /// An empty queue with room for `capacity`, a power of two.
    pub(crate) fn new(capacity: usize) -> Ring {
        assert!(capacity.is_power_of_two());
        Ring { buffer: Buffer::new(capacity), head: 0, len: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn place(&mut self, index: usize) -> &mut MaybeUninit<FiberRef> {
        let mask = self.buffer.len() - 1;
        &mut self.buffer[(self.head + index) & mask]
    }

    /// The `index`th from the front.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<FiberRef> {
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
    pub(crate) fn push(&mut self, fiber: FiberRef) {
        if self.len == self.buffer.len() {
            self.grow();
        }
        let end = self.len;
        self.place(end).write(fiber);
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<FiberRef> {
        let first = self.get(0)?;
        self.head += 1;
        self.len -= 1;
        Some(first)
    }

    /// Puts `fiber` at the end and takes the first out: needs no room and keeps the length.
    #[inline(always)]
    pub(crate) fn rotate(&mut self, fiber: FiberRef) -> Option<FiberRef> {
        let first = self.get(0)?;
        let end = self.len;
        // If the buffer is full, this is the first one's place, which was read just now.
        self.place(end).write(fiber);
        self.head += 1;
        Some(first)
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Ring::new(self.buffer.len() * 2);
        while let Some(fiber) = self.pop() {
            larger.push(fiber);
        }
        *self = larger;
    }
}

/// Memory of its own for places in a queue.
#[derive(Debug)]
struct Buffer(NonNull<[MaybeUninit<FiberRef>]>);

// SAFETY: it owns the memory.
unsafe impl Send for Buffer {}
// SAFETY: shared, it only gives shared access.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn new(places: usize) -> Buffer {
        let bytes = places * size_of::<FiberRef>();
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let mapped =
            unsafe { kernel::call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) };
        let first = match mapped.map(|address| NonNull::new(address as *mut _)) {
            Ok(Some(first)) => first,
            // As an allocator would: who is being queued cannot be told.
            _ => std::alloc::handle_alloc_error(
                std::alloc::Layout::array::<FiberRef>(places).expect("fibers fit in memory"),
            ),
        };
        Buffer(NonNull::slice_from_raw_parts(first, places))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = self.0.len() * size_of::<FiberRef>();
        // SAFETY: mapped by `new`, and nobody else has it.
        let _ = unsafe {
            kernel::call(libc::SYS_munmap, [self.0.as_ptr() as *mut u8 as usize, bytes, 0, 0, 0, 0])
        };
    }
}

impl std::ops::Deref for Buffer {
    type Target = [MaybeUninit<FiberRef>];

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        // SAFETY: mapped for as long as this exists.
        unsafe { self.0.as_ref() }
    }
}

impl std::ops::DerefMut for Buffer {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as above, and it is borrowed mutably.
        unsafe { self.0.as_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fiber(number: usize) -> FiberRef {
        // SAFETY: never followed, only compared.
        unsafe { FiberRef::from_ptr(std::ptr::without_provenance_mut(number * 128)) }
    }

    #[test]
    fn behaves_as_a_queue_whatever_is_done_to_it() {
        let mut ring = Ring::new(2);
        let mut model = std::collections::VecDeque::new();
        let mut random = 1u64;
        for number in 1..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match random >> 61 {
                0..=3 => {
                    ring.push(fiber(number));
                    model.push_back(fiber(number));
                }
                4 | 5 => assert_eq!(ring.pop(), model.pop_front()),
                _ => {
                    let expected = model.pop_front();
                    if expected.is_some() {
                        model.push_back(fiber(number));
                    }
                    assert_eq!(ring.rotate(fiber(number)), expected);
                }
            }
            assert_eq!(ring.len(), model.len());
            assert_eq!(ring.get(1), model.get(1).copied());
        }
    }
}
