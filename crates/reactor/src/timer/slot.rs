//! How a wheel's slots store their entries.
//!
//! A textbook timing wheel links the timers of a slot through the timers themselves. Once the
//! timers outgrow the cache, each step along such a list is a cache miss that depends on the one
//! before. Here a slot links *blocks* of fifteen entries, each entry a deadline and the index of
//! its timer, so a walk reads neighbouring words and knows the next fifteen timers at once.
//! Removing an entry from the middle moves the slot's last entry into the hole. That loses the
//! order inside a slot; the wheel sorts timers that are due instead.
//!
//! ```text
//!   slot: earliest, head, filled            block (192 bytes, three cache lines)
//!   ┌──────────────┐    ┌────────────────────────────────┐    ┌──────────────┐
//!   │ head ────────┼──▶ │ deadlines[15]  timers[15]  next┼──▶ │ (full) ...   │──▶ NONE
//!   │ filled: 1..15│    │ first `filled` are in use      │    │              │
//!   └──────────────┘    └────────────────────────────────┘    └──────────────┘
//! ```

use super::table::Table;

/// Entries in one block: as many as fill three cache lines with the link to the next block.
pub(super) const BLOCK: usize = 15;

/// The index that means "none".
const NONE: u32 = u32::MAX;

/// One timer's entry in its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) deadline: u64,
    /// Index of the timer in the wheel's table.
    pub(super) timer: u32,
}

/// An entry's place: the block's index in the high 28 bits, the position in it in the low 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    fn new(block: u32, position: usize) -> Self {
        Place(block << 4 | position as u32)
    }

    fn block(self) -> u32 {
        self.0 >> 4
    }

    fn position(self) -> usize {
        (self.0 & 15) as usize
    }
}

/// The entries whose deadlines fall into one interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// No entry is due before this. It is the earliest deadline until an entry is taken out;
    /// from then on it may be earlier, since finding the next one would take a walk.
    pub(super) earliest: u64,
    head: u32,
    /// Entries in use in the head block, 1..=BLOCK; the blocks behind it are full. 0 only when
    /// the slot is empty.
    filled: u32,
}

