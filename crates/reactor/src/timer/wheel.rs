//! The hierarchical timing wheel.
//!
//! # Shape
//!
//! Time is divided into ticks of 2^16 ns (65.5 us). Eight levels of 64 slots each cover all 48 bits
//! of a tick number, so every `u64` deadline has a slot and none needs a special case:
//!
//! | level | one slot spans | the level spans |
//! |---|---|---|
//! | 0 | 65.5 us | 4.2 ms |
//! | 1 | 4.2 ms | 268 ms |
//! | 2 | 268 ms | 17 s |
//! | 3 | 17 s | 18 min |
//! | 4 | 18 min | 20 h |
//! | 5 | 20 h | 52 days |
//! | 6 | 52 days | 9 years |
//! | 7 | 9 years | 584 years |
//!
//! An entry is on the level of the highest 6-bit group in which its tick differs from the
//! wheel's own tick. Hence everything on a level is due before everything on the level above it,
//! on one level the slots are in order of their number, and the first occupied slot of the lowest
//! occupied level holds the earliest deadline: two bit scans find it.
//!
//! When the wheel's tick enters a slot of a higher level, that slot's entries move down
//! (*cascade*). A sleep of 100 ms moves once; a timeout that is removed before it is due usually never
//! moves.
//!
//! # Why the tick is 2^16 ns
//!
//! The tick does not limit precision: slots keep exact deadlines, [`Wheel::expire`] compares them
//! one by one and [`Wheel::next_deadline`] returns exact ones, so no timer fires early, and none fires
//! late because of the wheel. The tick only determines how many levels an entry moves through
//! (a shorter tick: more) and how many entries share the slot in which it is due, which
//! is walked again each time some of them are due and others are not (a longer tick: more).
//! Waking a sleeping thread takes the kernel 5 to 50 us, so entries closer than that are due
//! together anyway; 2^16 is the next power of two that divides the bits evenly among the levels.
//!
//! # Rejected
//!
//! * A binary heap: 20 levels deep at a million, and removal needs a back-pointer per move.
//! * Slots that are linked lists of timers: see `slot.rs`.
//! * Rounding deadlines on high levels instead of cascading, as Linux does: a sleep of an hour
//!   would end up to seven minutes late.

use super::slot::{Blocks, Entry, Place, Slot};
use super::table::Table;
use carefree_ground::mapped::Mapped;
use carefree_ground::own::Own;
use std::fmt;
use std::num::NonZeroU64;

/// log2 of a tick in nanoseconds.
const TICK: u32 = 16;
/// log2 of the slots on a level: one bit each of a `u64`.
const LEVEL: u32 = 6;
const SLOTS: usize = 1 << LEVEL;
const LEVELS: usize = (64 - TICK as usize).div_ceil(LEVEL as usize);

/// Identifies one insertion into one [`Wheel`], for its removal.
///
/// A key never refers to another timer: once its timer has expired or been removed, the key is
/// invalid for ever. (It holds the number of its insertion, which never reaches 2^64.)
/// Used with another wheel it may refer to a timer of that wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerKey {
    serial: NonZeroU64,
    index: u32,
}

/// One row of the timer table.
#[derive(Clone, Copy)]
struct Timer<T> {
    /// The number of the row's insertion; `None` in a free row.
    serial: Option<NonZeroU64>,
    /// A copy of the deadline in the slot's entry, by which removal finds the slot without waiting for
    /// another cache line.
    deadline: u64,
    place: Place,
    payload: Option<T>,
}

/// A timer that is due and was taken out of its slot.
#[derive(Clone, Copy)]
struct Due<T> {
    deadline: u64,
    serial: NonZeroU64,
    payload: T,
}

