//! The buckets of the parking lot: lists of those that wait, each under a lock.
//!
//! # The lists
//!
//! Waiters for one key stand together in their bucket's list, in the order in which they came: a *run*.
//! The first of a run leads it: its `previous` is the last of the run (as there is no need to go back
//! from a run to the one before), and the last one's `next` leads the next run. So to find a key takes
//! a step for each key in the bucket, however many wait for them, and to enter a run, to leave it and
//! to wake its first takes constant time.
//!
//! ```text
//!            ┌───────────────────┐         ┌─── previous of one alone: itself
//!  first ──▶ a ──▶ a ──▶ a ──▶ a ──▶ b ──▶ c ──▶ None
//! ```

use std::mem;
use std::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use std::time::Duration;

#[cfg(not(loom))]
use carefree_ground::nap;

use crate::fiber::header::FiberRef;
use crate::protocol::sync::{AtomicU32, Ordering, UnsafeCell, const_fn};
use crate::protocol::work;

/// Of 16 bytes each, and untouched as long as nothing waits there: so many that a hundred thousand keys
/// rarely share one.
#[cfg(not(loom))]
const BUCKETS: usize = 1 << 16;
#[cfg(loom)]
const BUCKETS: usize = 2;

/// A thread has the bucket's lock.
const HELD: u32 = 1;
/// The list is not empty. (Up to date when the lock is free.)
const WAITED: u32 = 2;

/// How often a waiter looks again before it gives the processor away: about as long as a critical
/// section takes.
#[cfg(not(loom))]
const SPINS: u32 = 100;
/// How often a waiter gives it away before it sleeps, for so long.
#[cfg(not(loom))]
const YIELDS: u32 = 10;
#[cfg(not(loom))]
const NAP: Duration = Duration::from_micros(50);

pub(crate) struct Bucket {
    word: AtomicU32,
    list: UnsafeCell<List>,
}

// SAFETY: the list is reached under the lock only.
unsafe impl Sync for Bucket {}

pub(crate) struct List {
    first: Option<FiberRef>,
}

/// The waiters for one key in a list.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The last of the run before, unless this is the first.
    before: Option<FiberRef>,
    first: FiberRef,
}

impl Run {
    #[inline]
    fn last(self) -> FiberRef {
        self.first.previous.get().expect("the first of a run names its last")
    }
}

/// A way along a run, on which waiters may be taken out.
pub(crate) struct Walk {
    key: usize,
    run: Run,
    last: FiberRef,
    next: Option<FiberRef>,
}

impl Walk {
    #[inline]
    pub(crate) fn next(&mut self) -> Option<FiberRef> {
        let fiber = self.next?;
        self.next = fiber.next.get().filter(|_| fiber != self.last);
        Some(fiber)
    }

    /// Takes the one out to which [`next`](Self::next) has just come.
    #[inline]
    pub(crate) fn take_out(&mut self, list: &mut List, fiber: FiberRef) {
        list.unlink(self.run, fiber);
        if let Some(next) = self.next.filter(|_| fiber == self.run.first) {
            self.run.first = next;
        }
    }

    /// Another run has changed, which may stand before this one.
    pub(crate) fn find_again(&mut self, list: &List) {
        if let Some(run) = list.run(self.key) {
            self.run = run;
        }
    }
}

#[cfg(not(loom))]
pub(crate) static LOT: [Bucket; BUCKETS] = [const { Bucket::new() }; BUCKETS];
#[cfg(loom)]
loom::lazy_static! {
    pub(crate) static ref LOT: [Bucket; BUCKETS] = [Bucket::new(), Bucket::new()];
}

/// Forgets all that wait: in the child of a fork, to which they have not come along.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    for bucket in LOT.iter().filter(|bucket| bucket.word.load(Ordering::Relaxed) != 0) {
        // SAFETY: the caller's promise.
        bucket.list.with_mut(|list| unsafe { *list = List { first: None } });
        bucket.word.store(0, Ordering::Relaxed);
    }
}

#[inline]
pub(crate) fn index(key: usize) -> usize {
    // Fibonacci hashing: the high bits of the product depend on all bits of the key.
    let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - BUCKETS.trailing_zeros())) as usize
}

/// So many keys of one bucket.
#[cfg(test)]
pub(crate) fn keys_together(count: usize) -> Vec<usize> {
    (1..).map(|n| n * 8).filter(|key| index(*key) == index(8)).take(count).collect()
}

#[inline]
pub(crate) fn bucket(key: usize) -> &'static Bucket {
    &LOT[index(key)]
}

impl Bucket {
    const_fn! {
        fn new() -> Bucket {
            Bucket { word: AtomicU32::new(0), list: UnsafeCell::new(List { first: None }) }
        }
    }

