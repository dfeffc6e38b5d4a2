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
//! stays furnished between two fibers: on its carrier, or in a pool of the process. It is stripped, and
//! its memory given back, only if the pool has more than enough, or if there is no memory for another
//! stack (`process::shortage`).
//!
//! A fiber's end is settled by the fiber that runs next, which may be within the program's allocator, where it
//! has waited for a lock. So a stack is put back without a call of the allocator: a carrier's list never grows,
//! the pool's lists have their memory from the kernel, and what the pool has too many of is
//! [stripped](strip_surplus) elsewhere.

use std::io;
use std::mem;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use carefree_context::arch;
use carefree_context::stack::{Stack, StackPool, StackSize, default_idle_bytes};
use carefree_context::tls::{self, Block};
use carefree_ground::lock::Lock;
use carefree_ground::mapped::Mapped;
use once_cell::race::OnceNonZeroUsize;

use crate::fiber::frames;
use crate::fiber::size;
use crate::fiber::split::Split;

/// Furnished stacks of the default size that a carrier keeps for its next fibers.
const LOCAL: usize = 512;
/// Closures larger than this are boxed: a fiber's stack is for frames.
pub(crate) const CLOSURE_MAX: usize = 1024;
/// How many move between a carrier and the pool at once.
const BATCH: usize = 64;
/// How many stacks a carrier acquires at first; then always twice as many, up to a batch. Each has a guard, and large
/// stacks a page table for that, which a process with few fibers need not hold, and its forks not copy.
const FIRST: usize = 4;
/// How many are furnished at once for fibers that start: what is written to a stack long before its fiber runs would
/// have left the cache by then.
const AHEAD: usize = 8;

