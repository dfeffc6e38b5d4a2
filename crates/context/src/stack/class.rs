//! The stacks of one size: which are out, which are idle, and in what state.
//!
//! A slot's life:
//!
//! ```text
//!  untaken --take--> bare --guard--> dropped --populate--> clean --hand out--> in use
//!                     ^  |                ^                                    |   ^
//!                     +--+ (refused)      +---- give back ---- used <--release-+   | hand out
//!                                                               |                  |
//!                                                               +------------------+
//! ```
//!
//!  - *untaken*: above `Slab::taken`; address space and nothing else
//!  - *bare*: taken, but its guard was refused; the next batch tries again
//!  - *dropped*: guarded, holds no memory, reads as zero
//!  - *clean*: guarded, its top page allocated ahead of demand, reads as zero
//!  - *used*: guarded, holds whatever its last user touched and left
//!
//! Handing out prefers used stacks, the latest first, as they are in the cache and cost nothing;
//! then clean ones; then a batch of dropped ones is populated; then a batch of bare or untaken
//! slots is guarded and populated. System calls are made between critical sections, never within,
//! by a thread that has taken the batch off its list: other threads go on, at worst with a batch of
//! their own.
//!
//! # Shedding
//!
//! A slab of which every slot ever taken is on a list has no stack in use, nor one on its way between
//! lists. Such slabs are unmapped when address space has run out ([`Class::shed`]): first their slots
//! are taken off the lists, with the class locked, so that nobody can get hold of one; then they are
//! unmapped, one by one, outside the lock. A vacant slab keeps the number until the next one comes.

use super::guard::{self, GuardMode, Range};
use super::slab::{NIL, Slab};
use super::sys::{self, Errno};
use super::{StackSize, limit};
use crate::valgrind;
use carefree_ground::lock::Lock;
use std::io;

/// The most stacks in a batch.
///
/// From 32 on, larger batches save no time that could be measured, and each costs stack space (16
/// bytes a slot, and as many to tell the kernel of it) of whoever needs a stack, which may itself
/// be a fiber on a small one.
const MOST: usize = 64;
/// One release in this many looks at how much memory the stack holds.
const SAMPLING: usize = 64;

/// A slot off every list, and so its holder's alone.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) base: *mut u8,
    /// The slab's number in the upper half, the slot's number in its slab in the lower.
    pub(super) id: u32,
}

/// All stacks of one size in one pool.
pub(super) struct Class {
    size: StackSize,
    mode: GuardMode,
    /// The memory that idle used stacks may hold, in bytes.
    idle_bytes: usize,
    state: Lock<State>,
}

/// A list of slots, last in first out, linked through [`Slab::links`].
struct List {
    head: u32,
    length: usize,
}

const EMPTY: List = List { head: NIL, length: 0 };

/// All lists.
const LISTS: [fn(&mut State) -> &mut List; 4] = [
    |state| &mut state.bare,
    |state| &mut state.dropped,
    |state| &mut state.clean,
    |state| &mut state.used,
];

struct State {
    slabs: Vec<Slab>,
    /// The first slab with untaken slots.
    frontier: usize,
    bare: List,
    dropped: List,
    clean: List,
    used: List,
    in_use: usize,
    /// What an idle used stack holds in bytes: a running average of samples.
    held: usize,
    /// How many idle used stacks are within the watermark.
    limit: usize,
    /// How many stacks were released since the last sample.
    unsampled: usize,
}

/// Counts of stacks, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Address space reserved for slabs, in bytes.
    pub reserved_bytes: usize,
    /// How many stacks that is room for.
    pub slots: usize,
    /// Stacks handed out.
    pub in_use: usize,
    /// Idle stacks that hold memory of their last user.
    pub idle_touched: usize,
    /// Idle stacks whose top page was allocated ahead of demand and that nobody has used yet.
    pub idle_ready: usize,
    /// Idle stacks that hold no memory: theirs was given back to the kernel.
    pub given_back: usize,
}

/// Up to [`MOST`] slots on their way between lists.
struct Slots {
    slots: [Slot; MOST],
    length: usize,
}

impl Slots {
    fn new() -> Self {
        Slots { slots: [Slot { base: std::ptr::null_mut(), id: NIL }; MOST], length: 0 }
    }

    fn push(&mut self, slot: Slot) {
        self.slots[self.length] = slot;
        self.length += 1;
    }

    fn as_slice(&self) -> &[Slot] {
        &self.slots[..self.length]
    }

