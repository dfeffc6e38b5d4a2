//! A block of thread-local storage: built, reset for the next fiber, retired.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use super::glibc::{DTV_FROM_TP, UNALLOCATED};
use super::ids::{is_fiber_id, new_id};
use super::layout::Layout;
use super::registry::{self, Retired, Word};
use crate::arch;

/// A block of thread-local storage at the top of a fiber's stack.
///
/// Owns what the block refers to outside of itself (the dynamic thread vector, caches of libc), not
/// the memory that it lies in. [`Block::retire`] must be called before that memory goes away,
/// because loading a library writes to all blocks that are not retired.
#[derive(Debug)]
pub struct Block {
    tp: NonNull<u8>,
    layout: &'static Layout,
    /// Its number in the registry.
    number: u32,
}

// SAFETY: a block is plain memory, tied to no thread; functions that change it take it mutably or by
// value.
unsafe impl Send for Block {}

impl Block {
    /// Builds a block whose last byte lies just below `stack.end`, or as near to it as the
    /// thread pointer's alignment allows.
    ///
    /// # Errors
    /// `ENOMEM` when the dynamic thread vector (some 100 bytes) cannot be allocated.
    ///
    /// # Safety
    /// `stack` is writable memory that is not in use; the part of it that the block takes
    /// ([`Layout::size`] bytes plus alignment at its end) reads as zero. That part stays mapped,
    /// and only the block's user writes to it, until [`Block::retire`].
    pub unsafe fn build(layout: &'static Layout, stack: Range<*mut u8>) -> io::Result<Block> {
        let after = layout.size - layout.tp;
        let highest = stack.end.wrapping_sub(after);
        let tp = highest.wrapping_sub(highest as usize % layout.align);
        let low = tp.wrapping_sub(layout.tp);
        let vector = allocate_vector(layout, low)?;
        // SAFETY: `low..low + size` lies in `stack`, is writable and not in use. All positions of a
        // layout are within `size`, and words are aligned, as `tp` is.
        let number = unsafe {
            // The memory is zero already, and most words stay so: the lines that they fill are not
            // touched.
            let words = low.cast::<u64>();
            for index in &layout.written {
                words.add(*index as usize).write(layout.image[*index as usize]);
            }
            for index in &layout.rebase {
                let word = words.add(*index as usize);
                *word += low as u64;
            }
            let values = layout.libraries.current();
            values.write(low);
            tp.add(DTV_FROM_TP).cast::<*mut [usize; 2]>().write(vector);
            low.add(layout.stack_base).cast::<*mut u8>().write(stack.start);
            let length = stack.end as usize - stack.start as usize;
            low.add(layout.stack_size).cast::<usize>().write(length);
            let (former, number) = {
                let mut registry = registry::lock();
                // Either `registry::fill` finds this block, or this finds what was published before
                // `fill`.
                let latest = layout.libraries.current();
                if !std::ptr::eq(values, latest) {
                    latest.write(low);
                }
                (registry.take_retired(), registry.add(low))
            };
            let id = match former {
                None => new_id(),
                Some(former) => {
                    for word in &former.words {
                        let base = if word.inside { low as u64 } else { 0 };
                        words.add(word.index as usize).write(word.value.wrapping_add(base));
                    }
                    former.id
                }
            };
            low.add(layout.tid).cast::<u32>().write(id);
            number
        };
        // SAFETY: `tp` lies within `stack`, so it is not null.
        Ok(Block { tp: unsafe { NonNull::new_unchecked(tp) }, layout, number })
    }

    /// The thread pointer of a fiber that runs on this block.
    #[inline]
    pub fn thread_pointer(&self) -> *mut u8 {
        self.tp.as_ptr()
    }

    /// The block's lowest address: where the fiber's stack begins, growing downwards.
    #[inline]
    pub fn low(&self) -> *mut u8 {
        self.tp.as_ptr().wrapping_sub(self.layout.tp)
    }

    /// The `pthread_t` of the fiber that runs on this block.
    pub fn pthread(&self) -> *mut u8 {
        self.low().wrapping_add(self.layout.pthread.start)
    }

