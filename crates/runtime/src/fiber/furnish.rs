//! Stacks with thread-local storage on them, ready for a fiber.
//!
//! ```text
//!   top ──► ┌───────────────────────────────┐
//!           │ block of thread-local storage │  own mode only
//!           ├───────────────────────────────┤
//!           │ FiberStack (this bookkeeping) │
//!           ├───────────────────────────────┤
//!           │ the closure, then frames      │  ▼
//!           :                               :
//!           │ guard                         │
//!  base ──► └───────────────────────────────┘
//! ```
//!
//! All stacks begin at the same place of their pages. Moving neighbours apart by some cache lines
//! was tried: a round of 1,000 fibers gained little, a crowd of 10,000 lost a quarter.
//!
//! All of it shares the topmost page, so a fiber whose calls do not go deep costs one page. A stack
//! stays furnished between two fibers: on its [carrier](crate::fiber::stock), or in a [pool](crate::fiber::idle) of
//! the process.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use carefree_context::arch;
use carefree_context::stack::{Stack, StackSize};
use carefree_context::tls::{self, Block};

use crate::fiber::frames;
use crate::fiber::size;
use crate::fiber::split::Split;

/// Closures larger than this are boxed: a fiber's stack is for frames.
pub(crate) const CLOSURE_MAX: usize = 1024;

/// The record of a stack and its thread-local storage. It lies on that stack.
pub(crate) struct FiberStack {
    stack: Stack,
    block: Option<Block>,
    /// The fiber for whose `pthread_t` the stack was furnished, or null: see [`crate::hosted`].
    hosted: AtomicPtr<u8>,
    /// Nanoseconds of processor time that the fiber has used, as far as they were measured. While the stack is idle,
    /// perhaps where the [next](link) one is.
    time: AtomicU64,
}

impl FiberStack {
    fn new(stack: Stack, block: Option<Block>) -> FiberStack {
        FiberStack { stack, block, hosted: AtomicPtr::default(), time: AtomicU64::new(0) }
    }
}

/// Where the record of a stack lies whose thread-local storage begins at `low`.
#[inline(always)]
fn below(low: *mut u8) -> *mut FiberStack {
    let address = (low as usize - size_of::<FiberStack>()) & !63;
    low.wrapping_sub(low as usize - address).cast()
}

/// A function to call when a stack of this size was refused, with the reason: it tries again in its own way,
/// or returns why there is none.
pub(crate) type Refused = fn(StackSize, io::Error) -> io::Result<Stack>;

/// Owns a [`FiberStack`] and the memory it lies in. Dropping it loses the stack for good; see
/// [`idle::put`](crate::fiber::idle::put).
#[derive(Debug)]
pub(crate) struct Furnished(NonNull<FiberStack>);

// SAFETY: it owns the record, the stack and the block, and nothing runs on the stack. None of these belongs
// to a thread: a block is for the fiber that is entered with its thread pointer, not for the thread that has
// built it.
unsafe impl Send for Furnished {}

impl Furnished {
    /// Puts thread-local storage and bookkeeping on a stack.
    pub(super) fn new(stack: Stack) -> io::Result<Furnished> {
        let mut low = stack.top();
        let block = match tls::mode().layout() {
            None => None,
            Some(layout) => {
                if !stack.is_fresh() {
                    // A coroutine has used the stack, and a block is built on zeros.
                    let room = layout.room();
                    // SAFETY: below the stack's top lies the stack's own memory, more than `room`
                    // (`size::of`), and it is this function's alone.
                    unsafe { low.sub(room).write_bytes(0, room) };
                }
                // SAFETY: the stack is this function's alone and stays with the block, in one
                // record. Its top reads as zero: fresh from the kernel, or just overwritten.
                let block = unsafe { Block::build(layout, stack.limit()..stack.top()) }?;
                low = block.low();
                Some(block)
            }
        };
        let place = below(low);
        // SAFETY: lies on the stack below the block, where room for a fiber is left (`size::of`),
        // aligned to 64, and used by nothing else.
        unsafe { place.write(FiberStack::new(stack, block)) };
        // SAFETY: an address within a mapping is not null.
        Ok(Furnished(unsafe { NonNull::new_unchecked(place) }))
    }

