//! The parking lot: who waits for which key.
//!
//! A key is any number that the waiting and the waking side agree on, an address as a rule. Keys
//! are spread over a fixed number of buckets, each a list of waiters under a lock; a waiter is a
//! fiber or a plain thread. A waiter also has a *tag*, by which a waker may choose among those that
//! wait for one key.
//!
//! # No lost wake-up
//!
//! A waiter enters the list and asks `validate` under the bucket's lock; who wakes changes the
//! condition first, then takes the lock. So either `validate` sees the change, or the waker sees
//! the waiter.
//!
//! A waiter whose wait was ended by something else (deadline, cancellation) is still in the list.
//! It is taken out by who ended the wait or, if it had not left its stack yet, by itself when it
//! goes on. A waker that meets it meanwhile cannot claim it, takes it out, and looks further: a
//! wake-up is never spent on somebody who is awake.
//!
//! *Nor on a later wait.* A waiter is `linked` from when it enters the list until who has taken it out
//! has also tried to claim it, and it does not go on before it has seen that it is not (`leave`). So
//! whoever finds it in the list finds it in the wait for which it is there, even if that is over.
//!
//! # A waker that looks first
//!
//! Most of those who might have to wake somebody (each unlocking of a mutex) find nobody, and should
//! not take a lock to learn it. So the word of a bucket's lock also tells whether its list is empty,
//! and is 0 only when nobody is in the list and nobody is about to enter.
//!
//! Waiter: `lock the bucket (R); validate reads the condition (V)`. Waker: `changes the condition
//! (C); full fence (F); reads the bucket's word (B)`. Suppose that B finds 0 although the waiter
//! goes on to sleep: V did not see C, and B did not see R. All of R, V and F take part in the single
//! order of `SeqCst` operations: R is a `SeqCst` read-modify-write, followed by a full fence before
//! V (`fence_after_lock`). V read what was before C, so that fence comes before F; B read what was
//! before R, so F comes before R. But R comes before the fence after it: a contradiction. (The word
//! stays above 0 from R until the waiter has left the list again.)
//!
//! All of this is run by loom in `model/parking.rs`.
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
//!
//! # Nothing here allocates
//!
//! Nor do a fiber's parking and its being made ready. The program's allocator may wait for a mutex,
//! and unlock one that a fiber waits for.

use std::mem;
use std::ops::{Deref, DerefMut};

#[cfg(not(loom))]
use carefree_context::kernel;

use crate::carrier;
use crate::episode::{Claim, Outcome};
use crate::fiber::FiberRef;
use crate::queue::Place;
use crate::sync::{AtomicU32, Ordering, UnsafeCell};
use crate::wait;
use crate::work;

/// Of 16 bytes each, and untouched as long as nobody waits there: so many that a hundred thousand keys
/// rarely share one.
#[cfg(not(loom))]
const BUCKETS: usize = 1 << 16;
#[cfg(loom)]
const BUCKETS: usize = 2;

/// Somebody has the bucket's lock.
const HELD: u32 = 1;
/// The list is not empty. (Up to date when the lock is free.)
const WAITED: u32 = 2;

/// How often one looks again before one gives the processor away: about as long as a critical
/// section takes.
const SPINS: u32 = 100;
/// How often one gives it away before one sleeps, for as many nanoseconds.
const YIELDS: u32 = 10;
const NAP: i64 = 50_000;

struct Bucket {
    word: AtomicU32,
    list: UnsafeCell<List>,
}

// SAFETY: the list is reached under the lock only.
unsafe impl Sync for Bucket {}

struct List {
    first: Option<FiberRef>,
}

/// The waiters for one key in a list.
#[derive(Clone, Copy)]
struct Run {
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
struct Walk {
    key: usize,
    run: Run,
    last: FiberRef,
    next: Option<FiberRef>,
}

impl Walk {
    #[inline]
    fn next(&mut self) -> Option<FiberRef> {
        let fiber = self.next?;
        self.next = fiber.next.get().filter(|_| fiber != self.last);
        Some(fiber)
    }

    /// Takes the one out to which [`next`](Self::next) has just come.
    #[inline]
    fn take_out(&mut self, list: &mut List, fiber: FiberRef) {
        list.unlink(self.run, fiber);
        if let Some(next) = self.next.filter(|_| fiber == self.run.first) {
            self.run.first = next;
        }
    }

    /// Another run has changed, which may stand before this one.
    fn find_again(&mut self, list: &List) {
        if let Some(run) = list.run(self.key) {
            self.run = run;
        }
    }
}

#[cfg(not(loom))]
static LOT: [Bucket; BUCKETS] = [const { Bucket::new() }; BUCKETS];
#[cfg(loom)]
loom::lazy_static! {
    static ref LOT: [Bucket; BUCKETS] = [Bucket::new(), Bucket::new()];
}

/// Forgets all who wait: in the child of a fork, to which they have not come along.
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
fn bucket(key: usize) -> &'static Bucket {
    &LOT[index(key)]
}

