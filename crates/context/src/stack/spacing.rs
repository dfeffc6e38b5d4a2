//! How far apart the slots of a slab lie.
//!
//! Between two slots is a page that is never touched, so takes no memory. At distances of a power of two, the top pages
//! of all stacks would compete for the same few places of the processor's second-level TLB, and their page-table
//! entries for the same lines of its caches: from some fifty fibers on, each switch would walk the page table. A
//! page more spreads them over all places. The distance is the same for all, so that a processor which guesses the
//! next address by the last two still guesses right where fibers take turns in the order of their stacks: where it
//! varied, a switch among 4,000 took twice as long.
//!
//! (`cargo run --release -p carefree --example carriers` has rows of a thousand fibers that take turns. Without the page,
//! they took 1.2 to 1.5 times as long on one carrier of an AMD machine.)
//!
//! # Large slots
//!
//! A slot that is larger than a page table's span has its guard in one table with the top of the slot below: they
//! meet in the middle of a span (`slab::offset`). As each slot lies a page further, the places where they meet move up.
//! So after [`GROUP`] slots, which is enough to fill all places of a TLB, the next one begins in the middle of a span again.
//! Where guards are too large for that, large slots have no page between them.

use super::StackSize;
use super::sys;

/// Bytes of address space that one page table spans. A page table is 4 KiB of memory, as much as a whole
/// parked fiber, so a guard should be within one span with the top page of its slot, or, where slots are
/// larger than that, with the top page of the slot below: see `slab::offset`.
pub(super) const PAGE_TABLE_SPAN: usize = 2 << 20;

/// Large slots in a row with a page between two.
const GROUP: usize = 128;

/// Where the slots of a slab lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    /// Bytes of a slot.
    size: usize,
    /// From one slot of a group to the next.
    distance: usize,
    /// Slots of a group.
    group: usize,
    /// From one group to the next.
    pitch: usize,
}

impl Spacing {
    pub(super) fn of(size: StackSize) -> Spacing {
        Self::with_guard(size, size.guard(), sys::page_size())
    }

    fn with_guard(size: StackSize, guard: usize, page: usize) -> Spacing {
        let size = size.bytes();
        let (distance, group) = match size > PAGE_TABLE_SPAN {
            false => (size + page, usize::MAX),
            true if guard + GROUP * page <= PAGE_TABLE_SPAN / 2 => (size + page, GROUP),
            true => (size, usize::MAX),
        };
        let pitch = match group {
            GROUP => (GROUP * distance).next_multiple_of(PAGE_TABLE_SPAN),
            _ => usize::MAX,
        };
        Spacing { size, distance, group, pitch }
    }

    /// How many slots, at least one, fit into so many bytes, about.
    pub(super) fn slots(self, bytes: usize) -> usize {
        (bytes / self.distance).max(1)
    }

    /// Bytes of a slab with so many slots, at least one.
    pub(super) fn bytes(self, slots: usize) -> usize {
        self.start(slots - 1) + self.distance
    }

    /// Where a slot begins, from the beginning of its slab.
    #[inline]
    pub(super) fn start(self, slot: usize) -> usize {
        let (group, place) = (slot / self.group, slot % self.group);
        place * self.distance + group * self.pitch
    }

    /// Where the slot begins that this byte of a slab is in; `None` for a byte between slots.
    pub(super) fn start_of(self, byte: usize) -> Option<usize> {
        let (group, rest) = (byte / self.pitch, byte % self.pitch);
        let (place, within) = (rest / self.distance, rest % self.distance);
        (place < self.group && within < self.size).then(|| self.start(place) + group * self.pitch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn spacings() -> impl Iterator<Item = (StackSize, usize, Spacing)> {
        (0..24).map(StackSize::of_class).flat_map(|size| {
            [PAGE, 64 << 10, 1 << 20]
                .map(|guard| (size, guard, Spacing::with_guard(size, guard, PAGE)))
        })
    }

    #[test]
    fn each_byte_of_a_slot_is_found_and_none_between() {
        for (size, _, spacing) in spacings() {
            let mut end = 0;
            for slot in 0..300 {
                let start = spacing.start(slot);
                assert!(start >= end, "{size}: {slot} overlaps the one before");
                if start > end {
                    assert_eq!(spacing.start_of(end), None);
                    assert_eq!(spacing.start_of(start - 1), None);
                }
                end = start + size.bytes();
                for byte in [start, start + size.bytes() / 2, end - 1] {
                    assert_eq!(spacing.start_of(byte), Some(start), "{size}: {slot}");
                }
                assert!(spacing.bytes(slot + 1) >= end);
            }
        }
    }

    /// Places of a TLB and sets of a cache are chosen by the low bits of a page's number.
    #[test]
    fn top_pages_are_spread_over_all_places_of_a_tlb() {
        const PLACES: usize = 128;
        for (size, guard, spacing) in spacings() {
            if size.bytes() > PAGE_TABLE_SPAN && guard > PAGE_TABLE_SPAN / 4 {
                continue;
            }
            let mut used = [0; PLACES];
            for slot in 0..4 * PLACES {
                used[((spacing.start(slot) + size.bytes()) / PAGE - 1) % PLACES] += 1;
            }
            assert!(used.iter().all(|&used| used == 4), "{size}: {used:?}");
        }
    }

    #[test]
    fn the_guard_of_a_large_slot_has_its_page_table_in_common_with_the_top_below() {
        for (size, guard, spacing) in spacings().filter(|(size, ..)| size.bytes() > PAGE_TABLE_SPAN)
        {
            let span = |byte: usize| (PAGE_TABLE_SPAN / 2 + byte) / PAGE_TABLE_SPAN;
            for slot in (1..300).filter(|slot| slot % GROUP != 0) {
                let (start, top) = (spacing.start(slot), spacing.start(slot - 1) + size.bytes());
                assert_eq!(span(top - PAGE), span(start), "{size}: {slot}");
                assert_eq!(span(start), span(start + guard - PAGE), "{size}: {slot}");
            }
            assert_eq!(spacing.start(GROUP) % PAGE_TABLE_SPAN, 0);
        }
    }
}
