//! One mapping that holds many stacks of a class.

use super::StackSize;
use super::registry::{self, Record};
use super::spacing::{PAGE_TABLE_SPAN, Spacing};
use super::sys::{self, Errno};
use crate::valgrind;
use std::alloc::{self, Layout};
use std::ptr;

/// The smallest slab: fills one page table.
const SMALLEST: usize = PAGE_TABLE_SPAN;
/// The largest slab of stacks that are not large. A million of the default size take 250 of these.
const LARGEST: usize = 1 << 30;
/// The largest slab. Of stacks of 8 MiB, which C programs' threads have, LARGEST would hold only a few, and each
/// reservation takes five system calls.
const LARGEST_OF_ALL: usize = 16 << 30;
/// Slots that a slab may have, where it is larger than LARGEST.
const SLOTS: usize = 1024;

/// The end of a list of slots.
pub(super) const NIL: u32 = u32::MAX;

/// A mapping, cut into slots of one class. Unmapped when dropped.
pub(super) struct Slab {
    base: *mut u8,
    spacing: Spacing,
    slots: u32,
    /// `None` in a vacant slab.
    record: Option<&'static Record>,
    /// For each slot, the next one in the list that it is on: the only record of a stack, four
    /// bytes. It is not kept in the stack, as writing to an idle stack would allocate a page.
    pub(super) links: Box<[u32]>,
    /// How many slots, from the lowest on, were ever taken.
    pub(super) taken: u32,
    /// How many slots are idle; only valid while slabs are condemned.
    pub(super) idle: u32,
    /// Whether the slab is about to be unmapped: none of its slots is on a list, and none may be
    /// taken.
    pub(super) condemned: bool,
}

// SAFETY: a slab owns its mapping, which is tied to no thread.
unsafe impl Send for Slab {}

impl Slab {
    /// Reserves a slab, given the bytes that its class has reserved already: doubling keeps a
    /// program of one fiber small and one of a million at a few hundred mappings.
    ///
    /// If a limit refuses that size, a smaller slab is tried, down to a single slot.
    pub(super) fn reserve(size: StackSize, reserved: usize) -> Result<Slab, Errno> {
        let largest = size.bytes().saturating_mul(SLOTS).clamp(LARGEST, LARGEST_OF_ALL);
        let spacing = Spacing::of(size);
        let mut slots = spacing.slots(reserved.clamp(SMALLEST, largest));
        loop {
            let bytes = spacing.bytes(slots);
            match map(bytes, size) {
                Ok(base) => match Slab::over(base, slots, size, spacing) {
                    Some(slab) => return Ok(slab),
                    None => {
                        // SAFETY: the new mapping was never used.
                        unsafe { sys::unmap(base, bytes) }?;
                        return Err(Errno(libc::ENOMEM));
                    }
                },
                Err(errno) if slots == 1 => return Err(errno),
                Err(_) => slots /= 2,
            }
        }
    }

    /// A place holder for a slab that was unmapped: slots are identified by their slab's number.
    pub(super) fn vacant(size: StackSize) -> Slab {
        Slab {
            base: ptr::null_mut(),
            spacing: Spacing::of(size),
            slots: 0,
            record: None,
            links: Box::default(),
            taken: 0,
            idle: 0,
            condemned: false,
        }
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.record.is_none()
    }