impl Slot {
    pub(super) const EMPTY: Slot = Slot { earliest: u64::MAX, head: NONE, filled: 0 };

    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Block {
    pub(super) deadlines: [u64; BLOCK],
    pub(super) timers: [u32; BLOCK],
    next: u32,
}

const _: () = assert!(size_of::<Block>() == 192);

/// All blocks of a wheel, in use or free.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Table<Block>,
    /// First free block; the others follow through `next`.
    free: u32,
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Blocks { blocks: Table::new(), free: NONE }
    }

    /// Adds `entry` to `slot`; returns its place.
    pub(super) fn push(&mut self, slot: &mut Slot, entry: Entry) -> Place {
        if slot.filled as usize == BLOCK || slot.is_empty() {
            slot.head = self.allocate(slot.head);
            slot.filled = 0;
        }
        let position = slot.filled as usize;
        let block = &mut self.blocks[slot.head];
        block.deadlines[position] = entry.deadline;
        block.timers[position] = entry.timer;
        slot.filled += 1;
        slot.earliest = slot.earliest.min(entry.deadline);
        Place::new(slot.head, position)
    }

    /// Takes the entry at `place` out of `slot`, which must hold it. If another entry was moved
    /// into its place, returns the index of that entry's timer.
    pub(super) fn take(&mut self, slot: &mut Slot, place: Place) -> Option<u32> {
        let head = slot.head;
        let last = Place::new(head, slot.filled as usize - 1);
        let from = &self.blocks[head];
        let entry = Entry {
            deadline: from.deadlines[last.position()],
            timer: from.timers[last.position()],
        };
        slot.filled -= 1;
        if slot.filled == 0 {
            slot.head = self.release(head);
            if slot.is_empty() {
                *slot = Slot::EMPTY;
            } else {
                slot.filled = BLOCK as u32;
            }
        }
        if last == place {
            return None;
        }
        let to = &mut self.blocks[place.block()];
        to.deadlines[place.position()] = entry.deadline;
        to.timers[place.position()] = entry.timer;
        Some(entry.timer)
    }

    /// Removes the head block from `slot`; returns a copy of it and the number of entries in use. The
    /// block itself is free at once, for entries that are filed again while a slot is emptied.
    pub(super) fn pop_block(&mut self, slot: &mut Slot) -> Option<(Block, usize)> {
        if slot.is_empty() {
            return None;
        }
        let (block, filled) = (self.blocks[slot.head], slot.filled as usize);
        slot.head = self.release(slot.head);
        slot.filled = BLOCK as u32;
        Some((block, filled))
    }

    /// Allocates a block whose next is `next`.
    fn allocate(&mut self, next: u32) -> u32 {
        if self.free != NONE {
            let index = self.free;
            let block = &mut self.blocks[index];
            self.free = block.next;
            block.next = next;
            return index;
        }
        let index = self.blocks.len();
        // `Place` has 28 bits for the block: four billion timers, of 150 GB.
        assert!(index < 1 << 28, "a timer wheel holds 2^28 blocks of timers");
        self.blocks.push(Block { deadlines: [0; BLOCK], timers: [0; BLOCK], next });
        index as u32
    }

    /// Frees the block; returns the next one.
    fn release(&mut self, index: u32) -> u32 {
        let block = &mut self.blocks[index];
        let next = block.next;
        block.next = self.free;
        self.free = index;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(blocks: &mut Blocks, mut slot: Slot) -> Vec<(u64, u32)> {
        let mut all = Vec::new();
        while let Some((block, filled)) = blocks.pop_block(&mut slot) {
            all.extend((0..filled).map(|i| (block.deadlines[i], block.timers[i])));
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn a_slot_returns_the_entries_pushed() {
        for count in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 10 * BLOCK + 3] {
            let (mut blocks, mut slot) = (Blocks::new(), Slot::EMPTY);
            for n in 0..count {
                let (deadline, timer) = (1000 - n as u64, n as u32);
                blocks.push(&mut slot, Entry { deadline, timer });
            }
            assert_eq!(slot.is_empty(), count == 0);
            if count > 0 {
                assert_eq!(slot.earliest, 1001 - count as u64);
            }
            let wanted: Vec<_> = (0..count).rev().map(|n| (1000 - n as u64, n as u32)).collect();
            assert_eq!(entries(&mut blocks, slot), wanted);
        }
    }

    #[test]
    fn taking_out_moves_the_last_entry_and_frees_blocks() {
        let (mut blocks, mut slot) = (Blocks::new(), Slot::EMPTY);
        let count = 3 * BLOCK as u32;
        let mut places: Vec<Place> = (0..count)
            .map(|timer| blocks.push(&mut slot, Entry { deadline: u64::from(timer), timer }))
            .collect();
        // Every third, from the front: in most cases another entry is moved into the hole.
        let mut gone = Vec::new();
        for timer in (0..count).step_by(3) {
            if let Some(moved) = blocks.take(&mut slot, places[timer as usize]) {
                places[moved as usize] = places[timer as usize];
            }
            gone.push(timer);
        }
        let left: Vec<u32> = (0..count).filter(|timer| !gone.contains(timer)).collect();
        for &timer in &left {
            let place = places[timer as usize];
            assert_eq!(blocks.blocks[place.block()].timers[place.position()], timer);
        }
        // The rest, from the back, until the slot is empty.
        for &timer in left.iter().rev() {
            if let Some(moved) = blocks.take(&mut slot, places[timer as usize]) {
                places[moved as usize] = places[timer as usize];
            }
        }
        assert!(slot.is_empty());
        // The three blocks are reused, and no fourth is allocated.
        for timer in 0..count {
            blocks.push(&mut slot, Entry { deadline: 1, timer });
        }
        assert_eq!(blocks.blocks.len(), 3);
    }
}