    /// Whether a fiber or thread waits here, or is about to: see the proof in [`crate::wait::lot`].
    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Not a [`carefree_ground::lock::Lock`]: its waiters sleep until they are woken, and so its
    /// unlocking must find out whether a thread sleeps, by a locked instruction. Two of those are
    /// saved in each hand-over from fiber to fiber. A thread that finds a bucket locked is very rarely kept
    /// waiting, unless the holder has lost its processor; then it gives its own away.
    #[inline]
    pub(crate) fn lock(&'static self) -> Guard {
        let word = self.word.load(Ordering::Relaxed);
        if word & HELD != 0
            || self
                .word
                .compare_exchange(word, word | HELD, Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
        {
            self.wait();
        }
        Guard(self)
    }

    #[cold]
    fn wait(&self) {
        #[cfg(not(loom))]
        let mut looks = 0;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & HELD == 0
                && self
                    .word
                    .compare_exchange(word, word | HELD, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(not(loom))]
            {
                looks += 1;
                if looks < SPINS {
                    std::hint::spin_loop();
                    continue;
                }
                // The kernel's calls: libc's would park.
                match looks < SPINS + YIELDS {
                    true => nap::yield_processor(),
                    // The holder's priority may be lower than the caller's.
                    false => nap::sleep(NAP),
                }
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        // SAFETY: the caller has the lock.
        let waited = self.list.with(|list| unsafe { (*list).first.is_some() });
        self.word.store(if waited { WAITED } else { 0 }, Ordering::Release);
    }
}

/// A bucket's list, for the thread that has its lock.
pub(crate) struct Guard(&'static Bucket);

/// A bucket that stays locked while a fiber which waits for a key of it leaves its stack.
#[derive(Clone, Copy)]
pub(crate) struct Held(&'static Bucket);

impl Held {
    /// Unlocks the bucket, on behalf of the fiber that has left.
    #[inline(always)]
    pub(crate) fn release(self) {
        // The fiber is in the list.
        self.0.word.store(WAITED, Ordering::Release);
    }
}

impl Guard {
    /// Keeps the bucket locked beyond the end of this.
    #[inline]
    pub(crate) fn hold(self) -> Held {
        let held = Held(self.0);
        mem::forget(self);
        held
    }
}

impl Deref for Guard {
    type Target = List;
    #[inline]
    fn deref(&self) -> &List {
        // SAFETY: the guard is the only one.
        self.0.list.with(|list| unsafe { &*list })
    }
}

impl DerefMut for Guard {
    #[inline]
    fn deref_mut(&mut self) -> &mut List {
        // SAFETY: as above.
        self.0.list.with_mut(|list| unsafe { &mut *list })
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Orders what is read under a bucket's lock after the taking of the lock for all that look at the
/// word without the lock: a full fence, which on x86-64 the locking instruction is already.
#[inline]
pub(crate) fn fence_after_lock() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    crate::protocol::sync::fence(Ordering::SeqCst);
}

impl List {
    /// The run of `key`.
    #[inline]
    pub(crate) fn run(&self, key: usize) -> Option<Run> {
        let mut before = None;
        while let Some(first) = next(before, self.first) {
            work::step();
            let run = Run { before, first };
            if first.key.load(Ordering::Relaxed) == key {
                return Some(run);
            }
            before = Some(run.last());
        }
        None
    }

    /// A way along the run of `key`.
    #[inline]
    pub(crate) fn walk(&self, key: usize) -> Option<Walk> {
        let run = self.run(key)?;
        Some(Walk { key, run, last: run.last(), next: Some(run.first) })
    }

    /// Puts `fiber` at the end of the run of its key.
    #[inline]
    pub(crate) fn append(&mut self, fiber: FiberRef) {
        fiber.linked.store(true, Ordering::Relaxed);
        match self.run(fiber.key.load(Ordering::Relaxed)) {
            Some(run) => {
                let last = run.last();
                fiber.next.set(last.next.get());
                fiber.previous.set(Some(last));
                last.next.set(Some(fiber));
                run.first.previous.set(Some(fiber));
            }
            None => {
                fiber.next.set(self.first);
                fiber.previous.set(Some(fiber));
                self.first = Some(fiber);
            }
        }
    }

    /// Takes a waiter out of the run it is in. It stays `linked`.
    #[inline]
    fn unlink(&mut self, run: Run, fiber: FiberRef) {
        let (last, following) = (run.last(), fiber.next.get());
        let leads = fiber == run.first;
        let before = if leads { run.before } else { fiber.previous.get() };
        match before {
            Some(before) => before.next.set(following),
            None => self.first = following,
        }
        match following {
            // The next in the run: leads it from now on, if the first has gone.
            Some(following) if fiber != last => {
                following.previous.set(if leads { Some(last) } else { before });
            }
            _ if leads => {}
            _ => run.first.previous.set(before),
        }
    }
}

/// What follows `before` in a list that begins with `first`.
#[inline]
fn next(before: Option<FiberRef>, first: Option<FiberRef>) -> Option<FiberRef> {
    before.map_or(first, |before| before.next.get())
}

/// Takes `fiber` out of the list it is in, if it is in one; if another thread is just taking it out, waits
/// until that is done. Its wait has been ended, by the caller if this is not the fiber itself.
#[inline]
pub(crate) fn leave(fiber: FiberRef) {
    if fiber.linked.load(Ordering::Acquire) {
        take_out(fiber);
    }
}

#[cold]
fn take_out(fiber: FiberRef) {
    // It was put in before its wait could be ended, and only the caller could put it in again.
    while fiber.linked.load(Ordering::Acquire) {
        // It may have been moved to another key, and may be until we have the right lock.
        let place = index(fiber.key.load(Ordering::Relaxed));
        let mut list = LOT[place].lock();
        if index(fiber.key.load(Ordering::Relaxed)) == place && fiber.linked.load(Ordering::Relaxed)
        {
            let run = list.run(fiber.key.load(Ordering::Relaxed));
            list.unlink(run.expect("a fiber in the list is in a run"), fiber);
            fiber.linked.store(false, Ordering::Release);
        }
    }
}