    /// Undoes [`new`](Self::new).
    pub(super) fn strip(self) -> Stack {
        // SAFETY: written by `new`, and read out once: `self` owned it and is used up. Nothing runs
        // on the stack, which goes away with it.
        let FiberStack { stack, block, .. } = unsafe { self.0.read() };
        if let Some(mut block) = block {
            block.return_malloc();
            block.retire();
        }
        stack
    }

    fn get(&self) -> &FiberStack {
        // SAFETY: written by `new`, owned by `self`, and there until `strip` uses `self` up.
        unsafe { self.0.as_ref() }
    }

    /// What the thread pointer must be while a fiber runs here; null in shared mode.
    #[inline]
    pub(crate) fn thread_pointer(&self) -> *mut u8 {
        self.get().block.as_ref().map_or(std::ptr::null_mut(), Block::thread_pointer)
    }

    /// Fetches what the next fiber's start accesses into the cache.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        let here = self.0.as_ptr().cast::<u8>();
        arch::prefetch(here);
        // The closure, and the frames of what waits.
        frames::fetch_below(here);
        if let Some(layout) = tls::mode().layout() {
            // The thread control block's beginning.
            let room = size_of::<FiberStack>().next_multiple_of(64) + layout.tp_position();
            arch::prefetch(here.wrapping_add(room));
        }
    }

    /// Fetches what is found only by what [`prefetch`](Self::prefetch) has fetched.
    #[inline(always)]
    pub(super) fn prefetch_far(&self) {
        if let Some(block) = &self.get().block {
            block.prefetch();
        }
    }

    /// How many bytes of memory the stack holds. This asks the kernel.
    pub(super) fn resident(&self) -> usize {
        self.get().stack.resident()
    }

    pub(crate) fn size(&self) -> StackSize {
        self.get().stack.size()
    }

    pub(crate) fn into_raw(self) -> *mut FiberStack {
        self.0.as_ptr()
    }

    /// # Safety
    /// `raw` comes from [`into_raw`](Self::into_raw), nothing runs on it and nothing else takes it.
    pub(crate) unsafe fn from_raw(raw: *mut FiberStack) -> Self {
        // SAFETY: the pointer comes from `into_raw`, so it was a `NonNull`.
        Furnished(unsafe { NonNull::new_unchecked(raw) })
    }

    /// Makes the stack below its record ready for its next fiber. (Not inlined, for its frame should not be part of the
    /// caller's.)
    #[inline(never)]
    pub(crate) fn renewed_below(self) -> Self {
        self.get().stack.renew_below(self.0.as_ptr().cast());
        self
    }

    #[inline(always)]
    pub(super) fn has_dynamic_storage(&self) -> bool {
        self.get().block.as_ref().is_some_and(Block::has_dynamic_storage)
    }

    pub(super) fn drop_dynamic_storage(&mut self) {
        // SAFETY: owned by `self`, which is borrowed by nothing else; nothing runs on the stack.
        if let Some(block) = unsafe { &mut self.0.as_mut().block } {
            block.drop_dynamic_storage();
        }
    }

    /// Makes a used stack ready for its next fiber.
    #[inline]
    pub(super) fn reset(mut self) -> Self {
        self.get().stack.renew_below(self.0.as_ptr().cast());
        // SAFETY: owned by `self`, which is borrowed by nothing else; nothing runs on the stack.
        if let Some(block) = unsafe { &mut self.0.as_mut().block } {
            block.reset();
        }
        self
    }
}

// The record and the closure may each be moved down by up to 64 bytes, to be aligned.
const _: () = assert!(size_of::<FiberStack>() + 64 + CLOSURE_MAX + 64 <= size::OWN_BYTES);

/// The lowest address of a fiber's stack.
///
/// # Safety
/// `raw` is the stack of a fiber that is alive.
pub(crate) unsafe fn base_of(raw: *mut FiberStack) -> usize {
    // SAFETY: a fiber that is alive keeps its stack, and the record on it is not written to.
    unsafe { (*raw).stack.base() as usize }
}

/// Gives the thread-local variables of a used stack their initial values.
///
/// # Safety
/// The caller is the fiber of this stack, has just begun there, and has used no thread-local variable.
#[inline(always)]
pub(crate) unsafe fn reset_variables(raw: *mut FiberStack) {
    // SAFETY: the record is the calling fiber's, as this function demands, and is not written to.
    if let Some(block) = unsafe { &(*raw).block } {
        block.reset_variables();
    }
}

