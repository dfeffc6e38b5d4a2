//! A block of thread-local storage: made, reset for the next fiber, retired.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::layout::{DTV_FROM_TP, Layout};

/// libc's mark of a module whose storage the thread has not got yet.
const UNALLOCATED: usize = usize::MAX;

/// Ids given to fibers begin above every id the kernel gives to threads (`PID_MAX_LIMIT` is 2²²)
/// and end below the bits the futex protocol keeps for itself (2³⁰).
const FIRST_ID: u32 = 1 << 23;

/// Where the ids end that the kernel's futex protocol lets a thread have.
const END_OF_IDS: u32 = 1 << 30;

/// Whether a thread id found in a thread control block is a fiber's.
pub(super) fn is_fiber_id(id: u32) -> bool {
    (FIRST_ID..END_OF_IDS).contains(&id)
}

/// What outlives a block whose memory is given back.
#[derive(Debug)]
struct Retired {
    id: u32,
    /// The words in which libc's part differed from a pristine block.
    words: Box<[Word]>,
}

#[derive(Debug)]
struct Word {
    index: u32,
    /// The value is a position in the block.
    inside: bool,
    value: u64,
}

static RETIRED: Mutex<Vec<Retired>> = Mutex::new(Vec::new());
static NEXT_ID: AtomicU32 = AtomicU32::new(FIRST_ID);

/// A block of thread-local storage at the top of a fiber's stack.
///
/// Owns what the block refers to outside of itself (the dynamic thread vector, caches of libc),
/// not the memory it lies in. [`Block::retire`] must be called before that memory goes away, or
/// what it owns is lost until the process ends.
#[derive(Debug)]
pub struct Block {
    tp: NonNull<u8>,
    layout: &'static Layout,
}

// SAFETY: a block is plain memory; the functions that change it take it mutably or by value.
unsafe impl Send for Block {}

impl Block {
    /// Builds a block whose last byte lies just below `stack.end`, or as near to it as the
    /// thread pointer's alignment allows.
    ///
    /// # Errors
    /// `ENOMEM` when the dynamic thread vector (some 100 bytes) cannot be allocated.
    ///
    /// # Safety
    /// `stack` is writable memory that nobody else uses; the part of it that the block takes
    /// ([`Layout::size`] bytes plus alignment at its end) reads as zero.
    pub unsafe fn build(layout: &'static Layout, stack: Range<*mut u8>) -> io::Result<Block> {
        let after = layout.size - layout.tp;
        let highest = stack.end.wrapping_sub(after);
        let tp = highest.wrapping_sub(highest as usize % layout.align);
        let low = tp.wrapping_sub(layout.tp);
        let retired = RETIRED.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let vector = allocate_vector(layout, low)?;
        let reserve = &layout.reserve;
        // SAFETY: `low..low + size` lies in `stack`, which is the caller's to give.
        unsafe {
            // The reserve stays untouched: it is zero already.
            for part in [0..reserve.start, reserve.end..layout.size] {
                let image = layout.image.as_ptr().cast::<u8>().add(part.start);
                low.add(part.start).copy_from_nonoverlapping(image, part.len());
            }
            let words = low.cast::<u64>();
            for index in &layout.rebase {
                let word = words.add(*index as usize);
                *word += low as u64;
            }
            tp.add(DTV_FROM_TP).cast::<*mut [usize; 2]>().write(vector);
            low.add(layout.stack_base).cast::<*mut u8>().write(stack.start);
            let length = stack.end as usize - stack.start as usize;
            low.add(layout.stack_size).cast::<usize>().write(length);
            let id = match retired {
                None => NEXT_ID.fetch_add(1, Ordering::Relaxed),
                Some(retired) => {
                    for word in &retired.words {
                        let base = if word.inside { low as u64 } else { 0 };
                        words.add(word.index as usize).write(word.value.wrapping_add(base));
                    }
                    retired.id
                }
            };
            low.add(layout.tid).cast::<u32>().write(id);
        }
        // SAFETY: `tp` lies within `stack` and so is not null.
        Ok(Block { tp: unsafe { NonNull::new_unchecked(tp) }, layout })
    }

    /// What the thread pointer must be while a fiber runs on this block.
    #[inline]
    pub fn thread_pointer(&self) -> *mut u8 {
        self.tp.as_ptr()
    }

    /// The block's lowest address: where the fiber's stack begins, growing downwards.
    #[inline]
    pub fn low(&self) -> *mut u8 {
        self.tp.as_ptr().wrapping_sub(self.layout.tp)
    }

    /// The id libc knows the fiber by, as it would a thread's. No thread has it, nor another
    /// block of this process.
    pub fn id(&self) -> u32 {
        // SAFETY: the word lies in the block.
        unsafe { self.low().add(self.layout.tid).cast::<u32>().read() }
    }