    /// The id by which libc knows the fiber, in place of a thread's. No thread has it, nor another
    /// block of this process.
    pub fn id(&self) -> u32 {
        // SAFETY: the word lies in the block, which is not retired.
        unsafe { self.low().add(self.layout.tid).cast::<u32>().read() }
    }

    /// Gives the next fiber on this block an id that no other has had: for programs that tell threads
    /// apart by their ids, long after some have ended.
    pub fn renew_id(&mut self) {
        // SAFETY: the word lies in the block, which no fiber uses: it is borrowed mutably.
        unsafe { self.low().add(self.layout.tid).cast::<u32>().write(new_id()) };
    }

    /// Has `pthread_getattr_np` say that the fiber's stack is this.
    pub fn tell_stack(&mut self, stack: std::ops::Range<*mut u8>) {
        let (low, layout) = (self.low(), self.layout);
        // SAFETY: the words lie in the block, which no fiber uses: it is borrowed mutably.
        unsafe {
            low.add(layout.stack_base).cast::<*mut u8>().write(stack.start);
            let length = stack.end as usize - stack.start as usize;
            low.add(layout.stack_size).cast::<usize>().write(length);
        }
    }

    /// Prefetches what [`reset`](Self::reset) would otherwise wait for, given that the thread control
    /// block is in the cache.
    #[inline(always)]
    pub fn prefetch(&self) {
        arch::prefetch(self.vector().cast());
    }

    /// Makes the block ready for the next fiber: every library's variables but libc's get their
    /// initial values. The former fiber must have run its destructors on it
    /// ([`Layout::run_destructors`]).
    ///
    /// To be called right before the next fiber starts, not when the former one ends, and even for
    /// a block that no fiber has run on: [`Layout::refresh`] may since have found a library whose
    /// initial values the fiber must see.
    #[inline]
    pub fn reset(&mut self) {
        self.reset_variables();
        self.drop_dynamic_storage();
    }

    /// The part of [`reset`](Self::reset) that calls no function of the program's. The next fiber itself may call
    /// this, as the first that it does: it must have used no variable before.
    #[inline]
    pub fn reset_variables(&self) {
        let layout = self.layout;
        let low = self.low();
        // SAFETY: this block is of this layout, and no fiber uses its variables, as its owner sees to.
        unsafe { layout.libraries.write_current(low) };
        let image = layout.image.as_ptr().cast::<u8>();
        for position in &layout.anew {
            // SAFETY: these are positions of 32-bit words within the block and its image.
            unsafe {
                let value = image.add(*position).cast::<u32>().read();
                low.add(*position).cast::<u32>().write(value);
            }
        }
    }

    /// Whether there is storage of modules that were given theirs at first use.
    #[inline(always)]
    pub fn has_dynamic_storage(&self) -> bool {
        let vector = self.vector();
        // SAFETY: entry -1 holds the number of modules the vector has room for, and entries 1 to that exist. No fiber
        // runs on the block that could have them changed.
        unsafe {
            let count = vector.sub(1).read()[0];
            (1..=count).any(|id| (*vector.add(id))[1] != 0)
        }
    }

    /// The part of [`reset`](Self::reset) that calls the program's allocator: frees the storage of modules that were
    /// given theirs at first use. The loader allocates it again when it is needed.
    ///
    /// It does not matter whether the module is still loaded, or whether another has its number by
    /// now. The loader would free the storage in the same way when it next updates the vector, and
    /// it returns no address before it has updated the vector to the module's generation.
    #[inline]
    pub fn drop_dynamic_storage(&mut self) {
        let vector = self.vector();
        // SAFETY: entry -1 holds the number of modules the vector has room for.
        let count = unsafe { vector.sub(1).read()[0] };
        for id in 1..=count {
            // SAFETY: entries 1..=count exist, and no fiber runs on the block that could use them.
            let entry = unsafe { &mut *vector.add(id) };
            if entry[1] != 0 {
                // SAFETY: the loader allocated it for this block alone, with the program's malloc.
                unsafe { libc::free(entry[1] as *mut _) };
                *entry = [UNALLOCATED, 0];
            }
        }
    }