/// The `pthread_t` of the fiber that runs there; `None` in shared mode.
///
/// # Safety
/// `raw` is the stack of a fiber, and stays so meanwhile.
pub(crate) unsafe fn pthread_of(raw: *mut FiberStack) -> Option<usize> {
    // SAFETY: the record on a stack is not written to while it is a fiber's.
    unsafe { (*raw).block.as_ref() }.map(|block| block.pthread() as usize)
}

/// What stacks are a multiple of, as programs are told.
const PAGE: usize = 4096;

/// Notes that `fiber` has a `pthread_t`, by which [`hosted_by`] finds it, and an id that no other had; and that
/// a stack of `asked` bytes was asked for, which is what the fiber is told.
///
/// # Safety
/// `raw` is the stack of a fiber that is known to the caller alone.
pub(crate) unsafe fn host(raw: *mut FiberStack, fiber: *mut u8, asked: Option<usize>) {
    // SAFETY: as this function demands.
    let record = unsafe { &mut *raw };
    if let Some(block) = &mut record.block {
        block.renew_id();
        let (limit, top) = (record.stack.limit(), record.stack.top());
        let length = top as usize - limit as usize;
        let least = asked.map_or(length, |asked| asked.next_multiple_of(PAGE).min(length));
        block.tell_stack(limit.wrapping_add(length - least)..top);
    }
    record.time.store(0, Ordering::Relaxed);
    record.hosted.store(fiber, Ordering::Release);
}

/// The nanoseconds of processor time that the fiber there has used, as far as they were measured.
///
/// # Safety
/// `raw` is the stack of a fiber, and stays so while the result is used.
pub(crate) unsafe fn time_used<'a>(raw: *mut FiberStack) -> &'a AtomicU64 {
    // SAFETY: as this function demands.
    unsafe { &(*raw).time }
}

/// Notes which idle stack, or null, comes after another one.
///
/// # Safety
/// `raw` is an idle stack of the caller's.
pub(super) unsafe fn link(raw: *mut FiberStack, next: *mut FiberStack) {
    // SAFETY: as this function demands.
    unsafe { (*raw).time.store(next.expose_provenance() as u64, Ordering::Relaxed) };
}

/// What was noted by [`link`].
///
/// # Safety
/// `raw` is an idle stack of the caller's, of which that was noted.
pub(super) unsafe fn linked(raw: *mut FiberStack) -> *mut FiberStack {
    // SAFETY: as this function demands.
    let next = unsafe { (*raw).time.swap(0, Ordering::Relaxed) };
    std::ptr::with_exposed_provenance_mut(next as usize)
}

/// How the time of `fiber`, whose stack it is, is divided; `None` if the stack was not [noted](host) as a hosted
/// thread's.
///
/// # Safety
/// As for [`time_used`]. The host has put a [`Split`] right below the record.
pub(crate) unsafe fn split_of<'a>(raw: *mut FiberStack, fiber: *mut u8) -> Option<&'a Split> {
    // SAFETY: as this function demands.
    unsafe {
        let is_hosted = (*raw).hosted.load(Ordering::Acquire) == fiber;
        is_hosted.then(|| &*raw.cast::<Split>().sub(1))
    }
}

/// Undoes [`host`], when the `pthread_t` was given up.
///
/// # Safety
/// `raw` is the stack of a fiber to which no counted reference is left.
pub(crate) unsafe fn unhost(raw: *mut FiberStack) {
    // SAFETY: as this function demands: the stack was not put back yet.
    unsafe { (*raw).hosted.store(std::ptr::null_mut(), Ordering::Release) };
}

/// The fiber that was [noted](host) for `pthread`; null if it is that of another fiber.
///
/// # Safety
/// `pthread` is the `pthread_t` of a fiber whose stack was not given back to the pool.
#[inline]
pub(crate) unsafe fn hosted_by(layout: &tls::Layout, pthread: *mut u8) -> *mut u8 {
    // SAFETY: the record lies below the fiber's block, where `Furnished::new` has written it.
    unsafe { (*below(layout.low_of(pthread))).hosted.load(Ordering::Acquire) }
}
