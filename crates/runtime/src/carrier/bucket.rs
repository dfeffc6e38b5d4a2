//! The buckets of the parking lot ([`crate::wait::lot`]): lists of waiters, each under a lock.
//!
//! # The lists
//!
//! In a bucket's list, the waiters for one key stand together, in the order in which they came: a *run*.
//! The `next` of each waiter is the one behind it; that of the last in a run is the first of the next run.
//! The `previous` of each is the one before it in its run; that of the first in a run is the last of the
//! same run, for there is no need to go back to the run before. So to find a key takes a step for each
//! key in the bucket, however many waiters it has; to enter a run, to leave it and to wake its first take
//! constant time.
//!
//! ```text
//!            ┌───── previous ──────┐
//!            │                     ▼
//!  first ──▶ a ──▶ a ──▶ a ──▶ a ──▶ b ──▶ c ──▶ None      (three keys; b and c are their own previous)
//! ```

use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;
#[cfg(not(loom))]
use std::time::Duration;

use carefree_ground::kernel;
#[cfg(not(loom))]
use carefree_ground::nap;

use crate::fiber::header::FiberRef;
use crate::protocol::sync::{AtomicU32, Ordering, UnsafeCell, const_fn};
use crate::protocol::work;

/// So many that a hundred thousand keys rarely share a bucket. A bucket has 16 bytes, and takes no memory
/// before something waits there.
#[cfg(not(loom))]
const BUCKETS: usize = 1 << 16;
#[cfg(loom)]
const BUCKETS: usize = 2;

/// In a bucket's word: a thread has the lock.
const HELD: u32 = 1;
/// In a bucket's word: the list is not empty. (Up to date when the lock is free.)
const WAITED: u32 = 2;

/// How often a thread looks whether the lock is free before it yields its processor: for about as long as
/// a critical section takes.
#[cfg(not(loom))]
const SPINS: u32 = 100;
/// How often it yields before it sleeps between looks.
#[cfg(not(loom))]
const YIELDS: u32 = 10;
/// How long it sleeps.
#[cfg(not(loom))]
const NAP: Duration = Duration::from_micros(50);

pub(crate) struct Bucket {
    word: AtomicU32,
    list: UnsafeCell<List>,
}

// SAFETY: the list is accessed under the lock only.
unsafe impl Sync for Bucket {}

pub(crate) struct List {
    first: Option<FiberRef>,
}

/// The waiters for one key in a list.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The last of the run before this one; `None` for the first run.
    before: Option<FiberRef>,
    first: FiberRef,
}

impl Run {
    #[inline]
    fn last(self) -> FiberRef {
        self.first.previous.get().expect("the first of a run names its last")
    }
}

/// A walk along a run, which may take out waiters.
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

    /// Takes `fiber` out, which [`next`](Self::next) has just returned.
    #[inline]
    pub(crate) fn take_out(&mut self, list: &mut List, fiber: FiberRef) {
        list.unlink(self.run, fiber);
        if let Some(next) = self.next.filter(|_| fiber == self.run.first) {
            self.run.first = next;
        }
    }

    /// To be called when a waiter was added to another run of the list, which may stand before this one.
    pub(crate) fn find_again(&mut self, list: &List) {
        if let Some(run) = list.run(self.key) {
            self.run = run;
        }
    }
}

/// On pages of their own.
#[repr(align(4096))]
struct Lot {
    buckets: [Bucket; BUCKETS],
    /// Not zero where the kernel has not wiped these pages since [`prepare`], or the last fork.
    mark: AtomicU32,
}

#[cfg(not(loom))]
static LOT: Lot = Lot { buckets: [const { Bucket::new() }; BUCKETS], mark: AtomicU32::new(0) };
#[cfg(loom)]
loom::lazy_static! {
    static ref LOT: Lot = Lot { buckets: [Bucket::new(), Bucket::new()], mark: AtomicU32::new(0) };
}

