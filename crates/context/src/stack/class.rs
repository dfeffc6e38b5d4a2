//! The stacks of one size: which are in use, which are idle, and in what state.
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
//! slots is guarded and populated. A thread makes system calls outside of critical sections, after
//! it has taken the batch off its list. Other threads continue meanwhile, at worst with a batch of
//! their own.
//!
//! # Shedding
//!
//! If every taken slot of a slab is on a list, the slab has no stack in use, nor one on its way
//! between lists. Such slabs are unmapped when address space has run out ([`Class::shed`]): first
//! their slots are taken off the lists, with the class locked, so that no thread can take one; then
//! the slabs are unmapped, one by one, outside the lock. A vacant slab keeps the number for the
//! next slab.
//!
//! # Promises
//!
//! A fiber that has yet to begin needs no stack, but it must get one. So its creator has one promised
//! ([`Class::promise`]), which is refused like a stack, and costs address space only. Of the slots that are idle
//! or untaken, as many as are promised are handed out to those alone that give a promise back for them
//! ([`Class::acquire_promised`]), and are not shed.

use super::batch::{Batch, MOST, Slot};
use super::guard::{self, GuardMode};
use super::lists::{Kind, Lists};
use super::slab::Slab;
use super::spacing::PAGE_TABLE_SPAN;
use super::sys::{self, Errno};
use super::{StackSize, limit};
use crate::valgrind;
use carefree_ground::lock::{Guard, Lock};
use std::io;

/// One release in this many measures how much memory the stack holds.
const SAMPLING: usize = 64;

/// All stacks of one size in one pool.
pub(super) struct Class {
    size: StackSize,
    mode: GuardMode,
    /// Bytes of memory that idle used stacks may hold.
    idle_bytes: usize,
    state: Lock<State>,
}

struct State {
    lists: Lists,
    in_use: usize,
    /// How many of the spare slots are promised.
    promised: usize,
    /// Bytes that an idle used stack holds: a running average of samples.
    held: usize,
    /// How many idle used stacks are within the watermark.
    limit: usize,
    /// How many stacks were released since the last sample.
    unsampled: usize,
    /// How many idle stacks without memory there were when slabs of such stacks were looked for; fewer, if there have
    /// been fewer since.
    left: usize,
}

impl State {
    /// By how much the watermark is exceeded before a batch is given back, so that a program that
    /// hovers around it does not pay a system call for each stack.
    fn slack(&self) -> usize {
        (self.limit / 4).min(MOST - 1)
    }

    /// How many of the spare slots a caller may take that has so many promises.
    fn free_to(&self, promises: usize) -> usize {
        match self.promised - promises {
            // Not counted, for the common case.
            0 => usize::MAX,
            others => self.lists.spare().saturating_sub(others),
        }
    }
}

/// Whether the stacks that a caller acquires were promised to it.
#[derive(Clone, Copy)]
enum Claim {
    None,
    Promises,
}

impl Claim {
    /// How many promises a caller has that wants so many stacks.
    fn of(self, stacks: usize) -> usize {
        match self {
            Claim::None => 0,
            Claim::Promises => stacks,
        }
    }
}

/// Counts of stacks, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Address space reserved for slabs, in bytes.
    pub reserved_bytes: usize,
    /// How many stacks fit into it.
    pub slots: usize,
    /// Stacks handed out.
    pub in_use: usize,
    /// Idle stacks that hold memory of their last user.
    pub idle_touched: usize,
    /// Unused stacks whose top page was allocated ahead of demand.
    pub idle_ready: usize,
    /// Idle stacks without memory: it was given back to the kernel.
    pub given_back: usize,
    /// How many stacks are [promised](super::StackPool::promise).
    pub promised: usize,
}

impl Class {
    /// Blocks other threads from changing the class until [`release_hold`](Self::release_hold): see
    /// [`crate::fork`].
    pub(super) fn hold(&self) {
        self.state.hold();
    }

