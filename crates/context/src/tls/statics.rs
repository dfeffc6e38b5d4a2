//! What is copied into a block of thread-local storage: the initial values of libraries' variables.

use std::ops::Range;

use super::pristine::Findings;

/// One object's variables at their place in a block: the executable's, or those of a library.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Module {
    /// libc's number for it, an index into the dynamic thread vector.
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

/// What is copied into a block as it is built and whenever it is reset. Immutable.
#[derive(Debug, PartialEq)]
pub(super) struct Statics {
    /// All objects with a fixed place but libc.
    pub(super) modules: Box<[Module]>,
    /// Where they lie, neighbours put together.
    pub(super) areas: Box<[Range<usize>]>,
    /// Initial values; of the size of a block, zero outside of `areas`.
    image: Box<[u64]>,
    /// Indices of the words of `image` that hold a position in the block. None, as a rule: no
    /// linker can write an address of a thread-local variable into another's initial value. But a
    /// library that was told of the pristine thread's start may have.
    rebase: Box<[u32]>,
}

impl Statics {
    /// Gathers what the pristine thread saw, for blocks of `size` bytes whose thread pointer is at
    /// `tp`.
    pub(super) fn gather(found: &Findings, size: usize, tp: usize) -> Result<Statics, Misfit> {
        let mut modules = Vec::new();
        let mut image = vec![0; size / 8].into_boxed_slice();
        for module in found.modules().iter().filter(|m| m.id != found.libc) {
            let start = tp as isize + module.from_tp;
            let end = start + module.size as isize;
            // Which of the two can happen depends on the side that the reserve lies on.
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
                // Nothing but padding lies between two neighbours that are this near.
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
        Ok(Statics { modules: modules.into(), areas: areas.into(), image, rebase: rebase.into() })
    }

    /// Gives the variables of all objects but libc their initial values.
    ///
    /// # Safety
    /// `low` is the lowest address of a block of the layout these were gathered for, and no fiber
    /// runs on it.
    #[inline]
    pub(super) unsafe fn write(&self, low: *mut u8) {
        let image = self.image.as_ptr().cast::<u8>();
        for area in &self.areas {
            // SAFETY: an area is a piece of the image, whose beginning corresponds to `low`, and a
            // block of this layout is as long as the image. No fiber runs on the block, so nothing
            // else uses its variables; the image is memory of our own, elsewhere.
            unsafe {
                low.add(area.start).copy_from_nonoverlapping(image.add(area.start), area.len());
            }
        }
        for index in &self.rebase {
            // SAFETY: as above: the index is one of the image's words, and blocks are aligned to more
            // than a word.
            unsafe { self.rebase(low, *index) };
        }
    }

    /// Writes a word that holds a position in the block as the address it stands for.
    ///
    /// # Safety
    /// As for [`write`](Self::write); `index` is a word's within the block.
    #[inline]
    unsafe fn rebase(&self, low: *mut u8, index: u32) {
        // Not added to what the block has: another thread may be writing the same word.
        let value = self.image[index as usize].wrapping_add(low as u64);
        // SAFETY: the caller's promise.
        unsafe { low.cast::<u64>().add(index as usize).write(value) };
    }

    /// Gives the variables of `module`, which is one of these, their initial values.
    ///
    /// # Safety
    /// `low` is the lowest address of a block of the layout these were gathered for, and no fiber
    /// uses these variables.
    pub(super) unsafe fn write_module(&self, low: *mut u8, module: &Module) {
        let place = &module.place;
        let image = self.image.as_ptr().cast::<u8>();
        // SAFETY: as in `write`, for a part of the block that no fiber uses.
        unsafe {
            low.add(place.start).copy_from_nonoverlapping(image.add(place.start), place.len());
        }
        let words = place.start.div_ceil(8) as u32..(place.end / 8) as u32;
        for index in self.rebase.iter().filter(|index| words.contains(index)) {
            // SAFETY: as in `write`; the word lies within what was just copied.
            unsafe { self.rebase(low, *index) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fiber's block is reset while a library is loaded: two threads write the same words.
    #[test]
    fn what_is_written_twice_is_as_if_written_once() {
        let module = Module { id: 1, place: 8..32 };
        let statics = Statics {
            modules: [module.clone()].into(),
            areas: [module.place.clone()].into(),
            image: [0, 7, 16, 9, 0].into(),
            rebase: [2].into(),
        };
        let mut block = [1_u64; 5];
        let low = block.as_mut_ptr().cast::<u8>();
        let address = low as u64 + 16;
        // SAFETY: a block of this layout's, which no fiber uses.
        unsafe {
            statics.write(low);
            // As far as the other thread has come.
            statics.rebase(low, 2);
            assert_eq!(block, [1, 7, address, 9, 1]);
            statics.write_module(low, &module);
            statics.rebase(low, 2);
        }
        assert_eq!(block, [1, 7, address, 9, 1]);
    }
}