    /// Makes the block ready for the next fiber: every module's variables but libc's get their
    /// initial values. The former fiber must have run its destructors on it
    /// ([`Layout::run_destructors`]).
    #[inline]
    pub fn reset(&mut self) {
        let layout = self.layout;
        let low = self.low();
        let image = layout.image.as_ptr().cast::<u8>();
        for part in &layout.reset {
            // SAFETY: positions within the block and its image; no fiber runs on it.
            unsafe {
                low.add(part.start).copy_from_nonoverlapping(image.add(part.start), part.len());
            }
        }
        for index in &layout.rebase_in_reset {
            // SAFETY: as above; the word was just copied from the image and holds a position.
            unsafe { *low.cast::<u64>().add(*index as usize) += low as u64 };
        }
        if let Some(flags) = layout.cancel_flags {
            // SAFETY: as above.
            unsafe {
                low.add(flags).cast::<u32>().write(image.add(flags).cast::<u32>().read());
            }
        }
        self.drop_dynamic_storage();
    }

    /// Frees the storage of modules that got theirs at first use; the loader gives it anew.
    #[inline]
    fn drop_dynamic_storage(&mut self) {
        let vector = self.vector();
        // SAFETY: entry -1 holds the number of modules the vector has room for.
        let count = unsafe { vector.sub(1).read()[0] };
        for id in 1..=count {
            // SAFETY: entries 1..=count exist.
            let entry = unsafe { &mut *vector.add(id) };
            if entry[1] != 0 {
                // SAFETY: libc allocated it with its malloc for this thread alone.
                unsafe { libc::free(entry[1] as *mut _) };
                *entry = [UNALLOCATED, 0];
            }
        }
    }

    fn vector(&self) -> *mut [usize; 2] {
        // SAFETY: the word lies in the block. libc may have moved the vector, so it is read anew.
        unsafe { self.tp.as_ptr().add(DTV_FROM_TP).cast::<*mut [usize; 2]>().read() }
    }

    /// Ends the block. What libc keeps in it is handed to the next block that is built; the
    /// memory is the caller's again.
    pub fn retire(mut self) {
        self.reset();
        let layout = self.layout;
        let low = self.low();
        let end = low.wrapping_add(layout.size);
        // Words that are each block's own, in ascending order of nothing in particular.
        let own = [layout.tid, layout.stack_base, layout.stack_size, layout.tp + DTV_FROM_TP];
        let mut rebase = layout.rebase.iter().peekable();
        let mut words = Vec::new();
        for (index, pristine) in layout.image.iter().enumerate() {
            let rebased = rebase.next_if(|i| **i as usize == index).is_some();
            let position = index * 8;
            if layout.reserve.contains(&position) || own.iter().any(|own| own & !7 == position) {
                continue;
            }
            // SAFETY: within the block.
            let value = unsafe { low.cast::<u64>().add(index).read() };
            let expected = if rebased { pristine + low as u64 } else { *pristine };
            if value != expected {
                let inside = (low as u64..end as u64).contains(&value);
                let value = if inside { value - low as u64 } else { value };
                words.push(Word { index: index as u32, inside, value });
            }
        }
        let retired = Retired { id: self.id(), words: words.into() };
        // SAFETY: allocated with calloc (by us or, enlarged, by libc), and the block ends here.
        unsafe { libc::free(self.vector().sub(1).cast()) };
        RETIRED.lock().unwrap_or_else(|e| e.into_inner()).push(retired);
    }
}

/// A dynamic thread vector for the block at `low`: entry -1 the number of modules it has room
/// for, entry 0 its generation, then one entry a module. libc enlarges it with `realloc` when
/// libraries with thread-local storage are loaded, so it must come from libc's `calloc`.
fn allocate_vector(layout: &Layout, low: *mut u8) -> io::Result<*mut [usize; 2]> {
    let count = layout.modules.iter().map(|m| m.id).max().unwrap_or(0);
    // SAFETY: plain allocation.
    let memory = unsafe { libc::calloc(count + 2, 16) }.cast::<[usize; 2]>();
    if memory.is_null() {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    // SAFETY: count + 2 entries were allocated.
    unsafe {
        memory.write([count, 0]);
        memory.add(1).write([layout.generation, 0]);
        for id in 1..=count {
            memory.add(1 + id).write([UNALLOCATED, 0]);
        }
        for module in &layout.modules {
            let data = low.wrapping_add(layout.tp).wrapping_offset(module.from_tp);
            memory.add(1 + module.id).write([data as usize, 0]);
        }
        Ok(memory.add(1))
    }
}

impl Layout {
    /// What a thread's start does for what libc keeps per thread and a former fiber may have
    /// changed: the locale is the process's, `errno` is 0.
    ///
    /// # Safety
    /// The caller has just begun to run on a [`Block`] of this layout.
    #[inline]
    pub unsafe fn enter(&self) {
        // SAFETY: LC_GLOBAL_LOCALE, (locale_t) -1, is always valid; errno is the caller's own.
        unsafe {
            libc::uselocale(usize::MAX as libc::locale_t);
            *libc::__errno_location() = 0;
        }
    }
}