    /// The slab over a new mapping; `None` if there is no memory for the links.
    fn over(base: *mut u8, slots: usize, size: StackSize, spacing: Spacing) -> Option<Slab> {
        let bytes = spacing.bytes(slots);
        let slots = slots as u32;
        let links = zeroed(slots)?;
        // A huge page under a slot's top would make its fiber take 2 MiB. Kernels without huge pages
        // refuse the advice and do not need it.
        // SAFETY: the new mapping is the slab's own, and the advice changes no contents.
        let _ = unsafe { sys::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        sys::name(base, bytes, c"carefree stacks");
        let record = Some(registry::register(base as usize, bytes, size, spacing));
        Some(Slab { base, spacing, slots, record, links, taken: 0, idle: 0, condemned: false })
    }

    /// Bytes of address space that the slab reserves.
    pub(super) fn bytes(&self) -> usize {
        if self.slots == 0 { 0 } else { self.spacing.bytes(self.slots as usize) }
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// The lowest address of a slot.
    pub(super) fn slot(&self, index: u32) -> *mut u8 {
        debug_assert!(index < self.slots);
        self.base.wrapping_add(self.spacing.start(index as usize))
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let Some(record) = self.record else { return };
        record.retire();
        let base = self.base as usize;
        valgrind::deregister(&(base..base + self.bytes()));
        // SAFETY: a slab is dropped when it is condemned, without a stack in use, or with its
        // class, when no stack refers to that any more. If unmapping fails, address space stays
        // reserved, which is harmless.
        let _ = unsafe { sys::unmap(self.base, self.bytes()) };
    }
}

/// Allocates links for this many slots, all zero; `None` if there is no memory for them.
///
/// From calloc, so that the links of slots that were never taken take no memory either.
fn zeroed(slots: u32) -> Option<Box<[u32]>> {
    let layout = Layout::array::<u32>(slots as usize).ok()?;
    // SAFETY: a slab has at least one slot, so the layout is not of size zero.
    let links = unsafe { alloc::alloc_zeroed(layout) }.cast::<u32>();
    if links.is_null() {
        return None;
    }
    // SAFETY: the global allocator has allocated it with the layout of this slice, and zero is a
    // valid u32.
    Some(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(links, slots as usize)) })
}

/// Reserves a slab of this many bytes, or as much as it takes, where guards cost no page tables.
fn map(bytes: usize, size: StackSize) -> Result<*mut u8, Errno> {
    let offset = offset(size);
    let base = map_aligned(bytes + offset, PAGE_TABLE_SPAN.min(bytes.next_power_of_two()))?;
    if offset > 0 {
        // SAFETY: this part of the new mapping was never used. (If it cannot be unmapped, it stays reserved.)
        let _ = unsafe { sys::unmap(base, offset) };
    }
    Ok(base.wrapping_add(offset))
}

/// How far from the beginning of a page table's span a slab lies. Slots that are larger than a span meet in
/// the middle of one: the guard of the upper and the top of the lower slot have a page table in common.
fn offset(size: StackSize) -> usize {
    if size.bytes() > PAGE_TABLE_SPAN { PAGE_TABLE_SPAN / 2 } else { 0 }
}

/// How many aligned places are tried for a reservation, one below the other.
const DOWN: usize = 16;

/// Reserves `bytes` at a multiple of `alignment`, a power of two.
fn map_aligned(bytes: usize, alignment: usize) -> Result<*mut u8, Errno> {
    // Recent kernels align large mappings to a page table's span, so this often succeeds.
    let base = sys::reserve(bytes)?;
    if base as usize % alignment == 0 {
        return Ok(base);
    }
    // SAFETY: the new mapping was never used.
    unsafe { sys::unmap(base, bytes) }?;
    // The kernel fills the address space from above, so there usually is room a little further
    // down. The last resort below briefly takes up to twice the size, which a limit may refuse.
    let below = base as usize & !(alignment - 1);
    for lower in 0..DOWN {
        let place = below.saturating_sub(lower * alignment);
        match sys::reserve_at(place, bytes) {
            Ok(base) if base as usize == place => return Ok(base),
            Ok(elsewhere) => {
                // SAFETY: the new mapping was never used.
                unsafe { sys::unmap(elsewhere, bytes) }?;
                break;
            }
            // The place is taken.
            Err(Errno(libc::EEXIST)) => {}
            Err(_) => break,
        }
    }
    let excess = alignment - sys::page_size();
    let base = sys::reserve(bytes + excess)?;
    let head = (base as usize).wrapping_neg() % alignment;
    let aligned = base.wrapping_add(head);
    // Trimming the ends needs no additional mapping. An end that cannot be unmapped stays reserved.
    for (end, surplus) in [(base, head), (aligned.wrapping_add(bytes), excess - head)] {
        if surplus > 0 {
            // SAFETY: the end was never used, and lies outside of the part that is kept.
            let _ = unsafe { sys::unmap(end, surplus) };
        }
    }
    Ok(aligned)
}