impl Bucket {
    #[cfg(not(loom))]
    const fn new() -> Bucket {
        Bucket { word: AtomicU32::new(0), list: UnsafeCell::new(List { first: None }) }
    }

    #[cfg(loom)]
    fn new() -> Bucket {
        Bucket { word: AtomicU32::new(0), list: UnsafeCell::new(List { first: None }) }
    }

    /// Not a [`carefree_context::lock::Lock`]: its waiters sleep until they are woken, and so its
    /// unlocking must find out whether somebody sleeps, by a locked instruction. Two of those are
    /// saved in each hand-over from fiber to fiber. Whoever finds a bucket locked is very rarely kept
    /// waiting, unless the holder has lost its processor; then it gives its own away.
    #[inline]
    fn lock(&'static self) -> Guard {
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
                let time = libc::timespec { tv_sec: 0, tv_nsec: NAP };
                // The kernel's calls: libc's would park.
                let (number, first) = match looks < SPINS + YIELDS {
                    true => (libc::SYS_sched_yield, 0),
                    // The holder's priority may be lower than the caller's.
                    false => (libc::SYS_nanosleep, &raw const time as usize),
                };
                // SAFETY: the kernel reads the time, if anything.
                let _ = unsafe { kernel::call(number, [first, 0, 0, 0, 0, 0]) };
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

/// A bucket's list, for who has its lock.
struct Guard(&'static Bucket);

/// A bucket that stays locked while a fiber which waits for a key of it leaves its stack.
#[derive(Clone, Copy)]
pub(crate) struct Held(&'static Bucket);

impl Held {
    /// Unlocks the bucket, for who runs after the fiber.
    #[inline(always)]
    pub(crate) fn release(self) {
        // The fiber is in the list.
        self.0.word.store(WAITED, Ordering::Release);
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

/// Orders what is read under a bucket's lock after the taking of the lock for all who look at the
/// word without the lock: a full fence, which on x86-64 the locking instruction is already.
#[inline]
fn fence_after_lock() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    crate::sync::fence(Ordering::SeqCst);
}

/// Whether anybody waits, or is about to wait, for `key` (or, rarely, for another one).
///
/// For a waker that has changed the condition, and then made a full fence: if this says `false`,
/// it need not [`unpark`] anybody. See the module's proof.
#[inline(always)]
pub fn is_waited(key: usize) -> bool {
    bucket(key).word.load(Ordering::Relaxed) != 0
}

/// [`is_waited`] for a waker that has changed the condition in any way, with the fence it takes.
///
/// The fence is saved if somebody waits: to wake him takes the lock, which is as good.
#[inline(always)]
pub fn is_waited_after_change(key: usize) -> bool {
    is_waited(key) || {
        fence_before_look();
        is_waited(key)
    }
}

/// A full fence for who calls [`is_waited`] next: cheaper than what compilers make of
/// `fence(SeqCst)`.
#[inline(always)]
pub fn fence_before_look() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: writes back what it reads at the top of the stack. Any locked instruction orders all
    // accesses to ordinary memory, as `mfence` does, in half the time.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0");
    }
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    crate::sync::fence(Ordering::SeqCst);
}

impl List {
    /// The run of `key`.
    #[inline]
    fn run(&self, key: usize) -> Option<Run> {
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
    fn walk(&self, key: usize) -> Option<Walk> {
        let run = self.run(key)?;
        Some(Walk { key, run, last: run.last(), next: Some(run.first) })
    }

    /// Puts `fiber` at the end of the run of its key.
    #[inline]
    fn append(&mut self, fiber: FiberRef) {
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

    /// Takes a waiter out of the run it is in, who stays `linked`.
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

/// Enters `fiber`, whose wait `begin` starts, into the list for `key`, if `validate` says that
/// there is something to wait for.
#[inline]
pub(crate) fn enter<R>(
    key: usize,
    tag: u32,
    fiber: FiberRef,
    validate: impl FnOnce() -> bool,
    begin: impl FnOnce() -> R,
) -> Option<R> {
    let mut list = bucket(key).lock();
    fence_after_lock();
    if !validate() {
        return None;
    }
    let begun = begin();
    fiber.tag.set(tag);
    list.append(fiber);
    Some(begun)
}

/// [`enter`] that keeps the bucket locked: for a wait that nothing but an unpark of its key ends (see
/// [`crate::episode`]). The caller leaves its stack at once, and who runs next unlocks.
#[inline]
pub(crate) fn enter_held(
    key: usize,
    tag: u32,
    fiber: FiberRef,
    validate: impl FnOnce() -> bool,
    begin: impl FnOnce(),
) -> Option<Held> {
    let mut list = bucket(key).lock();
    fence_after_lock();
    if !validate() {
        return None;
    }
    begin();
    fiber.tag.set(tag);
    list.append(fiber);
    let held = Held(list.0);
    mem::forget(list);
    Some(held)
}

/// Takes `fiber` out of the list it is in, if it is in one; if somebody is just taking it out, waits
/// until he is done with it. Its wait has been ended, by the caller if this is not the fiber itself.
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

/// Wakes up to `count` of those that wait for `key`, the longest waiting first. Returns how many.
///
/// What the caller wrote before, they see after.
pub fn unpark(key: usize, count: usize) -> usize {
    unpark_to(key, count, Place::Next)
}

/// [`unpark`] of those only whose tag, given to [`park_tagged`](crate::wait::park_tagged),
/// `matches`. That must not park, panic or unpark.
pub fn unpark_matching(key: usize, count: usize, mut matches: impl FnMut(u32) -> bool) -> usize {
    wake(key, count, Place::Next, &mut matches, |_, _| ())
}

/// [`unpark`] with a say in when those woken run.
pub(crate) fn unpark_to(key: usize, count: usize, place: Place) -> usize {
    unpark_then(key, count, place, |_, _| ())
}

/// [`unpark_to`]; then, while nobody can begin to wait for `key`, calls `then` with the number of
/// those woken and a function that says whether others are left. `then` must not park, panic or
/// unpark.
pub(crate) fn unpark_then(
    key: usize,
    count: usize,
    place: Place,
    then: impl FnOnce(usize, &dyn Fn() -> bool),
) -> usize {
    wake(key, count, place, |_| true, then)
}

/// Those to make ready once the lock is free, chained through `next`: they are off their stacks and
/// out of the list, so the link is ours.
#[derive(Default)]
struct Woken {
    first: Option<FiberRef>,
    last: Option<FiberRef>,
}

impl Woken {
    /// Ends the wait of `fiber`, which was unlinked from its list. False: it was over already.
    #[inline]
    fn claim(&mut self, fiber: FiberRef) -> bool {
        let claim = match fiber.episode.claim_held() {
            true => Claim::Ready,
            false => fiber.episode.claim_by(u64::MAX, Outcome::Unparked),
        };
        // From here on it may be in another wait, unless it is ours to make ready.
        fiber.linked.store(false, Ordering::Release);
        match claim {
            Claim::Lost => return false,
            Claim::Early => {}
            Claim::Thread { counted } => wait::wake_thread(fiber, counted),
            Claim::Ready => {
                fiber.next.set(None);
                match self.last {
                    Some(last) => last.next.set(Some(fiber)),
                    None => self.first = Some(fiber),
                }
                self.last = Some(fiber);
            }
        }
        true
    }

    #[inline]
    fn make_ready(mut self, place: Place) {
        while let Some(fiber) = self.first {
            self.first = fiber.next.get();
            carrier::make_ready(fiber, place);
        }
    }
}

#[inline]
fn wake(
    key: usize,
    count: usize,
    place: Place,
    mut matches: impl FnMut(u32) -> bool,
    then: impl FnOnce(usize, &dyn Fn() -> bool),
) -> usize {
    let mut awake = 0;
    let mut woken = Woken::default();
    {
        let mut list = bucket(key).lock();
        if let Some(mut walk) = list.walk(key) {
            while let (true, Some(fiber)) = (awake < count, walk.next()) {
                if matches(fiber.tag.get()) {
                    walk.take_out(&mut list, fiber);
                    awake += usize::from(woken.claim(fiber));
                }
            }
        }
        then(awake, &|| list.run(key).is_some());
    }
    woken.make_ready(place);
    awake
}

/// Wakes up to `wake` of those that wait for `from`, and lets up to `requeue` further ones wait for
/// `to` instead, if `validate` says so while nobody can begin to wait for either, nor be woken.
/// Returns how many were woken and how many moved.
pub fn requeue(
    from: usize,
    to: usize,
    wake: usize,
    requeue: usize,
    validate: impl FnOnce() -> bool,
) -> Option<(usize, usize)> {
    let (mut awake, mut moved) = (0, 0);
    let mut woken = Woken::default();
    {
        // In the order of their places, so that two who lock the same two do not wait for each
        // other.
        let (source, target) = (index(from), index(to));
        let mut low = LOT[source.min(target)].lock();
        let mut high = (source != target).then(|| LOT[source.max(target)].lock());
        fence_after_lock();
        if !validate() {
            return None;
        }
        let (source_list, mut target_list): (&mut List, Option<&mut List>) = match &mut high {
            Some(high) if source > target => (high, Some(&mut low)),
            Some(high) => (&mut low, Some(high)),
            None => (&mut low, None),
        };
        let Some(mut walk) = source_list.walk(from) else { return Some((0, 0)) };
        while awake < wake || moved < requeue {
            let Some(fiber) = walk.next() else { break };
            if awake < wake {
                walk.take_out(source_list, fiber);
                awake += usize::from(woken.claim(fiber));
                continue;
            }
            moved += 1;
            if from == to {
                continue;
            }
            walk.take_out(source_list, fiber);
            fiber.key.store(to, Ordering::Relaxed);
            match &mut target_list {
                Some(target_list) => target_list.append(fiber),
                None => {
                    source_list.append(fiber);
                    walk.find_again(source_list);
                }
            }
        }
    }
    woken.make_ready(Place::Next);
    Some((awake, moved))
}