/// Has the kernel wipe the buckets in children of forks, which forgets all waiters: the child has none of the parent's
/// other fibers and threads. To look at each bucket would take the child a page of memory for each page of theirs.
pub(crate) fn prepare() {
    let lot: &Lot = &LOT;
    let wipe = libc::MADV_WIPEONFORK as usize;
    let range = [ptr::from_ref(lot).addr(), size_of::<Lot>(), wipe, 0, 0, 0];
    // SAFETY: takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    // Where pages are larger, others' variables may be on the last one. (Then, and where the kernel refuses it, or
    // accepts it and does nothing, the mark tells the child.)
    if range[0] % page == 0 && range[1] % page == 0 {
        // SAFETY: whole pages of this crate's own, which children access after `renew` only.
        let _ = unsafe { kernel::call(libc::SYS_madvise, range) };
    }
    lot.mark.store(1, Ordering::Relaxed);
}

/// Forgets all waiters: in the child of a fork, where the kernel has not [wiped](prepare) them.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(crate) unsafe fn renew() {
    let kept = LOT.mark.swap(1, Ordering::Relaxed) != 0;
    for bucket in LOT.buckets.iter().filter(|bucket| kept && bucket.is_used()) {
        // SAFETY: there is one thread, and it does not have the lock.
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

/// `count` keys of one bucket.
#[cfg(test)]
pub(crate) fn keys_together(count: usize) -> Vec<usize> {
    (1..).map(|n| n * 8).filter(|key| index(*key) == index(8)).take(count).collect()
}

#[inline]
pub(crate) fn bucket(key: usize) -> &'static Bucket {
    at(index(key))
}