/// Deadlines with payloads: a hierarchical timing wheel.
///
/// Insertion and removal take constant time; each entry is moved at most seven times, and mostly
/// once, before it expires. Times are nanoseconds on whatever clock the caller uses throughout
/// ([`clock::now`](crate::clock::now) for carriers).
///
/// It takes 45 bytes for each timer with a payload of a pointer's size, plus 8 KiB. Memory is kept for
/// reuse until [`Wheel::shrink`]. It comes from the kernel: once a wheel is made, nothing here calls the
/// program's allocator.
///
/// ```
/// use carefree_reactor::Wheel;
///
/// let mut wheel = Wheel::new(0);
/// wheel.insert(3_000_000, "tea");
/// let toast = wheel.insert(2_000_000, "toast");
/// wheel.insert(1_000_000, "egg");
/// assert_eq!(wheel.next_deadline(), Some(1_000_000));
///
/// assert_eq!(wheel.remove(toast), Some("toast"));
/// let mut ready = Vec::new();
/// wheel.expire(2_999_999, |what| ready.push(what));
/// assert_eq!(ready, ["egg"]);
/// assert_eq!(wheel.next_deadline(), Some(3_000_000));
/// ```
pub struct Wheel<T: Copy> {
    /// The tick that the wheel has advanced to. Every slot before it is empty.
    tick: u64,
    /// Which slots of a level hold entries, one bit a slot.
    occupied: [u64; LEVELS],
    /// Which levels hold entries, one bit a level.
    levels: u32,
    slots: Own<[Slot; LEVELS * SLOTS]>,
    blocks: Blocks,
    timers: Table<Timer<T>>,
    /// Free rows of `timers`. A separate stack rather than a list through the rows: after a million
    /// timers have expired in random order, each step along such a list would be a cache miss.
    free: Mapped<u32>,
    /// The number of insertions so far.
    serial: u64,
    /// Timers that `expire` has taken out; of these, it has passed on as many as `passed` says. Empty between
    /// calls unless the caller's closure panicked.
    due: Mapped<Due<T>>,
    passed: usize,
}

impl<T: Copy> Wheel<T> {
    /// An empty wheel whose time is `now`. Deadlines before `now` are allowed; the value only saves
    /// the first entries some moves.
    pub fn new(now: u64) -> Self {
        Wheel {
            tick: now >> TICK,
            occupied: [0; LEVELS],
            levels: 0,
            slots: Own::new([Slot::EMPTY; LEVELS * SLOTS]),
            blocks: Blocks::new(),
            timers: Table::new(),
            free: Mapped::new(),
            serial: 0,
            due: Mapped::new(),
            passed: 0,
        }
    }

    /// The number of timers not yet expired or removed.
    pub fn len(&self) -> usize {
        self.timers.len() - self.free.len() + self.due.len() - self.passed
    }

    /// Whether no timer is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets a timer: the first [`expire`](Wheel::expire) at or after `deadline` returns `payload`.
    /// A deadline that has passed is due at the next `expire`; one of `u64::MAX` is due only at
    /// `u64::MAX`.
    ///
    /// # Panics
    /// When four billion timers are already set.
    pub fn insert(&mut self, deadline: u64, payload: T) -> TimerKey {
        self.serial += 1;
        let serial = NonZeroU64::new(self.serial).expect("2^64 timers were set");
        let index = self.free.last().copied().unwrap_or_else(|| {
            u32::try_from(self.timers.len()).expect("a timer wheel holds 2^32 timers")
        });
        let place = self.file(Entry { deadline, timer: index });
        let timer = Timer { serial: Some(serial), deadline, place, payload: Some(payload) };
        if self.free.pop().is_some() {
            self.timers[index] = timer;
        } else {
            self.timers.push(timer);
        }
        TimerKey { serial, index }
    }

    /// Removes a timer before it expires. `None` if it has expired or was removed already.
    pub fn remove(&mut self, key: TimerKey) -> Option<T> {
        if key.index as usize >= self.timers.len() {
            return None;
        }
        let timer = &mut self.timers[key.index];
        if timer.serial != Some(key.serial) {
            return None;
        }
        timer.serial = None;
        let (deadline, place, payload) = (timer.deadline, timer.place, timer.payload.take());
        self.free.push_or_abort(key.index);

        let (level, number) = self.slot_of(deadline);
        let slot = &mut self.slots[level * SLOTS + number];
        if let Some(moved) = self.blocks.take(slot, place) {
            self.timers[moved].place = place;
        }
        if slot.is_empty() {
            self.vacate(level, number);
        }
        payload
    }

    /// The time until which the caller may sleep: no timer is due earlier. `None` if there is no
    /// timer.
    ///
    /// This is the earliest deadline, or may be that of a timer that was removed. Calling
    /// [`expire`](Wheel::expire) at this time either fires a timer or corrects the value, so a removed
    /// timer wakes a sleeper unnecessarily at most once.
    pub fn next_deadline(&self) -> Option<u64> {
        if let Some(due) = self.due.get(self.passed) {
            return Some(due.deadline);
        }
        let (level, number) = self.first_slot()?;
        Some(self.slots[level * SLOTS + number].earliest)
    }

