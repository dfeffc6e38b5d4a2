//! The process's pool of idle stacks that stay furnished for their next fibers.
//!
//! A stack is stripped, and its memory given back, only if the pool has more than enough, or if there is no memory for
//! another stack (`process::shortage`).
//!
//! A fiber's end is settled by the fiber that runs next, which may be within the program's allocator, where it
//! has waited for a lock. So a stack is put back without a call of the allocator: the pool's lists have their memory
//! from the kernel, and what there is too much of is [stripped](strip_surplus) elsewhere. Where the kernel refuses a list
//! more, stacks are linked by their records: they are put back as well when there is no memory for another stack.

use std::io;
use std::mem;
use std::num::NonZero;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use carefree_context::stack::{Stack, StackPool, StackSize, default_idle_bytes};
use carefree_ground::lock::Lock;
use carefree_ground::mapped::Mapped;
use once_cell::race::OnceNonZeroUsize;

use crate::fiber::furnish::{self, FiberStack, Furnished, Refused};
use crate::fiber::size;

/// How many move between a carrier and the pool at once.
pub(super) const BATCH: usize = 64;

/// The process's furnished stacks, by size: each is owned by its place here.
struct Pool {
    idle: [Mapped<*mut FiberStack>; StackSize::CLASSES],
    /// Stacks for which the lists had no memory: the first of each size. Its record has the address of the next one.
    unlisted: [*mut FiberStack; StackSize::CLASSES],
}

/// The stack at a place of the pool's, which the caller has emptied.
fn taken(place: *mut FiberStack) -> Furnished {
    // SAFETY: what lies in the pool comes from `into_raw`; nothing runs there, and it was taken out once.
    unsafe { Furnished::from_raw(place) }
}

impl Pool {
    const EMPTY: Pool = Pool {
        idle: [const { Mapped::new() }; StackSize::CLASSES],
        unlisted: [ptr::null_mut(); StackSize::CLASSES],
    };

    fn put(&mut self, class: usize, stack: Furnished) {
        let idle = &mut self.idle[class];
        let stack = stack.into_raw();
        if !idle.push(stack) {
            // SAFETY: the stack is the pool's from now on, and nothing runs there.
            unsafe { furnish::link(stack, self.unlisted[class]) };
            self.unlisted[class] = stack;
        } else if idle.len() > watermark(class) {
            SURPLUS.store(true, Ordering::Relaxed);
        }
    }

    fn take(&mut self, class: usize) -> Option<Furnished> {
        match self.idle[class].pop() {
            Some(stack) => Some(taken(stack)),
            None => self.take_unlisted(class),
        }
    }

    fn take_unlisted(&mut self, class: usize) -> Option<Furnished> {
        let stack = self.unlisted[class];
        if stack.is_null() {
            return None;
        }
        // SAFETY: it is the pool's, and `put` has linked it.
        self.unlisted[class] = unsafe { furnish::linked(stack) };
        Some(taken(stack))
    }