/// The bucket of this index.
#[inline]
pub(crate) fn at(index: usize) -> &'static Bucket {
    &LOT.buckets[index]
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

    /// Takes the lock, by spinning. A [`carefree_ground::lock::Lock`] lets its waiters sleep until they
    /// are woken, so its unlocking takes a locked instruction to find out whether one sleeps. This lock
    /// is unlocked by a plain store, which saves two locked instructions in each hand-over from fiber to
    /// fiber. A thread that finds it taken hardly waits, unless the holder has lost its processor; then
    /// the thread yields its own.
    #[inline]
    pub(crate) fn lock(&'static self) -> Guard {
        if !self.try_lock() {
            self.wait();
        }
        Guard(self)
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        // Acquire: it orders this after the last unlock. That wakers without the lock see the word before
        // what is read under it is the work of `fence_after_lock`.
        word & HELD == 0
            && self
                .word
                .compare_exchange(word, word | HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    #[cold]
    fn wait(&self) {
        #[cfg(not(loom))]
        let mut looks = 0;
        loop {
            if self.try_lock() {
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
                // By system calls: Carefree's own of libc's functions would park the fiber.
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
        // SAFETY: the caller has the lock, so nothing else accesses the list.
        let waited = self.list.with(|list| unsafe { (*list).first.is_some() });
        self.word.store(if waited { WAITED } else { 0 }, Ordering::Release);
    }
}

/// A bucket's list, for the thread that has its lock.
pub(crate) struct Guard(&'static Bucket);

/// A locked bucket, to be unlocked when the fiber that waits there is off its stack.
#[derive(Clone, Copy)]
pub(crate) struct Held(&'static Bucket);

impl Held {
    /// Unlocks the bucket, on behalf of the fiber that has left its stack.
    #[inline(always)]
    pub(crate) fn release(self) {
        // The list is not empty: the fiber is in it.
        self.0.word.store(WAITED, Ordering::Release);
    }
}

impl Guard {
    /// Keeps the bucket locked when the guard is gone.
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
        // SAFETY: a guard exists only while its thread has the lock, and lends the list as it is borrowed.
        self.0.list.with(|list| unsafe { &*list })
    }
}

impl DerefMut for Guard {
    #[inline]
    fn deref_mut(&mut self) -> &mut List {
        // SAFETY: as in `deref`; the guard is borrowed exclusively.
        self.0.list.with_mut(|list| unsafe { &mut *list })
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// A full fence between the taking of a bucket's lock and what the caller reads then, for the sake of
/// wakers that read the bucket's word without the lock: see the proof in [`crate::wait::lot`]. On x86-64
/// the instruction that takes the lock is such a fence already.
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

    /// The waiter for `key`, if no other waits for it and it is the first in the list, which is the usual case.
    #[inline(always)]
    pub(crate) fn lone(&self, key: usize) -> Option<FiberRef> {
        work::step();
        let first = self.first?;
        let is_alone = first.previous.get() == Some(first);
        (first.key.load(Ordering::Relaxed) == key && is_alone).then_some(first)
    }

    /// Takes a [`lone`](Self::lone) waiter out. It stays `linked`, for the caller to clear.
    #[inline(always)]
    pub(crate) fn take_out_lone(&mut self, fiber: FiberRef) {
        // What follows leads a run of its own, which does not lead back to this one.
        self.first = fiber.next.get();
    }

    /// A walk along the run of `key`.
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

    /// Takes `fiber` out of `run`. It stays `linked`, for the caller to clear.
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
            // The next in the same run, which leads it if `fiber` did.
            Some(following) if fiber != last => {
                following.previous.set(if leads { Some(last) } else { before });
            }
            _ if leads => {}
            _ => run.first.previous.set(before),
        }
    }
}

/// The waiter behind `before`; without that, `first`.
#[inline]
fn next(before: Option<FiberRef>, first: Option<FiberRef>) -> Option<FiberRef> {
    before.map_or(first, |before| before.next.get())
}

/// Takes `fiber` out of its list, if it is in one. If another thread is just taking it out, this returns
/// when that is done. The wait of `fiber` has been ended; the caller is `fiber` itself, or has ended the
/// wait and is to make `fiber` ready.
#[inline]
pub(crate) fn leave(fiber: FiberRef) {
    if fiber.linked.load(Ordering::Acquire) {
        take_out(fiber);
    }
}

#[cold]
fn take_out(fiber: FiberRef) {
    // It was put in before its wait could be ended, and does not begin another wait before this returns.
    while fiber.linked.load(Ordering::Acquire) {
        // `requeue` may change the key, and with it the bucket, until this has the bucket's lock.
        let place = index(fiber.key.load(Ordering::Relaxed));
        let mut list = at(place).lock();
        if index(fiber.key.load(Ordering::Relaxed)) == place && fiber.linked.load(Ordering::Relaxed)
        {
            let run = list.run(fiber.key.load(Ordering::Relaxed));
            list.unlink(run.expect("a fiber in the list is in a run"), fiber);
            // Relaxed: the fiber is the caller, or made ready by it later. Others look under the lock.
            fiber.linked.store(false, Ordering::Relaxed);
        }
    }
}

// (Elsewhere there is no system call `fork`.)
#[cfg(all(test, not(loom), target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Whether `holds` in the child of a fork. (No handlers of forks run.)
    fn in_child(holds: impl Fn() -> bool) -> bool {
        // SAFETY: the child makes no call but one to end.
        unsafe {
            match libc::syscall(libc::SYS_fork) {
                0 => libc::_exit(i32::from(holds())),
                child => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child as i32, &raw mut status, 0), child as i32);
                    libc::WEXITSTATUS(status) == 1
                }
            }
        }
    }

    /// Where the kernel wipes the buckets, and where it does not.
    #[test]
    fn a_child_forgets_the_waiters() {
        prepare();
        let held = bucket(8).lock();
        // SAFETY: the child has one thread, which is not in here.
        let renews = || unsafe {
            renew();
            !bucket(8).is_used()
        };
        assert!(in_child(|| !bucket(8).is_used() && renews()));
        let range = ptr::from_ref(&LOT).cast_mut().cast();
        // SAFETY: undoes what `prepare` does.
        assert_eq!(unsafe { libc::madvise(range, size_of::<Lot>(), libc::MADV_KEEPONFORK) }, 0);
        assert!(in_child(|| bucket(8).is_used() && renews()));
        assert!(bucket(8).is_used());
        drop(held);
        prepare();
    }
}
