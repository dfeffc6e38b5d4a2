//! Looking up the stack that an address lies in, even inside a signal handler.
//!
//! # Why the lookup is safe anywhere
//!
//! The registry is a list that only grows at its head. A record is complete before the head points
//! to it (release store, acquire load), its extent never changes, and it is never freed. So a
//! reader needs no lock and takes a bounded number of steps. It can be interrupted, or interrupt a
//! writer, at any point and still sees complete records only. The only field that changes is `live`,
//! which is cleared before a slab is unmapped.
//!
//! Each slab ever made costs a few dozen bytes. Slabs grow geometrically to 1 GiB or more, and the global
//! pool keeps its own, so a million stacks make a few hundred records; only programs that make and
//! drop pools of their own, or shed slabs, leave dead records behind.

use super::StackSize;
use super::spacing::Spacing;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A stack's place in memory: what [`find`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackInfo {
    /// The lowest address, where the guard begins.
    pub base: usize,
    /// The first address above the stack, where code begins to push.
    pub top: usize,
    /// The size in bytes, guard included.
    pub size: usize,
    /// How many bytes from `base` on are guard.
    pub guard: usize,
}

impl StackInfo {
    /// Whether an address is in the guard, so that accessing it is an overflow.
    pub fn is_guard(&self, address: usize) -> bool {
        (self.base..self.base + self.guard).contains(&address)
    }
}

/// A slab's record in the registry.
pub(super) struct Record {
    base: usize,
    bytes: usize,
    size: StackSize,
    spacing: Spacing,
    live: AtomicBool,
    next: *const Record,
}

static HEAD: AtomicPtr<Record> = AtomicPtr::new(std::ptr::null_mut());

/// Adds a slab, so that [`find`] finds its slots.
pub(super) fn register(
    base: usize,
    bytes: usize,
    size: StackSize,
    spacing: Spacing,
) -> &'static Record {
    let record = Box::leak(Box::new(Record {
        base,
        bytes,
        size,
        spacing,
        live: AtomicBool::new(true),
        next: std::ptr::null(),
    }));
    let mut head = HEAD.load(Ordering::Relaxed);
    loop {
        record.next = head;
        match HEAD.compare_exchange_weak(head, record, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return record,
            Err(newer) => head = newer,
        }
    }
}

impl Record {
    /// Takes the slab out of the lookup. To be called before the slab is unmapped, so that an address
    /// which is then used for something else is never taken for a stack's.
    pub(super) fn retire(&self) {
        self.live.store(false, Ordering::Release);
    }
}

/// Finds the stack whose memory or guard holds an address; `None` for any other memory.
///
/// Async-signal-safe: takes no lock, allocates nothing and touches no stack. Visits one record per
/// slab (a few hundred for a million stacks), so it is meant for faults and dumps, not for every
/// switch.
///
/// ```
/// use carefree_context::stack::{self, StackPool, StackSize};
///
/// let stack = StackPool::global().acquire(StackSize::DEFAULT)?;
/// let found = stack::find(stack.top() as usize - 1).expect("the pool's stack");
/// assert_eq!(found.base, stack.base() as usize);
/// assert!(found.is_guard(found.base) && !found.is_guard(found.top - 1));
///
/// let local = 0;
/// assert!(stack::find(&raw const local as usize).is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn find(address: usize) -> Option<StackInfo> {
    let mut next = HEAD.load(Ordering::Acquire).cast_const();
    // SAFETY: a non-null pointer in the list points to a record that was complete before it was
    // linked, is never freed and, except for the atomic `live`, never changed. The acquire load
    // pairs with the release that linked the head. The records behind it were linked earlier, by
    // exchanges that belong to the head's release sequence.
    while let Some(record) = unsafe { next.as_ref() } {
        let offset = address.wrapping_sub(record.base);
        if offset < record.bytes && record.live.load(Ordering::Acquire) {
            let (size, base) =
                (record.size.bytes(), record.base + record.spacing.start_of(offset)?);
            return Some(StackInfo { base, top: base + size, size, guard: record.size.guard() });
        }
        next = record.next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_until_it_retires() {
        // User programs have no such addresses, so no slab of another test is there.
        let base = 1 << 63;
        let size = StackSize::MIN;
        let spacing = Spacing::of(size);
        let distance = spacing.start(1);
        let record = register(base, 4 * distance, size, spacing);
        let found = find(base + 2 * distance + 5).unwrap();
        let start = base + 2 * distance;
        assert_eq!(
            (found.base, found.top, found.size),
            (start, start + size.bytes(), size.bytes())
        );
        assert!(found.is_guard(start) && found.is_guard(start + size.guard() - 1));
        assert!(!found.is_guard(start + size.guard()) && !found.is_guard(start - 1));
        // The page between two slots is of neither.
        assert!(find(start + size.bytes() - 1).is_some());
        assert_eq!(find(start + size.bytes()), None);
        assert_eq!(find(start + distance - 1), None);
        assert_eq!(find(base + 4 * distance), None);
        assert_eq!(find(base - 1), None);
        record.retire();
        assert_eq!(find(base), None);
        assert_eq!(find(0), None);
        assert_eq!(find(usize::MAX), None);
    }

    #[test]
    fn records_of_many_threads_are_all_found() {
        let base = 3 << 62;
        let bytes = StackSize::MIN.bytes();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for n in 0..200 {
                        let at = base + (thread * 200 + n) * bytes;
                        register(at, bytes, StackSize::MIN, Spacing::of(StackSize::MIN));
                        assert_eq!(find(at).unwrap().base, at);
                    }
                });
            }
        });
        assert!((0..800).all(|n| find(base + n * bytes).unwrap().base == base + n * bytes));
    }
}
