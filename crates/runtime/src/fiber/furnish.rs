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
//! All of it shares the topmost page, so a fiber that has not gone deep costs one page. A stack
//! stays furnished while it waits for its next fiber: first on its carrier, then in a pool of the
//! process, and only above a watermark it is stripped and its memory given back; or when there is no
//! memory for another stack (`shortage`).

use std::io;
use std::mem;
use std::num::NonZero;
use std::ptr::NonNull;

use carefree_context::arch;
use carefree_context::stack::{Stack, StackPool, StackSize, default_idle_bytes};
use carefree_context::tls::{self, Block};
use carefree_ground::lock::Lock;
use once_cell::race::OnceNonZeroUsize;

use crate::fiber::size;

/// Furnished stacks of the default size a carrier keeps for itself.
const LOCAL: usize = 512;
/// Closures larger than this are boxed: a fiber's stack is for frames.
pub(crate) const CLOSURE_MAX: usize = 1024;
/// How many move between a carrier and the pool at once.
const BATCH: usize = 64;

/// A stack and its thread-local storage; lies on the stack itself.
pub(crate) struct FiberStack {
    stack: Stack,
    block: Option<Block>,
}

/// What is done when a stack of this size is refused for this reason: either it can be had after all, or
/// the caller is told why not.
pub(crate) type Refused = fn(StackSize, io::Error) -> io::Result<Stack>;

/// Owns a [`FiberStack`] and the memory it lies in. Dropping it loses the stack for good; see
/// [`put`].
#[derive(Debug)]
pub(crate) struct Furnished(NonNull<FiberStack>);

// SAFETY: it owns what it points to, and nothing runs on the stack. What lies there, a stack and a
// block, is memory that does not care which thread looks at it: a block belongs to the fiber that
// is entered with its thread pointer, not to the thread that built it.
unsafe impl Send for Furnished {}

