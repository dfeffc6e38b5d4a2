//! One mapping that holds many stacks of a class.

use super::StackSize;
use super::registry::{self, Record};
use super::sys::{self, Errno};

/// What one page table spans. A guard and the top page of its slot must be in the same one: each
/// page table is 4 KiB of memory, as much as a whole parked fiber.
const PAGE_TABLE_SPAN: usize = 2 << 20;
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
    record: &'static Record,
    /// For each slot, the next one in whatever list it is on: the only record kept of a stack, four
    /// bytes. It lies beside the stacks, as writing to an idle stack would take a page.
    pub(super) links: Box<[u32]>,
    /// How many slots, from the lowest on, have ever been taken.
    pub(super) taken: u32,
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
            match map_aligned(
                bytes,
                size.bytes().max(PAGE_TABLE_SPAN.min(bytes.next_power_of_two())),
            ) {
                Ok(base) => return Ok(Slab::over(base, bytes, size)),
                Err(errno) if bytes == size.bytes() => return Err(errno),
                Err(_) => bytes = ((bytes / 2) & !(size.bytes() - 1)).max(size.bytes()),
            }
        }
    }

    fn over(base: *mut u8, bytes: usize, size: StackSize) -> Slab {
        // A huge page under a slot's top would give its fiber 2 MiB. Kernels without huge pages
        // refuse the advice, and need none. SAFETY: our own mapping; the advice changes no
        // contents.
        let _ = unsafe { sys::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        sys::name(base, bytes, c"carefree stacks");
        let slots = (bytes / size.bytes()) as u32;
        let record = registry::register(base as usize, bytes, size);
        // Zeroed memory comes from calloc, so that the links of slots never taken are not touched
        // either.
        Slab {
            base,
            size,
            slots,
            record,
            links: vec![0; slots as usize].into_boxed_slice(),
            taken: 0,
        }
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
        self.record.retire();
        // SAFETY: a class drops its slabs when neither a pool nor a stack refers to it any more.
        // Failing to unmap leaves address space reserved, which is harmless.
        let _ = unsafe { sys::unmap(self.base, self.bytes()) };
    }
}

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
