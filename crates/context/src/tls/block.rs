//! A block of thread-local storage: made, reset for the next fiber, retired.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::arch;
use carefree_ground::lock::Lock;

use super::layout::{DTV_FROM_TP, Layout};
use super::pristine::UNALLOCATED;
use super::statics::{Module, Statics};

/// Ids given to fibers begin above every id the kernel gives to threads (`PID_MAX_LIMIT` is 2²²)
/// and end below the bits the futex protocol keeps for itself (2³⁰).
const IDS: Range<u32> = 1 << 23..1 << 30;

/// Whether a thread id found in a thread control block is a fiber's.
pub(super) fn is_fiber_id(id: u32) -> bool {
    IDS.contains(&id)
}

/// Ids given so far.
static GIVEN: AtomicU32 = AtomicU32::new(0);
/// How many steps further this process begins than the one that it was forked from.
static FURTHER: AtomicU32 = AtomicU32::new(0);

/// An id that no thread has and no other block of this process.
fn new_id() -> u32 {
    // Where to begin differs from process to process. A recursive mutex may lie in memory that two
    // processes share, and it must not take a fiber of one for a fiber of the other.
    // SAFETY: the kernel puts 16 random bytes where AT_RANDOM says, if it says so.
    let begin = unsafe {
        let random = libc::getauxval(libc::AT_RANDOM) as *const u32;
        if random.is_null() { 0 } else { random.add(3).read_unaligned() }
    };
    // Ids are used again when a block is retired, so this many are never in use.
    let given = GIVEN.fetch_add(1, Ordering::Relaxed);
    let further = FURTHER.load(Ordering::Relaxed);
    let length = u64::from(IDS.end - IDS.start);
    IDS.start + ((u64::from(begin) + u64::from(further) + u64::from(given)) % length) as u32
}

/// Gives the blocks that are built from now on other ids than the parent's: in the child of a fork,
/// which has the same random bytes. Blocks that are there already keep theirs.
pub(super) fn renew() {
    // Neighbours far from each other: a multiplication that turns bits of the lower end into bits of
    // the upper one.
    let far = std::process::id().wrapping_mul(0x9e37_79b9);
    FURTHER.fetch_add(far, Ordering::Relaxed);
    let mut blocks = BLOCKS.lock();
    for retired in &mut blocks.retired {
        retired.id = new_id();
    }
    // The parent's fibers stay behind. The one that has called `fork` is a thread of libc's now.
    blocks.built.fill(0);
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

/// All blocks of the process.
#[derive(Debug)]
struct Blocks {
    retired: Vec<Retired>,
    /// The lowest addresses of those that are not retired, in use or idle; 0 where there is none.
    built: Vec<usize>,
    /// Where in `built` there is none.
    vacant: Vec<u32>,
}

static BLOCKS: Lock<Blocks> =
    Lock::new(Blocks { retired: Vec::new(), built: Vec::new(), vacant: Vec::new() });

impl Blocks {
    /// Notes a block; returns where.
    fn note(&mut self, low: *mut u8) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.built.push(0);
            (self.built.len() - 1) as u32
        });
        self.built[number as usize] = low as usize;
        number
    }

    fn forget(&mut self, number: u32) {
        self.built[number as usize] = 0;
        self.vacant.push(number);
    }
}

/// Gives the variables of `module` their initial values in all blocks, fibers running on them or not.
///
/// # Safety
/// Blocks are of the layout that `statics` were gathered for, and no fiber uses these variables yet.
pub(super) unsafe fn fill(statics: &Statics, module: &Module) {
    // Longer than locks here are held as a rule. A block that is being built is noted under the lock,
    // and one that is retired is forgotten under it: those here are there.
    let blocks = BLOCKS.lock();
    for low in blocks.built.iter().filter(|low| **low != 0) {
        // SAFETY: a block that is built; the rest is the caller's promise.
        unsafe { statics.write_module(*low as *mut u8, module) };
    }
}

/// Keeps others from making and retiring blocks until [`release`].
pub(super) fn hold() {
    BLOCKS.hold();
}

/// # Safety
/// As for [`Lock::release`].
pub(super) unsafe fn release() {
    // SAFETY: the caller's promise.
    unsafe { BLOCKS.release() };
}