    /// Takes some of those that are too many: the oldest, for the youngest are in the cache.
    fn take_surplus(&mut self, class: usize) -> [Option<Furnished>; BATCH] {
        let idle = &mut self.idle[class];
        let surplus = idle.len().saturating_sub(watermark(class)).min(BATCH);
        let mut oldest = [const { None }; BATCH];
        for (stack, place) in idle[..surplus].iter().zip(&mut oldest) {
            *place = Some(taken(*stack));
        }
        idle.copy_within(surplus.., 0);
        idle.truncate(idle.len() - surplus);
        oldest
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

/// The most furnished stacks of one size that the pool keeps: as many as hold
/// [`default_idle_bytes`], by what those that were measured hold. More are stripped.
fn watermark(class: usize) -> usize {
    static BYTES: OnceNonZeroUsize = OnceNonZeroUsize::new();
    const LEAST: usize = 4 * BATCH;
    let bytes = || NonZero::new(default_idle_bytes()).unwrap_or(NonZero::<usize>::MIN);
    // Not a `OnceLock`: the child of a fork might wait for a thread of the parent's to find it.
    let bytes = BYTES.get_or_init(bytes).get();
    // Each holds one page at least.
    (bytes / HELD[class].load(Ordering::Relaxed).max(4096)).max(LEAST)
}

/// What an idle stack of each size holds in bytes, as an average of those that were measured; 0 if none was.
static HELD: [AtomicUsize; StackSize::CLASSES] =
    [const { AtomicUsize::new(0) }; StackSize::CLASSES];

/// Counts `count` stacks that are put back; measures `one` of them now and then. (Where threads meet here, one more or
/// less is measured.)
fn sample(class: usize, count: usize, one: &Furnished) {
    /// One in so many.
    const SAMPLING: usize = 64;
    static UNSAMPLED: [AtomicUsize; StackSize::CLASSES] =
        [const { AtomicUsize::new(0) }; StackSize::CLASSES];
    let unsampled = &UNSAMPLED[class];
    if unsampled.fetch_add(count, Ordering::Relaxed) + count < SAMPLING {
        return;
    }
    unsampled.store(0, Ordering::Relaxed);
    let now = one.resident();
    let average = match HELD[class].load(Ordering::Relaxed) {
        0 => now,
        before => (before * 3 + now) / 4,
    };
    HELD[class].store(average, Ordering::Relaxed);
}

/// Takes a furnished stack, for a caller that is not on a carrier.
///
/// # Errors
/// Those of `refused`.
pub(crate) fn take(size: StackSize, refused: Refused) -> io::Result<Furnished> {
    take_pooled(size, |refusal| refused(size, refusal))
}

/// Takes a stack from the pools; if there is none, and no memory for one, `otherwise` acquires it.
pub(super) fn take_pooled(
    size: StackSize,
    otherwise: impl FnOnce(io::Error) -> io::Result<Stack>,
) -> io::Result<Furnished> {
    let pooled = POOL.lock().take(size.class());
    match pooled {
        Some(stack) => Ok(stack.reset()),
        None => Furnished::new(StackPool::global().acquire(size).or_else(otherwise)?),
    }
}

/// Moves some stacks of the default size to `stacks`.
pub(super) fn take_some(stacks: &mut Vec<Furnished>) {
    let pooled = &mut POOL.lock().idle[size::default().class()];
    let rest = pooled.len().saturating_sub(BATCH);
    stacks.extend(pooled[rest..].iter().map(|stack| taken(*stack)));
    pooled.truncate(rest);
}

/// Strips all furnished stacks in the pool.
pub(crate) fn strip_idle() {
    for class in 0..StackSize::CLASSES {
        let idle = mem::take(&mut POOL.lock().idle[class]);
        idle.iter().for_each(|stack| drop(taken(*stack).strip()));
        // (In a statement of its own: the lock is not to be held while a stack is stripped.)
        loop {
            let Some(stack) = POOL.lock().take_unlisted(class) else { break };
            drop(stack.strip());
        }
    }
}

/// Takes back the stack of a fiber that has ended, for a caller that is not on a carrier. Calls no allocator.
pub(crate) fn put(stack: Furnished) {
    put_many(stack.size(), std::iter::once(stack));
}

pub(super) fn put_many(size: StackSize, stacks: impl ExactSizeIterator<Item = Furnished>) {
    let count = stacks.len();
    let mut stacks = stacks.peekable();
    if let Some(first) = stacks.peek() {
        sample(size.class(), count, first);
    }
    let mut pool = POOL.lock();
    stacks.for_each(|stack| pool.put(size.class(), stack));
}

/// Strips the stacks that the pool has too many of, and gives their memory back to the kernel.
#[inline]
pub(crate) fn strip_surplus() {
    if SURPLUS.load(Ordering::Relaxed) && SURPLUS.swap(false, Ordering::Relaxed) {
        for class in 0..StackSize::CLASSES {
            // (In a statement of its own: the lock is not to be held while a stack is stripped.)
            loop {
                let surplus = POOL.lock().take_surplus(class);
                if surplus[0].is_none() {
                    break;
                }
                let mut stacks = surplus.into_iter().flatten().map(Furnished::strip).collect();
                StackPool::global().discard_many(&mut stacks);
            }
        }
    }
}
