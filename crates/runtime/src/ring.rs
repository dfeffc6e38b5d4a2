//! A queue of fibers in a buffer that grows.
//!
//! Like `VecDeque`, with one operation more that makes a yield cheap: [`rotate`](Ring::rotate).

use std::mem::MaybeUninit;

use crate::fiber::FiberRef;

#[derive(Debug)]
pub(crate) struct Ring {
    /// Its length is a power of two; the `len` places from `head` on, modulo that, are filled.
    buffer: Box<[MaybeUninit<FiberRef>]>,
    head: usize,
    len: usize,
}

impl Ring {
    /// An empty queue with room for `capacity`, a power of two.
    pub(crate) fn new(capacity: usize) -> Ring {
        assert!(capacity.is_power_of_two());
        Ring { buffer: vec![MaybeUninit::uninit(); capacity].into(), head: 0, len: 0 }
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