    /// Advances the wheel to `now` and calls `fire` with the payload of every timer whose deadline is
    /// at or before `now`, and of no other. Returns their number.
    ///
    /// Timers fire in the order of their deadlines, those with equal deadlines in the order of
    /// their insertion. `now` may be less than in an earlier call (two callers may read the clock,
    /// then take the lock in the other order): the wheel does not turn back, but deadlines are
    /// compared with this `now`.
    ///
    /// # Panics
    /// Only if `fire` does. The next call fires the remaining timers.
    pub fn expire(&mut self, now: u64, mut fire: impl FnMut(T)) -> usize {
        let new = self.tick.max(now >> TICK);
        let mut fired = 0;
        loop {
            while let Some(&due) = self.due.get(self.passed) {
                self.passed += 1;
                fired += 1;
                fire(due.payload);
            }
            self.due.truncate(0);
            self.passed = 0;
            let Some((level, number)) = self.first_slot() else {
                break;
            };
            let shift = LEVEL * level as u32;
            let start = (self.tick >> (shift + LEVEL) << LEVEL | number as u64) << shift;
            // The slot is not reached yet, or it is the wheel's present slot and nothing in it is due.
            if start > new || (level == 0 && self.slots[number].earliest > now) {
                break;
            }
            // To the end of the slot if it has passed, else to the present tick within it. This is the
            // first occupied slot, so no entry lies in between, and if `fire` panics all entries are
            // where they belong.
            self.tick = new.min(start + ((1 << shift) - 1));
            self.empty_slot(level, number, now);
        }
        self.tick = new;
        fired
    }

    /// Frees the memory of former timers if no timer is set and there were more than `kept` at once. (To return the
    /// memory of a million timers to the kernel takes milliseconds.)
    pub fn shrink(&mut self, kept: usize) {
        if self.timers.len() > kept && self.is_empty() {
            self.blocks = Blocks::new();
            self.timers = Table::new();
            self.free = Mapped::new();
            self.due = Mapped::new();
        }
    }

    /// Level and number of the first occupied slot.
    fn first_slot(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// Empties a slot that the wheel has reached: timers due by `now` go to `self.due`, sorted; the
    /// others are filed again, on a lower level.
    fn empty_slot(&mut self, level: usize, number: usize, now: u64) {
        let mut slot = std::mem::replace(&mut self.slots[level * SLOTS + number], Slot::EMPTY);
        self.vacate(level, number);
        while let Some((block, filled)) = self.blocks.pop_block(&mut slot) {
            for (&deadline, &index) in block.deadlines.iter().zip(&block.timers).take(filled) {
                if deadline > now {
                    let place = self.file(Entry { deadline, timer: index });
                    self.timers[index].place = place;
                    continue;
                }
                let timer = &mut self.timers[index];
                if let (Some(serial), Some(payload)) = (timer.serial.take(), timer.payload.take()) {
                    self.free.push_or_abort(index);
                    self.due.push_or_abort(Due { deadline, serial, payload });
                }
            }
        }
        self.due.sort_unstable_by_key(|due| (due.deadline, due.serial));
    }

    /// Puts an entry into the slot that it belongs to.
    fn file(&mut self, entry: Entry) -> Place {
        let (level, number) = self.slot_of(entry.deadline);
        self.occupied[level] |= 1 << number;
        self.levels |= 1 << level;
        self.blocks.push(&mut self.slots[level * SLOTS + number], entry)
    }

    /// Marks a slot as empty.
    fn vacate(&mut self, level: usize, number: usize) {
        self.occupied[level] &= !(1 << number);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Level and number of the slot for `deadline`. They depend on the deadline and the wheel's
    /// tick alone, so an entry need not store its slot: entering a slot moves the entries
    /// for which the result changes. Overdue entries belong to the wheel's present slot.
    fn slot_of(&self, deadline: u64) -> (usize, usize) {
        let tick = (deadline >> TICK).max(self.tick);
        let level = ((tick ^ self.tick) | 1).ilog2() / LEVEL;
        (level as usize, (tick >> (LEVEL * level)) as usize % SLOTS)
    }
}

impl<T: Copy> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("len", &self.len())
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}