    fn vector(&self) -> *mut [usize; 2] {
        // SAFETY: the word lies in the block. (It is read each time, as libc may move the vector.)
        unsafe { self.tp.as_ptr().add(DTV_FROM_TP).cast::<*mut [usize; 2]>().read() }
    }

    /// Undoes [`Layout::lend_malloc`]: to be called before a block to which a thread has lent is retired.
    pub fn return_malloc(&mut self) {
        let layout = self.layout;
        for position in &layout.mallocs {
            // SAFETY: the word lies in the block, which no fiber uses: it is borrowed mutably.
            unsafe { self.low().add(*position).cast::<u64>().write(layout.image[*position / 8]) };
        }
    }

    /// Ends the block. What libc keeps in it is passed to the next block that is built; the memory is
    /// the caller's again.
    ///
    /// libc keeps malloc's cache for a thread (some 650 bytes and the cached memory), if the block's fibers
    /// ever called malloc and none [was lent](super::Layout::lend_malloc); values of pthread keys above the
    /// 32nd, name resolution, texts of `strerror`, vDSO random state. So memory of this size stays allocated
    /// for each block of the largest number that was ever in use.
    pub fn retire(mut self) {
        self.reset();
        let layout = self.layout;
        let low = self.low();
        let end = low.wrapping_add(layout.size);
        // Words that belong to one block and must not be passed on.
        let own = [layout.tid, layout.stack_base, layout.stack_size, layout.tp + DTV_FROM_TP];
        let mut words = Vec::new();
        for part in [&layout.pthread, &layout.libc] {
            for index in part.start / 8..part.end.div_ceil(8) {
                let pristine = layout.image[index];
                // SAFETY: both parts lie within the block, which is not in use.
                let value = unsafe { low.cast::<u64>().add(index).read() };
                // True of most words.
                if value == pristine
                    || value.wrapping_sub(low as u64) == pristine
                        && layout.rebase.binary_search(&(index as u32)).is_ok()
                    || own.iter().any(|own| own / 8 == index)
                {
                    continue;
                }
                let inside = (low as u64..end as u64).contains(&value);
                let value = if inside { value - low as u64 } else { value };
                words.push(Word { index: index as u32, inside, value });
            }
        }
        // In the child of a fork, the block of the forking fiber has the child's id, from the kernel.
        let id = Some(self.id()).filter(|id| is_fiber_id(*id)).unwrap_or_else(new_id);
        // SAFETY: the vector was allocated with calloc (by `allocate_vector` or, enlarged, by
        // libc), and nothing uses it after the block.
        unsafe { libc::free(self.vector().sub(1).cast()) };
        let remains = Retired::new(id, words);
        registry::lock().retire(self.number, remains);
    }
}

/// Allocates a dynamic thread vector for the block at `low`: entry -1 is the number of modules that
/// it has room for, entry 0 its generation; then comes one entry a module: its address, and what to
/// free for it.
///
/// The vector is what libc would make for a thread started when the pristine thread was. After a
/// later change of the libraries, the loader finds an old generation at the fiber's next access to
/// a variable through the vector, and updates it: for all modules of a later generation it frees
/// what the entry says and marks it as not allocated, which gives a module with a fixed place that
/// place, and any other new storage. It enlarges the vector with `realloc`, so the vector must come
/// from `calloc`. (The loader calls the program's allocator, even if the program defines its own.)
fn allocate_vector(layout: &Layout, low: *mut u8) -> io::Result<*mut [usize; 2]> {
    let count = layout.vector.len();
    // SAFETY: no preconditions; the result is checked.
    let memory = unsafe { libc::calloc(count + 2, 16) }.cast::<[usize; 2]>();
    if memory.is_null() {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    // SAFETY: count + 2 entries were allocated.
    unsafe {
        memory.write([count, 0]);
        memory.add(1).write([layout.generation, 0]);
        for (index, position) in layout.vector.iter().enumerate() {
            let data = position.map_or(UNALLOCATED, |position| low as usize + position);
            memory.add(2 + index).write([data, 0]);
        }
        Ok(memory.add(1))
    }
}