    /// Undoes [`hold`](Self::hold).
    ///
    /// # Safety
    /// The caller called `hold`, or its parent process did before a fork.
    pub(super) unsafe fn release_hold(&self) {
        // SAFETY: `hold` has locked it.
        unsafe { self.state.release() };
    }

    pub(super) fn new(size: StackSize, mode: GuardMode, idle_bytes: usize) -> Self {
        Class {
            size,
            mode,
            idle_bytes,
            state: Lock::new(State {
                lists: Lists::new(),
                in_use: 0,
                promised: 0,
                held: 0,
                limit: idle_bytes / sys::page_size(),
                // The first release is a sample.
                unsampled: SAMPLING,
                left: 0,
            }),
        }
    }

    pub(super) fn size(&self) -> StackSize {
        self.size
    }

    /// Hands out `wanted` stacks, or as many as possible but at least one. `hand_out` is called
    /// with each, and with whether the stack is fresh, that is, reads as zero.
    ///
    /// `hand_out` is called with the class locked and must be short.
    pub(super) fn acquire(
        &self,
        wanted: usize,
        hand_out: impl FnMut(Slot, bool),
    ) -> io::Result<()> {
        self.acquire_for(Claim::None, wanted, hand_out)
    }

    /// [`acquire`](Self::acquire) for the holder of as many promises as stacks are wanted. Each stack that is
    /// handed out takes one of these back.
    pub(super) fn acquire_promised(
        &self,
        wanted: usize,
        hand_out: impl FnMut(Slot, bool),
    ) -> io::Result<()> {
        self.acquire_for(Claim::Promises, wanted, hand_out)
    }

