//! One mapping that holds many stacks of a class.

use super::StackSize;
use super::registry::{self, Record};
use super::sys::{self, Errno};
use crate::valgrind;
use std::alloc::{self, Layout};
use std::ptr;

/// What one page table spans. A guard and the top page of its slot must be in the same one: each
/// page table is 4 KiB of memory, as much as a whole parked fiber.
pub(super) const PAGE_TABLE_SPAN: usize = 2 << 20;
/// The smallest slab: fills one page table.
const SMALLEST: usize = PAGE_TABLE_SPAN;
/// The largest slab. A million stacks of the default size take 250 of these.
const LARGEST: usize = 1 << 30;

/// The end of a list of slots.
pub(super) const NIL: u32 = u32::MAX;

/// A mapping, cut into slots of one class. Unmapped when dropped.
pub(super) struct Slab {
    base: *mut u8,
    size: StackSize,
    slots: u32,
    /// None: it is vacant.
    record: Option<&'static Record>,
    /// For each slot, the next one in whatever list it is on: the only record kept of a stack, four
    /// bytes. It lies beside the stacks, as writing to an idle stack would take a page.
    pub(super) links: Box<[u32]>,
    /// How many slots, from the lowest on, have ever been taken.
    pub(super) taken: u32,
    /// How many slots are idle, when somebody counts.
    pub(super) idle: u32,
    /// It is about to be unmapped: none of its slots is on a list, and none is to be taken.
    pub(super) condemned: bool,
}

// SAFETY: a slab owns its mapping; the pointer is an address to hand out, not a reference into
// somebody's memory.
unsafe impl Send for Slab {}

impl Slab {
    /// Reserves a slab, given how much its class has reserved already: doubling keeps a program of
    /// one fiber small and one of a million at a few hundred mappings.
    ///
    /// Under a limit that refuses the size, a smaller slab will do, down to a single slot.
    pub(super) fn reserve(size: StackSize, reserved: usize) -> Result<Slab, Errno> {
        let mut bytes = reserved.clamp(SMALLEST, LARGEST).max(size.bytes());
        // Reservations after a limit was met need not be powers of two.
        bytes &= !(size.bytes() - 1);
        loop {
            match map_aligned(bytes, alignment(size, bytes)) {
                Ok(base) => match Slab::over(base, bytes, size) {
                    Some(slab) => return Ok(slab),
                    None => {
                        // SAFETY: nobody has learnt of it.
                        unsafe { sys::unmap(base, bytes) }?;
                        return Err(Errno(libc::ENOMEM));
                    }
                },
                Err(errno) if bytes == size.bytes() => return Err(errno),
                Err(_) => bytes = ((bytes / 2) & !(size.bytes() - 1)).max(size.bytes()),
            }
        }
    }

    /// Holds the place of a slab that was unmapped, since slots are known by their slab's number.
    pub(super) fn vacant(size: StackSize) -> Slab {
        Slab {
            base: ptr::null_mut(),
            size,
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

    /// None when there is no memory for the links.
    fn over(base: *mut u8, bytes: usize, size: StackSize) -> Option<Slab> {
        let slots = (bytes / size.bytes()) as u32;
        let links = zeroed(slots)?;
        // A huge page under a slot's top would give its fiber 2 MiB. Kernels without huge pages
        // refuse the advice, and need none. SAFETY: our own mapping; the advice changes no
        // contents.
        let _ = unsafe { sys::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        sys::name(base, bytes, c"carefree stacks");
        let record = Some(registry::register(base as usize, bytes, size));
        Some(Slab { base, size, slots, record, links, taken: 0, idle: 0, condemned: false })
    }

    /// How much address space it holds.
    pub(super) fn bytes(&self) -> usize {
        self.slots as usize * self.size.bytes()
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// The lowest address of a slot.
    pub(super) fn slot(&self, index: u32) -> *mut u8 {
        debug_assert!(index < self.slots);
        self.base.wrapping_add(index as usize * self.size.bytes())
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let Some(record) = self.record else { return };
        record.retire();
        let base = self.base as usize;
        valgrind::deregister(&(base..base + self.bytes()));
        // SAFETY: a class drops its slabs when neither a pool nor a stack refers to it any more.
        // Failing to unmap leaves address space reserved, which is harmless.
        let _ = unsafe { sys::unmap(self.base, self.bytes()) };
    }
}

/// Links of so many slots, all zero; none where there is no memory for them.
///
/// From calloc, so that the links of slots never taken are not touched either.
fn zeroed(slots: u32) -> Option<Box<[u32]>> {
    let layout = Layout::array::<u32>(slots as usize).ok()?;
    // SAFETY: a slab has a slot, so the layout is not empty.
    let links = unsafe { alloc::alloc_zeroed(layout) }.cast::<u32>();
    if links.is_null() {
        return None;
    }
    // SAFETY: from the global allocator with the layout of such a slice, whose numbers are zero.
    Some(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(links, slots as usize)) })
}

/// Where slabs of so many bytes may begin. Above the size of the largest slab of many, to find a
/// place would take twice the address space.
fn alignment(size: StackSize, bytes: usize) -> usize {
    let span = PAGE_TABLE_SPAN.min(bytes.next_power_of_two());
    if size.bytes() > LARGEST { span } else { size.bytes().max(span) }
}

/// Aligned places that are looked at for a reservation, one below the other.
const DOWN: usize = 16;

/// Reserves `bytes` at a multiple of `alignment`, a power of two.
fn map_aligned(bytes: usize, alignment: usize) -> Result<*mut u8, Errno> {
    // Recent kernels align large mappings to a page table's span by themselves, so the first try
    // often does.
    let base = sys::reserve(bytes)?;
    if base as usize % alignment == 0 {
        return Ok(base);
    }
    // SAFETY: nobody has learnt of it.
    unsafe { sys::unmap(base, bytes) }?;
    // The kernel fills the address space from above, so there is room a little further down, as a
    // rule. Twice the size for a moment may be more than a limit leaves.
    let below = base as usize & !(alignment - 1);
    for lower in 0..DOWN {
        let place = below.saturating_sub(lower * alignment);
        match sys::reserve_at(place, bytes) {
            Ok(base) if base as usize == place => return Ok(base),
            Ok(elsewhere) => {
                // SAFETY: as above.
                unsafe { sys::unmap(elsewhere, bytes) }?;
                break;
            }
            // Something is there.
            Err(Errno(libc::EEXIST)) => {}
            Err(_) => break,
        }
    }
    let excess = alignment - sys::page_size();
    let base = sys::reserve(bytes + excess)?;
    let head = (base as usize).wrapping_neg() % alignment;
    let aligned = base.wrapping_add(head);
    // Trimming the ends cannot need another mapping, and what it fails to unmap is only reserved.
    for (end, surplus) in [(base, head), (aligned.wrapping_add(bytes), excess - head)] {
        if surplus > 0 {
            // SAFETY: nobody has learnt of it, and it is outside the part we keep.
            let _ = unsafe { sys::unmap(end, surplus) };
        }
    }
    Ok(aligned)
}
