//! A batch of slots on their way between lists.

use super::guard::Range;
use super::slab::NIL;

/// The most stacks in a batch.
///
/// Larger batches than 32 save no measurable time. Each slot of a batch takes 16 bytes, and another
/// 16 to tell the kernel of it, on the stack of the caller, which may itself be a fiber with a
/// small one.
pub(super) const MOST: usize = 64;

/// A slot that is on no list, and so belongs to its holder.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) base: *mut u8,
    /// The slab's number in the upper half, the slot's number in its slab in the lower.
    pub(super) id: u32,
}

/// Up to [`MOST`] slots.
pub(super) struct Batch {
    slots: [Slot; MOST],
    length: usize,
}

impl Batch {
    pub(super) fn new() -> Self {
        Batch { slots: [Slot { base: std::ptr::null_mut(), id: NIL }; MOST], length: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn push(&mut self, slot: Slot) {
        self.slots[self.length] = slot;
        self.length += 1;
    }

    pub(super) fn as_slice(&self) -> &[Slot] {
        &self.slots[..self.length]
    }

    /// Calls `body` with the same part of every slot.
    pub(super) fn ranges<T>(
        &self,
        offset: usize,
        bytes: usize,
        body: impl FnOnce(&[Range]) -> T,
    ) -> T {
        let mut ranges = [Range { iov_base: std::ptr::null_mut(), iov_len: 0 }; MOST];
        for (range, slot) in ranges.iter_mut().zip(self.as_slice()) {
            *range = Range { iov_base: slot.base.wrapping_add(offset).cast(), iov_len: bytes };
        }
        body(&ranges[..self.length])
    }
}