/// A block of thread-local storage at the top of a fiber's stack.
///
/// Owns what the block refers to outside of itself (the dynamic thread vector, caches of libc),
/// not the memory it lies in. [`Block::retire`] must be called before that memory goes away: a library
/// that is loaded writes to all blocks that are not retired.
#[derive(Debug)]
pub struct Block {
    tp: NonNull<u8>,
    layout: &'static Layout,
    /// Where it is noted among [`Blocks`].
    number: u32,
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
    /// ([`Layout::size`] bytes plus alignment at its end) reads as zero. It stays mapped and the block's
    /// until [`Block::retire`].
    pub unsafe fn build(layout: &'static Layout, stack: Range<*mut u8>) -> io::Result<Block> {
        let after = layout.size - layout.tp;
        let highest = stack.end.wrapping_sub(after);
        let tp = highest.wrapping_sub(highest as usize % layout.align);
        let low = tp.wrapping_sub(layout.tp);
        let vector = allocate_vector(layout, low)?;
        let reserve = &layout.reserve;
        // SAFETY: `low..low + size` lies in `stack`, which is the caller's to give.
        let number = unsafe {
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
            let statics = layout.libraries.current();
            statics.write(low);
            tp.add(DTV_FROM_TP).cast::<*mut [usize; 2]>().write(vector);
            low.add(layout.stack_base).cast::<*mut u8>().write(stack.start);
            let length = stack.end as usize - stack.start as usize;
            low.add(layout.stack_size).cast::<usize>().write(length);
            let (former, number) = {
                let mut blocks = BLOCKS.lock();
                // Either `fill` finds the block noted, or this finds what was published before `fill`.
                let latest = layout.libraries.current();
                if !std::ptr::eq(statics, latest) {
                    latest.write(low);
                }
                (blocks.retired.pop(), blocks.note(low))
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
        // SAFETY: `tp` lies within `stack` and so is not null.
        Ok(Block { tp: unsafe { NonNull::new_unchecked(tp) }, layout, number })
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

    /// The `pthread_t` of the fiber that runs on this block.
    pub fn pthread(&self) -> *mut u8 {
        self.low().wrapping_add(self.layout.pthread.start)
    }

    /// The id libc knows the fiber by, as it would a thread's. No thread has it, nor another
    /// block of this process.
    pub fn id(&self) -> u32 {
        // SAFETY: the word lies in the block.
        unsafe { self.low().add(self.layout.tid).cast::<u32>().read() }
    }

    /// Brings what [`reset`](Self::reset) will wait for into the cache, if the thread control
    /// block is there already.
    #[inline(always)]
    pub fn prefetch(&self) {
        arch::prefetch(self.vector().cast());
    }

    /// Makes the block ready for the next fiber: every library's variables but libc's get their
    /// initial values. The former fiber must have run its destructors on it
    /// ([`Layout::run_destructors`]).
    ///
    /// Do it right before the next fiber starts, not when the former one ends, and even if nobody
    /// ran on the block yet: since then, [`Layout::refresh`] may have learnt of a library whose
    /// initial values the fiber must find.
    #[inline]
    pub fn reset(&mut self) {
        let layout = self.layout;
        let low = self.low();
        // SAFETY: a block of this layout's; no fiber runs on it.
        unsafe { layout.libraries.write_current(low) };
        let image = layout.image.as_ptr().cast::<u8>();
        for position in &layout.anew {
            // SAFETY: as above; positions of 32-bit words within the block and its image.
            unsafe {
                let value = image.add(*position).cast::<u32>().read();
                low.add(*position).cast::<u32>().write(value);
            }
        }
        self.drop_dynamic_storage();
    }

    /// Frees the storage of modules that got theirs at first use; the loader gives it anew.
    ///
    /// It does not matter whether the module is still loaded, or whether another has its number by
    /// now. The loader would free the storage just so when it next updates the vector, and it
    /// hands nothing out before it has updated the vector to the module's generation.
    #[inline]
    fn drop_dynamic_storage(&mut self) {
        let vector = self.vector();
        // SAFETY: entry -1 holds the number of modules the vector has room for.
        let count = unsafe { vector.sub(1).read()[0] };
        for id in 1..=count {
            // SAFETY: entries 1..=count exist.
            let entry = unsafe { &mut *vector.add(id) };
            if entry[1] != 0 {
                // SAFETY: the loader allocated it with the program's malloc for this block alone.
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
    ///
    /// That is, first of all, malloc's cache for a thread (some 700 bytes and what lies in it) if
    /// the block's fibers ever called malloc; then values of pthread keys above the 32nd, name
    /// resolution, texts of `strerror`, vDSO random state. So while fewer blocks are in use than
    /// once were, that much is kept for each.
    pub fn retire(mut self) {
        self.reset();
        let layout = self.layout;
        let low = self.low();
        let end = low.wrapping_add(layout.size);
        // What is each block's own and must not be handed on.
        let own = [layout.tid, layout.stack_base, layout.stack_size, layout.tp + DTV_FROM_TP];
        let mut words = Vec::new();
        for part in [&layout.pthread, &layout.libc] {
            for index in part.start / 8..part.end.div_ceil(8) {
                let pristine = layout.image[index];
                // SAFETY: within the block.
                let value = unsafe { low.cast::<u64>().add(index).read() };
                // So for most words.
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
        // In a child of fork the kernel has put the child's id in.
        let id = Some(self.id()).filter(|id| is_fiber_id(*id)).unwrap_or_else(new_id);
        // SAFETY: allocated with calloc (by us or, enlarged, by libc), and the block ends here.
        unsafe { libc::free(self.vector().sub(1).cast()) };
        let retired = Retired { id, words: words.into() };
        let mut blocks = BLOCKS.lock();
        blocks.retired.push(retired);
        blocks.forget(self.number);
    }
}

/// A dynamic thread vector for the block at `low`: entry -1 the number of modules it has room
/// for, entry 0 its generation, then one entry a module: its address, and what to free for it.
///
/// It is as libc makes it for a new thread, as of the pristine thread's start. For every change of
/// the libraries after that, the loader finds the generation to be old at the fiber's next access
/// to a variable by way of the vector, and brings it up to date: it goes through all modules of a
/// later generation, frees what the entry says and marks it as not allocated, which gives a module
/// with a fixed place that place, and any other new storage. It enlarges the vector with `realloc`,
/// so the vector must come from `calloc`: the loader's are the program's, even if the program has
/// brought its own.
fn allocate_vector(layout: &Layout, low: *mut u8) -> io::Result<*mut [usize; 2]> {
    let count = layout.vector.len();
    // SAFETY: plain allocation.
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

impl Layout {
    /// What a thread's start does for what libc keeps per thread and a former fiber, or the
    /// program meanwhile, may have changed: the locale is the process's.
    ///
    /// # Safety
    /// The caller has just begun to run on a [`Block`] of this layout.
    #[inline]
    pub unsafe fn enter(&self) {
        // Not only where it differs: this also brings the tables of `isalpha` and its kin up to
        // date with a setlocale that came after the pristine thread.
        // SAFETY: LC_GLOBAL_LOCALE, (locale_t) -1, is always valid.
        unsafe { libc::uselocale(usize::MAX as libc::locale_t) };
    }
}
