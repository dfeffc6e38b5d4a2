//! The lists of idle slots of one size, and the slabs that the slots lie in.

use std::mem;

use super::StackSize;
use super::batch::{Batch, MOST, Slot};
use super::slab::{NIL, Slab};

/// A list of slots, last in first out, linked through [`Slab::links`].
struct List {
    head: u32,
    length: usize,
}

/// Which list: see the states of a slot in `class.rs`.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Bare,
    Dropped,
    Clean,
    Used,
}

const KINDS: [Kind; 4] = [Kind::Bare, Kind::Dropped, Kind::Clean, Kind::Used];

/// For how many slabs there is room at first.
const SLABS: usize = 32;

/// The slabs of one size, and the lists of their idle slots.
pub(super) struct Lists {
    slabs: Vec<Slab>,
    /// The first slab with untaken slots.
    frontier: usize,
    lists: [List; KINDS.len()],
}

impl Lists {
    pub(super) const fn new() -> Lists {
        Lists {
            slabs: Vec::new(),
            frontier: 0,
            lists: [const { List { head: NIL, length: 0 } }; KINDS.len()],
        }
    }

    /// The number of slots on a list.
    pub(super) fn length(&self, kind: Kind) -> usize {
        self.lists[kind as usize].length
    }

    fn slot(&self, id: u32) -> Slot {
        Slot { base: self.slabs[(id >> 16) as usize].slot(id & 0xffff), id }
    }

    fn link(&mut self, id: u32) -> &mut u32 {
        &mut self.slabs[(id >> 16) as usize].links[(id & 0xffff) as usize]
    }

    pub(super) fn pop(&mut self, kind: Kind) -> Option<Slot> {
        let id = self.lists[kind as usize].head;
        if id == NIL {
            return None;
        }
        let next = *self.link(id);
        let list = &mut self.lists[kind as usize];
        list.head = next;
        list.length -= 1;
        Some(self.slot(id))
    }

    pub(super) fn push(&mut self, kind: Kind, id: u32) {
        let next = self.lists[kind as usize].head;
        *self.link(id) = next;
        let list = &mut self.lists[kind as usize];
        list.head = id;
        list.length += 1;
    }

    /// Moves slots from a list to the batch until the batch has `most`, or the list is empty.
    pub(super) fn fill(&mut self, batch: &mut Batch, kind: Kind, most: usize) {
        while batch.len() < most.min(MOST) {
            let Some(slot) = self.pop(kind) else { break };
            batch.push(slot);
        }
    }

    /// Takes a slot that was never taken before.
    pub(super) fn take(&mut self) -> Option<Slot> {
        while let Some(slab) = self.slabs.get_mut(self.frontier) {
            if slab.taken < slab.slots() {
                let id = (self.frontier as u32) << 16 | slab.taken;
                slab.taken += 1;
                return Some(self.slot(id));
            }
            self.frontier += 1;
        }
        None
    }

    /// The number of slots that can be handed out without another slab.
    pub(super) fn spare(&self) -> usize {
        let listed: usize = self.lists.iter().map(|list| list.length).sum();
        let untaken = |slab: &Slab| (slab.slots() - slab.taken) as usize;
        listed + self.slabs.iter().map(untaken).sum::<usize>()
    }

    /// Bytes of address space that the slabs reserve.
    pub(super) fn reserved(&self) -> usize {
        self.slabs.iter().map(Slab::bytes).sum()
    }

    /// The number of slots in all slabs.
    pub(super) fn slots(&self) -> usize {
        self.slabs.iter().map(|slab| slab.slots() as usize).sum()
    }

    /// Whether there is a number for one more slab.
    pub(super) fn has_place(&self) -> bool {
        self.slabs.len() < (NIL >> 16) as usize || self.slabs.iter().any(Slab::is_vacant)
    }

    /// Room for more slabs, if that is to be made before the next is [placed](Self::place): by the caller, when the lock
    /// around this is free. (A thread that forks takes the lock where the program's allocator may be locked.)
    pub(super) fn room_to_make(&self) -> usize {
        let full = self.slabs.len() == self.slabs.capacity();
        if full { SLABS.max(2 * self.slabs.len()) } else { 0 }
    }

    /// Adds a slab, at the place of a vacant one if there is one. What is replaced of `room`, or not needed, is leaked.
    pub(super) fn place(&mut self, slab: Slab, mut room: Vec<Slab>) {
        match self.slabs.iter().position(Slab::is_vacant) {
            Some(number) => {
                self.slabs[number] = slab;
                self.frontier = self.frontier.min(number);
            }
            None => {
                if room.capacity() > self.slabs.len() {
                    room.append(&mut self.slabs);
                    mem::swap(&mut self.slabs, &mut room);
                }
                self.slabs.push(slab);
            }
        }
        mem::forget(room);
    }

    /// Condemns the slabs without a stack in use, and takes their slots off the lists; but as many slots
    /// [stay](Self::spare) as are to be kept. Allocates nothing.
    pub(super) fn condemn_idle(&mut self, keep: usize) {
        self.condemn(keep, &KINDS);
    }

    /// [`condemn_idle`](Self::condemn_idle) of the slabs whose stacks hold no memory of former users.
    pub(super) fn condemn_empty(&mut self, keep: usize) {
        self.condemn(keep, &[Kind::Bare, Kind::Dropped, Kind::Clean]);
    }

    /// Condemns slabs if all their taken slots are on lists of these kinds.
    fn condemn(&mut self, keep: usize, kinds: &[Kind]) {
        let mut more = self.spare().saturating_sub(keep);
        self.slabs.iter_mut().for_each(|slab| slab.idle = 0);
        for kind in kinds {
            let mut id = self.lists[*kind as usize].head;
            while id != NIL {
                self.slabs[(id >> 16) as usize].idle += 1;
                id = *self.link(id);
            }
        }
        for slab in self.slabs.iter_mut().filter(|slab| !slab.is_vacant()) {
            // Also true of a slab without a taken slot: when two threads reserve a slab at the same
            // time, the first may be enough for both.
            if slab.idle == slab.taken && slab.slots() as usize <= more {
                more -= slab.slots() as usize;
                slab.condemned = true;
                slab.taken = slab.slots();
            }
        }
        for kind in KINDS {
            let mut id = std::mem::replace(&mut self.lists[kind as usize].head, NIL);
            let mut last = NIL;
            while id != NIL {
                let next = *self.link(id);
                if self.slabs[(id >> 16) as usize].condemned {
                    self.lists[kind as usize].length -= 1;
                } else {
                    match last {
                        NIL => self.lists[kind as usize].head = id,
                        last => *self.link(last) = id,
                    }
                    *self.link(id) = NIL;
                    last = id;
                }
                id = next;
            }
        }
    }

    /// Removes a condemned slab, whose number stays vacant.
    pub(super) fn take_condemned(&mut self, size: StackSize) -> Option<Slab> {
        let slab = self.slabs.iter_mut().find(|slab| slab.condemned)?;
        Some(std::mem::replace(slab, Slab::vacant(size)))
    }
}