/// The record of a stack and its thread-local storage. It lies on that stack.
pub(crate) struct FiberStack {
    stack: Stack,
    block: Option<Block>,
    /// The fiber for whose `pthread_t` the stack was furnished, or null: see [`crate::hosted`].
    hosted: AtomicPtr<u8>,
    /// Nanoseconds of processor time that the fiber has used, as far as they were measured.
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
/// [`put`].
#[derive(Debug)]
pub(crate) struct Furnished(NonNull<FiberStack>);

// SAFETY: it owns the record, the stack and the block, and nothing runs on the stack. None of these belongs
// to a thread: a block is for the fiber that is entered with its thread pointer, not for the thread that has
// built it.
unsafe impl Send for Furnished {}

impl Furnished {
    /// Puts thread-local storage and bookkeeping on a stack.
    fn new(stack: Stack) -> io::Result<Furnished> {
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

    /// Undoes [`new`](Self::new); the stack goes back to its pool.
    fn strip(self) {
        // SAFETY: written by `new`, and read out once: `self` owned it and is used up. Nothing runs
        // on the stack, which goes away with it.
        let FiberStack { stack, block, .. } = unsafe { self.0.read() };
        if let Some(mut block) = block {
            block.return_malloc();
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

    /// Fetches what the next fiber's start accesses into the cache.
    #[inline(always)]
    fn prefetch(&self) {
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
    fn has_dynamic_storage(&self) -> bool {
        self.get().block.as_ref().is_some_and(Block::has_dynamic_storage)
    }

    fn drop_dynamic_storage(&mut self) {
        // SAFETY: owned by `self`, which is borrowed by nothing else; nothing runs on the stack.
        if let Some(block) = unsafe { &mut self.0.as_mut().block } {
            block.drop_dynamic_storage();
        }
    }

    /// Makes a used stack ready for its next fiber.
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

/// The process's furnished stacks, by size: each is owned by its place here.
struct Pool {
    idle: [Mapped<NonNull<FiberStack>>; StackSize::CLASSES],
}

impl Pool {
    const EMPTY: Pool = Pool { idle: [const { Mapped::new() }; StackSize::CLASSES] };

    fn put(&mut self, class: usize, stack: Furnished) {
        let idle = &mut self.idle[class];
        idle.push_or_abort(stack.0);
        if idle.len() > watermark() {
            SURPLUS.store(true, Ordering::Relaxed);
        }
    }

    fn take(&mut self, class: usize) -> Option<Furnished> {
        self.idle[class].pop().map(Furnished)
    }

    /// Takes some of those that are too many: the oldest, for the youngest are in the cache.
    fn take_surplus(&mut self, class: usize) -> [Option<Furnished>; BATCH] {
        let idle = &mut self.idle[class];
        let surplus = idle.len().saturating_sub(watermark()).min(BATCH);
        let mut taken = [const { None }; BATCH];
        for (stack, place) in idle[..surplus].iter().zip(&mut taken) {
            *place = Some(Furnished(*stack));
        }
        idle.copy_within(surplus.., 0);
        idle.truncate(idle.len() - surplus);
        taken
    }
}

// SAFETY: it owns the stacks, as a list of `Furnished` would, which may be sent to other threads.
unsafe impl Send for Pool {}

static POOL: Lock<Pool> = Lock::new(Pool::EMPTY);

/// Whether the pool has more of some size than its watermark.
static SURPLUS: AtomicBool = AtomicBool::new(false);

/// Forgets the idle stacks: in the child of a fork. Each block has an id of libc's, which the child's fibers
/// must not share with the parent's (see [`carefree_context::fork::renew`]). To change the ids, the child
/// would have to copy as many pages, which it shares with its parent.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    // SAFETY: there is one thread, and it does not have the lock.
    unsafe { POOL.renew(Pool::EMPTY) };
    // The carriers and fibers that had promises are not there.
    StackPool::global().forget_promises();
}

/// The most furnished stacks of one size that the pool keeps; more are stripped.
fn watermark() -> usize {
    static WATERMARK: OnceNonZeroUsize = OnceNonZeroUsize::new();
    // Each takes one page, as a rule. `StackPool` has the same bound on bare stacks.
    const LEAST: NonZero<usize> = NonZero::new(4 * BATCH).unwrap();
    let pages =
        || NonZero::new(default_idle_bytes() / 4096).map_or(LEAST, |pages| pages.max(LEAST));
    // Not a `OnceLock`: the child of a fork might wait for a thread of the parent's to find it.
    WATERMARK.get_or_init(pages).get()
}

/// Stacks that a carrier keeps for its next fibers.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// Without room at first, for a carrier is made without the program's allocator; then never more than it
    /// [has room](Local::make_room) for.
    idle: Vec<Furnished>,
    /// Stacks that are not furnished yet.
    bare: Vec<Stack>,
    /// How many stacks are promised to this carrier, and not yet to a fiber.
    promises: usize,
    /// How many stacks were acquired at the last time; 0 if none were.
    acquired: usize,
}

impl Local {
    /// Makes room for stacks that come back. To be called where an allocator may be.
    pub(crate) fn make_room(&mut self) {
        if self.idle.capacity() == 0 {
            self.idle.reserve_exact(LOCAL);
        }
    }

    /// Takes a furnished stack of `size`.
    ///
    /// # Errors
    /// Those of `refused`.
    #[inline]
    pub(crate) fn take(&mut self, size: StackSize, refused: Refused) -> io::Result<Furnished> {
        if size != size::default() {
            return self.take_other(size, refused);
        }
        match self.take_idle() {
            Some(stack) => Ok(stack.reset()),
            None => self.take_bare(refused),
        }
    }

    /// Takes a stack that is to be reset.
    #[inline(always)]
    fn take_idle(&mut self) -> Option<Furnished> {
        let stack = self.idle.pop()?;
        // Where many fibers have ended, the next stacks are not in the cache any more.
        let ahead = |places| self.idle.len().checked_sub(places).and_then(|i| self.idle.get(i));
        if let Some(soon) = ahead(2) {
            soon.prefetch_far();
        }
        if let Some(later) = ahead(4) {
            later.prefetch();
        }
        Some(stack)
    }

    /// Promises a fiber a stack of the default size, if that can be done; see
    /// [`unstarted`](crate::fiber::unstarted).
    #[inline]
    pub(crate) fn promise(&mut self) -> bool {
        if self.promises == 0 && !self.have_promised() {
            return false;
        }
        self.promises -= 1;
        true
    }

    /// Has the pool of bare stacks promise some more.
    #[cold]
    fn have_promised(&mut self) -> bool {
        let promised = StackPool::global().promise(size::default(), BATCH).is_ok();
        if promised {
            self.promises = BATCH;
        }
        promised
    }

    /// Takes back the promise of a fiber that has not started, or has got a stack without it.
    #[inline(always)]
    pub(crate) fn keep_promise(&mut self) {
        self.promises += 1;
    }

    /// Gives back promises of which there are too many. To be called where an allocator may be, for which a holder of
    /// the pool's lock may wait.
    #[inline]
    pub(crate) fn tidy(&mut self) {
        if self.promises > 4 * BATCH {
            self.give_promises_back(self.promises - 2 * BATCH);
        }
    }

    #[cold]
    #[inline(never)]
    fn give_promises_back(&mut self, count: usize) {
        self.promises -= count;
        StackPool::global().unpromise(size::default(), count);
    }

    /// Takes the stack that was promised to a fiber, if one is at hand whose reset calls no allocator. The fiber is to
    /// [reset](reset_variables) it. Calls no allocator, and takes no lock.
    #[inline(always)]
    pub(crate) fn take_promised_idle(&mut self) -> Option<Furnished> {
        if self.idle.last()?.has_dynamic_storage() {
            return None;
        }
        let stack = self.take_idle()?;
        self.keep_promise();
        Some(stack)
    }

    /// Takes the stack that was promised to a fiber, which is to [reset](reset_variables) it.
    ///
    /// # Errors
    /// When there is no memory for its guard or its bookkeeping. The fiber still has the promise.
    pub(crate) fn take_promised(&mut self) -> io::Result<Furnished> {
        if self.idle.is_empty() {
            self.take_from_pool();
        }
        if let Some(mut stack) = self.take_idle() {
            self.keep_promise();
            stack.drop_dynamic_storage();
            return Ok(stack);
        }
        // Those of the carrier, and that of the fiber.
        self.promises += 1;
        let stack = self.take_promised_bare();
        if stack.is_err() {
            self.return_promise();
        }
        stack
    }

    /// Furnishes some stacks, using up promises of this carrier, and takes one.
    fn take_promised_bare(&mut self) -> io::Result<Furnished> {
        if self.bare.is_empty() {
            let wanted = self.promises.min(self.next_batch());
            StackPool::global().acquire_promised(size::default(), wanted, &mut self.bare)?;
            self.promises -= self.bare.len();
        }
        // (At least one is there.)
        let mut failed = None;
        for stack in self.bare.drain(self.bare.len().saturating_sub(AHEAD)..) {
            match Furnished::new(stack) {
                Ok(stack) => self.idle.push(stack),
                Err(error) => failed = Some(error),
            }
        }
        self.idle.pop().ok_or_else(|| failed.expect("one was furnished, or failed"))
    }

    /// Gives a fiber its promise back: one that is left, or another.
    #[cold]
    fn return_promise(&mut self) {
        if self.promises == 0 && !self.have_promised() {
            // There was no memory for some words of bookkeeping, and none to try again later.
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<FiberStack>());
        }
        self.promises -= 1;
    }

    /// How many stacks to acquire.
    fn next_batch(&mut self) -> usize {
        self.acquired = (2 * self.acquired).clamp(FIRST, BATCH);
        self.acquired
    }

    #[cold]
    fn take_bare(&mut self, refused: Refused) -> io::Result<Furnished> {
        // Furnished one at a time: what is written to a stack long before its fiber runs would have left
        // the cache by then.
        match self.bare.pop() {
            Some(stack) => Furnished::new(stack),
            None => self.refill(refused),
        }
    }

    /// [`take`](Self::take) for a size that is not kept here.
    fn take_other(&mut self, size: StackSize, refused: Refused) -> io::Result<Furnished> {
        take_pooled(size, |refusal| {
            self.clear();
            refused(size, refusal)
        })
    }

    /// Takes furnished stacks from the process's pool.
    fn take_from_pool(&mut self) {
        self.make_room();
        let pooled = &mut POOL.lock().idle[size::default().class()];
        let rest = pooled.len().saturating_sub(BATCH);
        self.idle.extend(pooled[rest..].iter().map(|stack| Furnished(*stack)));
        pooled.truncate(rest);
    }

    fn refill(&mut self, refused: Refused) -> io::Result<Furnished> {
        self.take_from_pool();
        if let Some(stack) = self.idle.pop() {
            return Ok(stack.reset());
        }
        let batch = self.next_batch();
        let mut acquired = StackPool::global().acquire_many(size::default(), batch, &mut self.bare);
        if acquired.is_err() && self.promises > 0 {
            // They may be all that is left.
            self.give_promises_back(self.promises);
            acquired = StackPool::global().acquire_many(size::default(), batch, &mut self.bare);
        }
        match acquired {
            Err(refusal) if self.bare.is_empty() => {
                Furnished::new(refused(size::default(), refusal)?)
            }
            _ => self.take_bare(refused),
        }
    }

    /// Takes back the stack of a fiber that has ended. Calls no allocator.
    #[inline]
    pub(crate) fn put(&mut self, stack: Furnished) {
        if stack.size() != size::default() {
            return put(stack);
        }
        if self.idle.len() == self.idle.capacity() {
            return self.put_full(stack);
        }
        self.idle.push(stack);
    }

    #[cold]
    fn put_full(&mut self, stack: Furnished) {
        if self.idle.is_empty() {
            return put(stack);
        }
        put_many(size::default(), self.idle.drain(..BATCH));
        self.idle.push(stack);
    }

    /// Gives all back to the pools.
    pub(crate) fn clear(&mut self) {
        put_many(size::default(), self.idle.drain(..));
        StackPool::global().release_many(&mut self.bare);
        if self.promises > 0 {
            self.give_promises_back(self.promises);
        }
    }
}

/// Takes a furnished stack, for a caller that is not on a carrier.
///
/// # Errors
/// Those of `refused`.
pub(crate) fn take(size: StackSize, refused: Refused) -> io::Result<Furnished> {
    take_pooled(size, |refusal| refused(size, refusal))
}

/// Takes a stack from the pools; if there is none, and no memory for one, `otherwise` acquires it.
fn take_pooled(
    size: StackSize,
    otherwise: impl FnOnce(io::Error) -> io::Result<Stack>,
) -> io::Result<Furnished> {
    let pooled = POOL.lock().take(size.class());
    match pooled {
        Some(stack) => Ok(stack.reset()),
        None => Furnished::new(StackPool::global().acquire(size).or_else(otherwise)?),
    }
}

/// Strips all furnished stacks in the pool.
pub(crate) fn strip_idle() {
    for class in 0..StackSize::CLASSES {
        let idle = mem::take(&mut POOL.lock().idle[class]);
        idle.iter().for_each(|stack| Furnished(*stack).strip());
    }
}

/// Takes back the stack of a fiber that has ended, for a caller that is not on a carrier. Calls no allocator.
pub(crate) fn put(stack: Furnished) {
    put_many(stack.size(), std::iter::once(stack));
}

fn put_many(size: StackSize, stacks: impl Iterator<Item = Furnished>) {
    let mut pool = POOL.lock();
    stacks.for_each(|stack| pool.put(size.class(), stack));
}

/// Strips the stacks that the pool has too many of.
#[inline]
pub(crate) fn strip_surplus() {
    if SURPLUS.load(Ordering::Relaxed) && SURPLUS.swap(false, Ordering::Relaxed) {
        for class in 0..StackSize::CLASSES {
            // (In a statement of its own: the lock is not to be held while a stack is stripped.)
            loop {
                let taken = POOL.lock().take_surplus(class);
                if taken[0].is_none() {
                    break;
                }
                taken.into_iter().flatten().for_each(Furnished::strip);
            }
        }
    }
}
