//! The initial values of libraries' variables, which are copied into blocks of thread-local storage.

use std::ops::Range;

use super::pristine::Findings;

/// The place in a block of one object's variables: the executable's, or those of a library.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Module {
    /// libc's number for the object, an index into the dynamic thread vector.
    pub(super) id: usize,
    pub(super) place: Range<usize>,
}

/// An object whose variables do not fit into a block.
#[derive(Debug)]
pub(super) struct Misfit {
    pub(super) id: usize,
    pub(super) size: usize,
    /// Bytes by which a block would have to be longer.
    pub(super) short: usize,
}

/// What is copied into a block when it is built and whenever it is reset. Immutable.
#[derive(Debug, PartialEq)]
pub(super) struct InitialValues {
    /// All objects with a fixed place, except libc.
    pub(super) modules: Box<[Module]>,
    /// Their places, neighbours merged.
    pub(super) areas: Box<[Range<usize>]>,
    /// Initial values; of the size of a block, zero outside of `areas`.
    image: Box<[u64]>,
    /// Indices of the words of `image` that hold a position in the block. Usually none: no linker can
    /// write the address of a thread-local variable into another's initial value. But a library may
    /// have, if it was notified of the pristine thread's start.
    rebase: Box<[u32]>,
}

impl InitialValues {
    /// Gathers the values that the pristine thread saw, for blocks of `size` bytes whose thread
    /// pointer is at `tp`.
    pub(super) fn gather(
        found: &Findings,
        size: usize,
        tp: usize,
    ) -> Result<InitialValues, Misfit> {
        let mut modules = Vec::new();
        let mut image = vec![0; size / 8].into_boxed_slice();
        for module in found.modules().iter().filter(|m| m.id != found.libc) {
            let start = tp as isize + module.from_tp;
            let end = start + module.size as isize;
            // Only one of the two can happen: the module lies on the side of the reserve.
            let short = (-start).max(end - size as isize);
            if short > 0 {
                return Err(Misfit { id: module.id, size: module.size, short: short as usize });
            }
            let place = start as usize..end as usize;
            found.copy_to(&mut image, &place, tp);
            modules.push(Module { id: module.id, place });
        }
        modules.sort_by_key(|m| m.place.start);
        let mut areas: Vec<Range<usize>> = Vec::new();
        let libc = found.libc_place(tp);
        for Module { place, .. } in &modules {
            match areas.last_mut() {
                // Only padding lies between two neighbours that are this near.
                Some(last)
                    if place.start < last.end + 64
                        && !(last.end..place.start).contains(&libc.start) =>
                {
                    last.end = last.end.max(place.end);
                }
                _ => areas.push(place.clone()),
            }
        }
        let mut rebase = Vec::new();
        for (index, word) in image.iter_mut().enumerate() {
            if let Some(position) = found.position(*word as usize, tp) {
                *word = position as u64;
                rebase.push(index as u32);
            }
        }
        Ok(InitialValues {
            modules: modules.into(),
            areas: areas.into(),
            image,
            rebase: rebase.into(),
        })
    }

    /// Gives the variables of all objects but libc their initial values.
    ///
    /// # Safety
    /// `low` is the lowest address of a block of the layout that these values were gathered for,
    /// and no fiber runs on it.
    #[inline]
    pub(super) unsafe fn write(&self, low: *mut u8) {
        let image = self.image.as_ptr().cast::<u8>();
        for area in &self.areas {
            // SAFETY: an area is a part of the image, whose beginning corresponds to `low`, and a
            // block of this layout is as long as the image. No fiber runs on the block, so nothing
            // else uses its variables. The image does not overlap with it.
            unsafe {
                low.add(area.start).copy_from_nonoverlapping(image.add(area.start), area.len());
            }
        }
        for index in &self.rebase {
            // SAFETY: the index is that of a word of the image, and so of the block, which no fiber
            // uses.
            unsafe { self.rebase(low, *index) };
        }
    }

    /// Writes the word of this index, which holds a position in the block, as an address.
    ///
    /// # Safety
    /// `low` is a block's lowest address, and no fiber uses the word.
    #[inline]
    unsafe fn rebase(&self, low: *mut u8, index: u32) {
        // From the image, not from the block: another thread may be writing the same word.
        let value = self.image[index as usize].wrapping_add(low as u64);
        // SAFETY: the block is as long as the image and aligned to more than a word.
        unsafe { low.cast::<u64>().add(index as usize).write(value) };
    }

    /// Gives the variables of `module`, which is one of `modules`, their initial values.
    ///
    /// # Safety
    /// `low` is the lowest address of a block of the layout that these values were gathered for,
    /// and no fiber uses these variables.
    pub(super) unsafe fn write_module(&self, low: *mut u8, module: &Module) {
        let place = &module.place;
        let image = self.image.as_ptr().cast::<u8>();
        // SAFETY: a module's place lies within the image, and so within the block; no fiber uses it.
        unsafe {
            low.add(place.start).copy_from_nonoverlapping(image.add(place.start), place.len());
        }
        let words = place.start.div_ceil(8) as u32..(place.end / 8) as u32;
        for index in self.rebase.iter().filter(|index| words.contains(index)) {
            // SAFETY: the word lies within what was just copied.
            unsafe { self.rebase(low, *index) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fiber's block is reset while a library is loaded: two threads write the same words.
    #[test]
    fn writing_twice_gives_the_same_as_writing_once() {
        let module = Module { id: 1, place: 8..32 };
        let values = InitialValues {
            modules: [module.clone()].into(),
            areas: [module.place.clone()].into(),
            image: [0, 7, 16, 9, 0].into(),
            rebase: [2].into(),
        };
        let mut block = [1_u64; 5];
        let low = block.as_mut_ptr().cast::<u8>();
        let address = low as u64 + 16;
        // SAFETY: the array is as long as the image, and no fiber uses it.
        unsafe {
            values.write(low);
            // The other thread has come this far.
            values.rebase(low, 2);
            assert_eq!(block, [1, 7, address, 9, 1]);
            values.write_module(low, &module);
            values.rebase(low, 2);
        }
        assert_eq!(block, [1, 7, address, 9, 1]);
    }
}