impl Furnished {
    /// Puts thread-local storage and bookkeeping on a stack.
    fn new(stack: Stack) -> io::Result<Furnished> {
        let mut low = stack.top();
        let block = match tls::mode().layout() {
            None => None,
            Some(layout) => {
                if !stack.is_fresh() {
                    // A coroutine was here; a block is built on zeros.
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
        let address = (low as usize - size_of::<FiberStack>()) & !63;
        let place = low.wrapping_sub(low as usize - address).cast::<FiberStack>();
        // SAFETY: lies on the stack below the block, where room for a fiber is left (`size::of`),
        // aligned to 64, and used by nothing else.
        unsafe { place.write(FiberStack { stack, block }) };
        // SAFETY: an address within a mapping is not null.
        Ok(Furnished(unsafe { NonNull::new_unchecked(place) }))
    }

    /// Undoes [`new`](Self::new); the stack goes back to its pool.
    fn strip(self) {
        // SAFETY: written by `new`, and read out once: `self` owned it and is used up. Nothing runs
        // on the stack, which goes away with it.
        let FiberStack { stack, block } = unsafe { self.0.read() };
        if let Some(block) = block {
            block.retire();
        }
        drop(stack);
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

    /// Brings what the next fiber's start will touch into the cache.
    #[inline(always)]
    fn prefetch(&self) {
        let here = self.0.as_ptr().cast::<u8>();
        arch::prefetch(here);
        // The first frame, the closure.
        arch::prefetch(here.wrapping_sub(64));
        if let Some(layout) = tls::mode().layout() {
            // The thread control block's beginning.
            let room = size_of::<FiberStack>().next_multiple_of(64) + layout.tp_position();
            arch::prefetch(here.wrapping_add(room));
        }
    }

    /// Brings what can only be found by way of what [`prefetch`](Self::prefetch) brought.
    #[inline(always)]
    fn prefetch_far(&self) {
        if let Some(block) = &self.get().block {
            block.prefetch();
        }
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
        // SAFETY: from `into_raw`, says the caller, so from a `NonNull`.
        Furnished(unsafe { NonNull::new_unchecked(raw) })
    }

    /// Makes a used one ready for the next fiber.
    #[inline]
    fn reset(mut self) -> Self {
        self.get().stack.renew_below(self.0.as_ptr().cast());
        // SAFETY: owned by `self`, which is borrowed by nothing else; nothing runs on the stack.
        if let Some(block) = unsafe { &mut self.0.as_mut().block } {
            block.reset();
        }
        self
    }
}

// Both may have to be moved down to be aligned.
const _: () = assert!(size_of::<FiberStack>() + 64 + CLOSURE_MAX + 64 <= size::OWN_BYTES);

/// What lies within a fiber's stack: for the report of an overflow.
///
/// # Safety
/// `raw` is the stack of a fiber that is alive.
pub(crate) unsafe fn base_of(raw: *mut FiberStack) -> usize {
    // SAFETY: a fiber that is alive keeps its stack, and the record on it is not written to.
    unsafe { (*raw).stack.base() as usize }
}

/// The `pthread_t` of the fiber that runs there; `None` in shared mode.
///
/// # Safety
/// `raw` is the stack of a fiber, and stays so meanwhile.
pub(crate) unsafe fn pthread_of(raw: *mut FiberStack) -> Option<usize> {
    // SAFETY: the record on a stack is not written to while it is a fiber's.
    unsafe { (*raw).block.as_ref() }.map(|block| block.pthread() as usize)
}

/// The process's furnished stacks, by size.
struct Pool {
    idle: [Vec<Furnished>; StackSize::CLASSES],
}

impl Pool {
    const EMPTY: Pool = Pool { idle: [const { Vec::new() }; StackSize::CLASSES] };
}

static POOL: Lock<Pool> = Lock::new(Pool::EMPTY);

/// Forgets what idles: in the child of a fork, whose fibers must not have the ids of the parent's
/// (see [`carefree_context::fork::renew`]). To give each idle block another one would mean to copy as
/// many pages that are shared with the parent until then.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: the caller's promise.
    unsafe { POOL.renew(Pool::EMPTY) };
}

/// Furnished stacks of one size the pool keeps; those above are stripped.
fn watermark() -> usize {
    static WATERMARK: OnceNonZeroUsize = OnceNonZeroUsize::new();
    // One page each, as a rule; see `StackPool` for the same bound on bare stacks.
    const LEAST: NonZero<usize> = NonZero::new(4 * BATCH).unwrap();
    let pages =
        || NonZero::new(default_idle_bytes() / 4096).map_or(LEAST, |pages| pages.max(LEAST));
    // Each of the first to ask finds out by itself: in the child of a fork there may be no other to wait for.
    WATERMARK.get_or_init(pages).get()
}

/// Furnished stacks a carrier keeps at hand.
#[derive(Debug, Default)]
pub(crate) struct Local {
    idle: Vec<Furnished>,
    /// Stacks not furnished yet.
    bare: Vec<Stack>,
}

impl Local {
    /// A furnished stack of at least `size`.
    ///
    /// # Errors
    /// What `refused` says.
    #[inline]
    pub(crate) fn take(&mut self, size: StackSize, refused: Refused) -> io::Result<Furnished> {
        if size != size::default() {
            return self.take_other(size, refused);
        }
        match self.idle.pop() {
            Some(stack) => {
                // Where many were spawned and are gone, the next ones have left the cache.
                if let Some(soon) = self.idle.last() {
                    soon.prefetch_far();
                }
                if let Some(later) = self.idle.len().checked_sub(2).and_then(|i| self.idle.get(i)) {
                    later.prefetch();
                }
                Ok(stack.reset())
            }
            None => self.take_bare(refused),
        }
    }

    #[cold]
    fn take_bare(&mut self, refused: Refused) -> io::Result<Furnished> {
        // Furnished one by one as they are needed: what is written to a stack long before its
        // fiber runs has left the cache by then.
        match self.bare.pop() {
            Some(stack) => Furnished::new(stack),
            None => self.refill(refused),
        }
    }

    /// A stack of a size that is not kept here.
    fn take_other(&mut self, size: StackSize, refused: Refused) -> io::Result<Furnished> {
        take_pooled(size, |refusal| {
            self.clear();
            refused(size, refusal)
        })
    }

    fn refill(&mut self, refused: Refused) -> io::Result<Furnished> {
        {
            let pooled = &mut POOL.lock().idle[size::default().class()];
            let rest = pooled.len().saturating_sub(BATCH);
            self.idle.extend(pooled.drain(rest..));
        }
        if let Some(stack) = self.idle.pop() {
            return Ok(stack.reset());
        }
        match StackPool::global().acquire_many(size::default(), BATCH, &mut self.bare) {
            Err(refusal) if self.bare.is_empty() => {
                Furnished::new(refused(size::default(), refusal)?)
            }
            _ => self.take_bare(refused),
        }
    }

    /// Takes a stack back whose fiber has ended.
    #[inline]
    pub(crate) fn put(&mut self, stack: Furnished) {
        if stack.size() != size::default() {
            return put(stack);
        }
        self.idle.push(stack);
        if self.idle.len() > LOCAL {
            self.spill();
        }
    }

    #[cold]
    fn spill(&mut self) {
        put_many(size::default(), self.idle.drain(..BATCH));
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self) {
        put_many(size::default(), self.idle.drain(..));
        StackPool::global().release_many(&mut self.bare);
    }
}

/// A furnished stack, for a caller that is not on a carrier.
///
/// # Errors
/// What `refused` says.
pub(crate) fn take(size: StackSize, refused: Refused) -> io::Result<Furnished> {
    take_pooled(size, |refusal| refused(size, refusal))
}

/// One from the pools; `otherwise` acquires the stack when it is refused.
fn take_pooled(
    size: StackSize,
    otherwise: impl FnOnce(io::Error) -> io::Result<Stack>,
) -> io::Result<Furnished> {
    let pooled = POOL.lock().idle[size.class()].pop();
    match pooled {
        Some(stack) => Ok(stack.reset()),
        None => Furnished::new(StackPool::global().acquire(size).or_else(otherwise)?),
    }
}

/// Strips what is in the pool.
pub(crate) fn strip_idle() {
    for class in 0..StackSize::CLASSES {
        let idle = mem::take(&mut POOL.lock().idle[class]);
        idle.into_iter().for_each(Furnished::strip);
    }
}

/// Takes a stack back whose fiber has ended, from a caller that is not on a carrier.
pub(crate) fn put(stack: Furnished) {
    put_many(stack.size(), std::iter::once(stack));
}

fn put_many(size: StackSize, stacks: impl Iterator<Item = Furnished>) {
    let watermark = watermark();
    let surplus = {
        let idle = &mut POOL.lock().idle[size.class()];
        idle.extend(stacks);
        // The oldest go: the memory of the youngest is in the cache.
        let surplus = idle.len().saturating_sub(watermark);
        idle.drain(..surplus).collect::<Vec<_>>()
    };
    for stack in surplus {
        stack.strip();
    }
}