    fn acquire_for(
        &self,
        claim: Claim,
        wanted: usize,
        mut hand_out: impl FnMut(Slot, bool),
    ) -> io::Result<()> {
        let mut had = 0;
        {
            let mut state = self.state.lock();
            let most = wanted.min(state.free_to(claim.of(wanted)));
            while had < most {
                if let Some(slot) = state.lists.pop(Kind::Used) {
                    let base = slot.base as usize;
                    valgrind::renew(|| base + self.size.guard(), base + self.size.bytes());
                    hand_out(slot, false);
                } else if let Some(slot) = state.lists.pop(Kind::Clean) {
                    hand_out(slot, true);
                } else {
                    break;
                }
                state.in_use += 1;
                state.promised -= claim.of(1);
                had += 1;
            }
        }
        while had < wanted {
            match self.make_ready(claim, wanted - had, &mut hand_out) {
                Ok(more) => had += more,
                Err(_) if had > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes a batch of stacks ready, hands out up to `wanted` of them, at least one, and puts the
    /// others on the list of clean ones.
    #[cold]
    fn make_ready(
        &self,
        claim: Claim,
        wanted: usize,
        hand_out: &mut impl FnMut(Slot, bool),
    ) -> io::Result<usize> {
        let mut batch = Batch::new();
        let guarded = self.take_batch(claim, wanted, &mut batch)?;
        let claimed = claim.of(wanted.min(batch.len()));
        let mut ready = batch.len();
        let mut refusal = None;
        if !guarded {
            let guard = self.size.guard();
            (ready, refusal) = batch.ranges(0, guard, |ranges| {
                // SAFETY: the slots are on no list, so they belong to this function, and they were
                // never used.
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
            state.lists.push(Kind::Bare, slot.id);
        }
        let handed = ready.min(wanted);
        for slot in &batch.as_slice()[handed..ready] {
            state.lists.push(Kind::Clean, slot.id);
        }
        for slot in &batch.as_slice()[..handed] {
            hand_out(*slot, true);
        }
        state.in_use += handed;
        state.promised += claimed - claim.of(handed);
        drop(state);
        match refusal {
            Some(errno) if handed == 0 => {
                Err(limit::explain(self.size, &format!("a guard by {}", self.mode), errno))
            }
            _ => Ok(handed),
        }
    }

    /// Takes a batch of slots that hold no memory; returns whether they have guards. The promises for
    /// them are used up at once: slots on their way to the caller must not count against the promises of others.
    fn take_batch(&self, claim: Claim, wanted: usize, batch: &mut Batch) -> io::Result<bool> {
        let mut state = self.state.lock();
        loop {
            // As many as are in use: ahead of demand by no more than demand has been, like a growing
            // vector, so that a program of one fiber touches no page unnecessarily.
            let count = wanted.max(state.in_use).min(MOST).min(state.free_to(claim.of(wanted)));
            state.lists.fill(batch, Kind::Dropped, count);
            if batch.len() > 0 {
                state.promised -= claim.of(wanted.min(batch.len()));
                return Ok(true);
            }
            while batch.len() < count {
                let slot = state.lists.pop(Kind::Bare).or_else(|| state.lists.take());
                let Some(slot) = slot else { break };
                batch.push(slot);
            }
            if batch.len() > 0 {
                state.promised -= claim.of(wanted.min(batch.len()));
                return Ok(false);
            }
            // The next round takes slots under the same lock, before the slab can be shed.
            state = self.add_slab(state)?;
        }
    }

    /// Reserves one more slab, with the class not locked meanwhile.
    fn add_slab<'a>(&'a self, state: Guard<'a, State>) -> io::Result<Guard<'a, State>> {
        let reserved = state.lists.reserved();
        let full = !state.lists.has_place();
        let room = state.lists.room_to_make();
        drop(state);
        let room = Vec::with_capacity(room);
        let slab = if full { Err(Errno(libc::ENOMEM)) } else { Slab::reserve(self.size, reserved) };
        let slab = slab.map_err(|errno| limit::explain(self.size, "mmap", errno))?;
        let mut state = self.state.lock();
        state.lists.place(slab, room);
        Ok(state)
    }

    /// Promises `count` more stacks.
    pub(super) fn promise(&self, count: usize) -> io::Result<()> {
        let mut state = self.state.lock();
        while state.lists.spare() < state.promised + count {
            state = self.add_slab(state)?;
        }
        state.promised += count;
        Ok(())
    }

    /// Undoes [`promise`](Self::promise).
    pub(super) fn unpromise(&self, count: usize) {
        self.state.lock().promised -= count;
    }

    /// Forgets all promises.
    pub(super) fn forget_promises(&self) {
        self.state.lock().promised = 0;
    }

    /// Takes stacks back from their users.
    pub(super) fn release(&self, slots: &[Slot]) {
        let mut sample = None;
        let surplus;
        {
            let mut state = self.state.lock();
            state.in_use -= slots.len();
            for slot in slots {
                state.lists.push(Kind::Used, slot.id);
            }
            state.unsampled += slots.len();
            if state.unsampled >= SAMPLING {
                state.unsampled = 0;
                sample = slots.last();
            }
            surplus = state.lists.length(Kind::Used) > state.limit + state.slack();
        }
        if let Some(slot) = sample {
            self.sample(slot);
        }
        if surplus {
            self.shrink();
        }
    }

    /// Measures how much memory a stack that was just released holds, as a sample of idle ones.
    #[cold]
    fn sample(&self, slot: &Slot) {
        // The stack may be in use again by now. Then this measures that use, which is as good a
        // sample.
        let held = self.resident(slot);
        let mut state = self.state.lock();
        state.held = if state.held == 0 { held } else { (state.held * 3 + held) / 4 };
        state.limit = self.idle_bytes / state.held.max(1);
    }

    /// Gives the memory of a batch of idle stacks back to the kernel.
    #[cold]
    fn shrink(&self) {
        let mut batch = Batch::new();
        {
            let mut state = self.state.lock();
            let surplus = state.lists.length(Kind::Used).saturating_sub(state.limit);
            state.lists.fill(&mut batch, Kind::Used, surplus);
        }
        if !self.give_back(&batch) {
            // The kernel refused. Trying again at every release would not change that.
            let mut state = self.state.lock();
            state.limit = state.limit.max(state.lists.length(Kind::Used));
        }
    }

    /// Gives the memory of all idle stacks back to the kernel.
    pub(super) fn trim(&self) {
        loop {
            let mut batch = Batch::new();
            {
                let mut state = self.state.lock();
                state.lists.fill(&mut batch, Kind::Used, MOST);
                state.lists.fill(&mut batch, Kind::Clean, MOST);
            }
            if batch.len() == 0 || !self.give_back(&batch) {
                return;
            }
        }
    }

    /// Unmaps the slabs without a stack in use; returns how many bytes of address space that frees.
    pub(super) fn shed(&self) -> usize {
        {
            let mut state = self.state.lock();
            let promised = state.promised;
            state.lists.condemn_idle(promised);
        }
        self.unmap_condemned()
    }

    /// Unmaps slabs that are condemned; returns how many bytes of address space that frees.
    fn unmap_condemned(&self) -> usize {
        let mut bytes = 0;
        loop {
            let condemned = self.state.lock().lists.take_condemned(self.size);
            match condemned {
                Some(slab) => bytes += slab.bytes(),
                None => return bytes,
            }
        }
    }

    /// Gives the memory of these idle stacks back to the kernel; returns whether that worked for all.
    fn give_back(&self, batch: &Batch) -> bool {
        let guard = self.size.guard();
        let given = batch.ranges(guard, self.size.usable(), |ranges| {
            // SAFETY: the slots are on no list, so they belong to this function, and their users have
            // released them.
            unsafe { guard::give_back(ranges) }
        });
        let mut state = self.state.lock();
        for slot in &batch.as_slice()[..given] {
            state.lists.push(Kind::Dropped, slot.id);
        }
        // Locked memory is not given back. Some of these stacks may be clean, but listing them as
        // used is always correct.
        for slot in &batch.as_slice()[given..] {
            state.lists.push(Kind::Used, slot.id);
        }
        given == batch.len()
    }

    /// Takes stacks back from their users, and gives their memory back to the kernel.
    pub(super) fn discard(&self, slots: &[Slot]) {
        let mut batch = Batch::new();
        slots.iter().for_each(|slot| batch.push(*slot));
        self.state.lock().in_use -= slots.len();
        self.give_back(&batch);
        self.shed_empty();
    }

    /// Unmaps the slabs of which no stack holds memory, where there are many such stacks: the kernel keeps their page
    /// tables.
    fn shed_empty(&self) {
        /// What a stack's page table takes at most, as a rule: one has the topmost pages and one the guard, which may
        /// be the same.
        const TABLE: usize = 4096;
        /// The part of the watermark that page tables may take as well.
        const PART: usize = 8;
        /// To look for such slabs takes a step for each idle stack.
        const LEAST: usize = 1024;
        let each = (self.size.bytes() / (PAGE_TABLE_SPAN / TABLE)).clamp(1, TABLE);
        let most = (self.idle_bytes / PART / each).max(LEAST);
        {
            let mut state = self.state.lock();
            let empty = state.lists.length(Kind::Dropped);
            state.left = state.left.min(empty);
            if empty - state.left < most {
                return;
            }
            let promised = state.promised;
            state.lists.condemn_empty(promised);
            state.left = state.lists.length(Kind::Dropped);
        }
        self.unmap_condemned();
    }

    /// How many bytes of memory a stack holds, from its top down to the first gap.
    pub(super) fn resident(&self, slot: &Slot) -> usize {
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

    /// Adds the counts of this class.
    pub(super) fn count(&self, stats: &mut StackStats) {
        let state = self.state.lock();
        stats.reserved_bytes += state.lists.reserved();
        stats.slots += state.lists.slots();
        stats.in_use += state.in_use;
        stats.idle_touched += state.lists.length(Kind::Used);
        stats.idle_ready += state.lists.length(Kind::Clean);
        stats.given_back += state.lists.length(Kind::Dropped);
        stats.promised += state.promised;
    }
}