    /// Calls `body` with a part of every slot.
    fn ranges<T>(&self, offset: usize, bytes: usize, body: impl FnOnce(&[Range]) -> T) -> T {
        let mut ranges = [Range { iov_base: std::ptr::null_mut(), iov_len: 0 }; MOST];
        for (range, slot) in ranges.iter_mut().zip(self.as_slice()) {
            *range = Range { iov_base: slot.base.wrapping_add(offset).cast(), iov_len: bytes };
        }
        body(&ranges[..self.length])
    }
}

impl State {
    fn slot(&self, id: u32) -> Slot {
        Slot { base: self.slabs[(id >> 16) as usize].slot(id & 0xffff), id }
    }

    fn link(&mut self, id: u32) -> &mut u32 {
        &mut self.slabs[(id >> 16) as usize].links[(id & 0xffff) as usize]
    }

    fn pop(&mut self, list: fn(&mut State) -> &mut List) -> Option<Slot> {
        let id = list(self).head;
        if id == NIL {
            return None;
        }
        let next = *self.link(id);
        let list = list(self);
        list.head = next;
        list.length -= 1;
        Some(self.slot(id))
    }

    fn push(&mut self, list: fn(&mut State) -> &mut List, id: u32) {
        let next = list(self).head;
        *self.link(id) = next;
        let list = list(self);
        list.head = id;
        list.length += 1;
    }

    /// Takes a slot that was never taken before.
    fn take(&mut self) -> Option<Slot> {
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

    fn pop_used(&mut self, batch: &mut Slots, most: usize) {
        while batch.length < most {
            let Some(slot) = self.pop(|state| &mut state.used) else { break };
            batch.push(slot);
        }
    }

    /// How far above the watermark a batch is due: a program that hovers around it shall not pay a
    /// system call for each stack.
    fn slack(&self) -> usize {
        (self.limit / 4).min(MOST - 1)
    }

    fn reserved(&self) -> usize {
        self.slabs.iter().map(Slab::bytes).sum()
    }

    /// Whether there is a number for one more slab.
    fn has_place(&self) -> bool {
        self.slabs.len() < (NIL >> 16) as usize || self.slabs.iter().any(Slab::is_vacant)
    }

    fn place(&mut self, slab: Slab) {
        match self.slabs.iter().position(Slab::is_vacant) {
            Some(number) => {
                self.slabs[number] = slab;
                self.frontier = self.frontier.min(number);
            }
            None => self.slabs.push(slab),
        }
    }

    /// Condemns the slabs of which no stack is in use. Nothing is allocated.
    fn condemn_idle(&mut self) {
        self.slabs.iter_mut().for_each(|slab| slab.idle = 0);
        for list in LISTS {
            let mut id = list(self).head;
            while id != NIL {
                self.slabs[(id >> 16) as usize].idle += 1;
                id = *self.link(id);
            }
        }
        for slab in self.slabs.iter_mut().filter(|slab| !slab.is_vacant()) {
            // Also one of which nothing was ever taken: of two that are reserved at the same time, the
            // first may do for both threads.
            if slab.idle == slab.taken {
                slab.condemned = true;
                slab.taken = slab.slots();
            }
        }
        for list in LISTS {
            let mut id = std::mem::replace(&mut list(self).head, NIL);
            let mut last = NIL;
            while id != NIL {
                let next = *self.link(id);
                if self.slabs[(id >> 16) as usize].condemned {
                    list(self).length -= 1;
                } else {
                    match last {
                        NIL => list(self).head = id,
                        last => *self.link(last) = id,
                    }
                    *self.link(id) = NIL;
                    last = id;
                }
                id = next;
            }
        }
    }

    fn take_condemned(&mut self, size: StackSize) -> Option<Slab> {
        let slab = self.slabs.iter_mut().find(|slab| slab.condemned)?;
        Some(std::mem::replace(slab, Slab::vacant(size)))
    }
}

impl Class {
    /// See [`crate::fork`].
    pub(super) fn hold(&self) {
        self.state.hold();
    }

    /// # Safety
    /// The caller holds it.
    pub(super) unsafe fn release_hold(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.state.release() };
    }

    pub(super) fn new(size: StackSize, mode: GuardMode, idle_bytes: usize) -> Self {
        Class {
            size,
            mode,
            idle_bytes,
            state: Lock::new(State {
                slabs: Vec::new(),
                frontier: 0,
                bare: EMPTY,
                dropped: EMPTY,
                clean: EMPTY,
                used: EMPTY,
                in_use: 0,
                held: 0,
                limit: idle_bytes / sys::page_size(),
                // The first release is a sample.
                unsampled: SAMPLING,
            }),
        }
    }

    pub(super) fn size(&self) -> StackSize {
        self.size
    }

    /// Hands out `wanted` stacks, or as many as can be had but at least one; with each comes
    /// whether it is fresh, reads as zero.
    ///
    /// `hand_out` is called with the class locked and must be short.
    pub(super) fn acquire(
        &self,
        wanted: usize,
        mut hand_out: impl FnMut(Slot, bool),
    ) -> io::Result<()> {
        let mut had = 0;
        {
            let mut state = self.state.lock();
            while had < wanted {
                if let Some(slot) = state.pop(|state| &mut state.used) {
                    let base = slot.base as usize;
                    valgrind::renew(base + self.size.guard(), base + self.size.bytes());
                    hand_out(slot, false);
                } else if let Some(slot) = state.pop(|state| &mut state.clean) {
                    hand_out(slot, true);
                } else {
                    break;
                }
                state.in_use += 1;
                had += 1;
            }
        }
        while had < wanted {
            match self.make_ready(wanted - had, &mut hand_out) {
                Ok(more) => had += more,
                Err(_) if had > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes a batch of stacks ready, hands out up to `wanted` of them, at least one, and keeps the
    /// others.
    #[cold]
    fn make_ready(
        &self,
        wanted: usize,
        hand_out: &mut impl FnMut(Slot, bool),
    ) -> io::Result<usize> {
        let mut batch = Slots::new();
        let guarded = self.take_batch(wanted, &mut batch)?;
        let mut ready = batch.length;
        let mut refusal = None;
        if !guarded {
            let guard = self.size.guard();
            (ready, refusal) = batch.ranges(0, guard, |ranges| {
                // SAFETY: the batch is ours alone, and its slots have had no user yet.
                unsafe { guard::install(self.mode, ranges) }
            });
        }
        let page = sys::page_size();
        batch.ranges(self.size.bytes() - page, page, |tops| guard::populate(&tops[..ready]));

        if !guarded {
            for slot in &batch.as_slice()[..ready] {
                let base = slot.base as usize;
                let limit = base + self.size.guard();
                valgrind::register(limit, base + self.size.bytes());
                valgrind::guard(base, limit);
            }
        }

        let mut state = self.state.lock();
        for slot in &batch.as_slice()[ready..] {
            state.push(|state| &mut state.bare, slot.id);
        }
        let handed = ready.min(wanted);
        for slot in &batch.as_slice()[handed..ready] {
            state.push(|state| &mut state.clean, slot.id);
        }
        for slot in &batch.as_slice()[..handed] {
            hand_out(*slot, true);
        }
        state.in_use += handed;
        drop(state);
        match refusal {
            Some(errno) if handed == 0 => {
                Err(limit::explain(self.size, &format!("a guard by {}", self.mode), errno))
            }
            _ => Ok(handed),
        }
    }

    /// Takes a batch of slots that hold no memory; tells whether they have guards.
    fn take_batch(&self, wanted: usize, batch: &mut Slots) -> io::Result<bool> {
        let mut state = self.state.lock();
        loop {
            // As many again as are in use: like a growing vector, ahead of demand by no more than
            // demand has been, so that a program of one fiber touches no page in vain.
            let count = wanted.max(state.in_use).min(MOST);
            while batch.length < count {
                let Some(slot) = state.pop(|state| &mut state.dropped) else {
                    break;
                };
                batch.push(slot);
            }
            if batch.length > 0 {
                return Ok(true);
            }
            while batch.length < count {
                let Some(slot) = state.pop(|state| &mut state.bare).or_else(|| state.take()) else {
                    break;
                };
                batch.push(slot);
            }
            if batch.length > 0 {
                return Ok(false);
            }
            let reserved = state.reserved();
            let full = !state.has_place();
            drop(state);

            let slab =
                if full { Err(Errno(libc::ENOMEM)) } else { Slab::reserve(self.size, reserved) };
            let slab = slab.map_err(|errno| limit::explain(self.size, "mmap", errno))?;
            // Taken from under the same lock: it is not shed before.
            state = self.state.lock();
            state.place(slab);
        }
    }

    /// Takes stacks back from their users.
    pub(super) fn release(&self, slots: &[Slot]) {
        let mut sample = None;
        let surplus;
        {
            let mut state = self.state.lock();
            state.in_use -= slots.len();
            for slot in slots {
                state.push(|state| &mut state.used, slot.id);
            }
            state.unsampled += slots.len();
            if state.unsampled >= SAMPLING {
                state.unsampled = 0;
                sample = slots.last();
            }
            surplus = state.used.length > state.limit + state.slack();
        }
        if let Some(slot) = sample {
            self.look_at(slot);
        }
        if surplus {
            self.shrink();
        }
    }

    /// Learns from a stack just released how much memory idle ones hold.
    #[cold]
    fn look_at(&self, slot: &Slot) {
        // By now the stack may be somebody's again: then it is their use of it that is seen, which
        // is as good.
        let held = self.resident(slot);
        let mut state = self.state.lock();
        state.held = if state.held == 0 { held } else { (state.held * 3 + held) / 4 };
        state.limit = self.idle_bytes / state.held.max(1);
    }

    /// Gives the memory of a batch of idle stacks back to the kernel.
    #[cold]
    fn shrink(&self) {
        let mut batch = Slots::new();
        {
            let mut state = self.state.lock();
            let surplus = state.used.length.saturating_sub(state.limit);
            state.pop_used(&mut batch, surplus.min(MOST));
        }
        if !self.give_back(&batch) {
            // The memory cannot be had. Trying at every release will not change that.
            let mut state = self.state.lock();
            state.limit = state.limit.max(state.used.length);
        }
    }

    /// Gives the memory of all idle stacks back to the kernel.
    pub(super) fn trim(&self) {
        loop {
            let mut batch = Slots::new();
            {
                let mut state = self.state.lock();
                state.pop_used(&mut batch, MOST);
                while batch.length < MOST {
                    let Some(slot) = state.pop(|state| &mut state.clean) else {
                        break;
                    };
                    batch.push(slot);
                }
            }
            if batch.length == 0 || !self.give_back(&batch) {
                return;
            }
        }
    }

    /// Unmaps the slabs of which no stack is in use; returns how many bytes of address space they
    /// were.
    pub(super) fn shed(&self) -> usize {
        self.state.lock().condemn_idle();
        let mut bytes = 0;
        loop {
            let condemned = self.state.lock().take_condemned(self.size);
            match condemned {
                Some(slab) => bytes += slab.bytes(),
                None => return bytes,
            }
        }
    }

    /// Gives the memory of these idle stacks back to the kernel; false if that was not possible for
    /// all.
    fn give_back(&self, batch: &Slots) -> bool {
        let guard = self.size.guard();
        let given = batch.ranges(guard, self.size.usable(), |ranges| {
            // SAFETY: the batch is ours alone, and its stacks' users are done with them.
            unsafe { guard::give_back(ranges) }
        });
        let mut state = self.state.lock();
        for slot in &batch.as_slice()[..given] {
            state.push(|state| &mut state.dropped, slot.id);
        }
        // Memory that is locked stays. Some of these may be clean, but calling them used is always
        // right.
        for slot in &batch.as_slice()[given..] {
            state.push(|state| &mut state.used, slot.id);
        }
        given == batch.length
    }

    /// How many bytes of memory a stack holds, looking down from its top as far as there is any.
    fn resident(&self, slot: &Slot) -> usize {
        const PIECE: usize = 64;
        let page = sys::page_size();
        let mut below = self.size.usable() / page;
        let mut held = 0;
        while below > 0 {
            let count = below.min(PIECE);
            below -= count;
            let start = slot.base.wrapping_add(self.size.guard() + below * page);
            let mut pages = [0; PIECE];
            if sys::resident(start, count * page, &mut pages).is_err() {
                break;
            }
            let here = pages[..count].iter().filter(|page| **page & 1 != 0).count();
            if here == 0 {
                break;
            }
            held += here * page;
        }
        held
    }

    /// Adds this class' counts.
    pub(super) fn count(&self, stats: &mut StackStats) {
        let state = self.state.lock();
        stats.reserved_bytes += state.reserved();
        stats.slots += state.slabs.iter().map(|slab| slab.slots() as usize).sum::<usize>();
        stats.in_use += state.in_use;
        stats.idle_touched += state.used.length;
        stats.idle_ready += state.clean.length;
        stats.given_back += state.dropped.length;
    }
}
