//! The parking lot: which fibers and threads wait for which key.
//!
//! A *key* is any number that waiters and wakers agree on, as a rule an address. Keys are spread over a fixed
//! number of buckets, each a list of waiters under a lock (`carrier::bucket`). A waiter is a fiber
//! or a plain thread. It also has a *tag*, by which a waker may choose among the waiters for one key.
//!
//! # No lost wake-up
//!
//! A waiter enters the list and asks `validate` under the bucket's lock; the waker changes the
//! condition first, then takes the lock. So either `validate` sees the change, or the waker sees
//! the waiter.
//!
//! A waiter whose wait a deadline or a cancellation has ended is still in the list. The party that ended
//! the wait takes it out; or the waiter itself does, when it goes on, if the wait was ended before it left
//! its stack. A waker that finds it before that fails to claim it, takes it out and looks further: so no
//! wake-up is spent on a waiter that is awake.
//!
//! *Nor is one spent on a later wait.* A waiter is `linked` from when it enters the list until the thread that
//! has taken it out has also tried to claim it; and it does not go on while it is (`bucket::leave`). So a waker
//! that finds a waiter in the list claims the wait for which it is there, or none.
//!
//! # A waker that looks first
//!
//! Most wakers (each unlocking of a mutex is one) find no waiter, and should not take a lock to learn
//! that. So the word of a bucket's lock also tells whether its list is empty: it is 0 only when no waiter
//! is in the list and none is about to enter.
//!
//! Waiter: `lock the bucket (R); validate reads the condition (V)`. Waker: `changes the condition
//! (C); full fence (F); reads the bucket's word (B)`. Between R and V there is a full fence, too (G:
//! `fence_after_lock`). Suppose that B reads 0 and the waiter goes on to sleep: B did not see R, and V did
//! not see C. Full fences have a single order. V read what was there before C, so G comes before F; B read
//! what was there before R, so F comes before G: a contradiction. (The word stays above 0 from R until the
//! waiter has left the list again.)
//!
//! All of this is run by loom in `model/parking.rs`.
//!
//! # Nothing here allocates
//!
//! Nor does any other code that parks a fiber, makes one ready or goes on in one. The program's allocator may be
//! what waits for a mutex or a moment, or unlocks one. (An operation of the kernel's that is submitted may
//! allocate: allocators do not read from sockets.)

use crate::carrier::bucket::{Guard, Held, List, at, bucket, fence_after_lock, index};
use crate::carrier::carrier;
use crate::carrier::policy::{Place, UNPARKED};
#[cfg(not(loom))]
use crate::carrier::quiet::quiet;
use crate::carrier::wake::wake_thread;
use crate::fiber::header::FiberRef;
use crate::protocol::episode::{Claim, Outcome};
use crate::protocol::sync::Ordering;

/// Whether a fiber or thread waits, or is about to wait, for `key`; or for another key of its bucket, rarely.
///
/// For a waker that has changed the condition, and then made a full fence: if this says `false`,
/// it need not [`unpark`]. See the module's proof.
#[inline(always)]
pub fn is_waited(key: usize) -> bool {
    bucket(key).is_used()
}

/// [`is_waited`] for a waker that has changed the condition and made no fence.
///
/// If it says `true`, the caller takes the bucket's lock, and needs no fence.
#[inline(always)]
pub fn is_waited_after_change(key: usize) -> bool {
    is_waited(key) || {
        fence_before_look();
        is_waited(key)
    }
}

/// A full fence before a call of [`is_waited`]: cheaper than what compilers make of
/// `fence(SeqCst)`.
#[inline(always)]
pub fn fence_before_look() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: the instruction writes back the value that it reads at the top of the stack. Any locked
    // instruction orders all accesses to ordinary memory, as `mfence` does, in half the time.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0");
    }
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    crate::protocol::sync::fence(Ordering::SeqCst);
}

/// If `validate` says that there is something to wait for: begins the wait of `fiber`, by `begin`, and
/// enters it into the list of waiters for `key`.
#[inline]
pub(crate) fn enter<R>(
    key: usize,
    tag: u32,
    fiber: FiberRef,
    validate: impl FnOnce() -> bool,
    begin: impl FnOnce() -> R,
) -> Option<R> {
    #[cfg(not(loom))]
    let _quiet = quiet();
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

/// [`enter`], but the bucket stays locked: for a wait that nothing but an unpark of its key ends (see
/// [`crate::protocol::episode`]). The caller leaves its stack at once, and what runs next unlocks the
/// bucket.
#[inline(always)]
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
    Some(list.hold())
}

/// Wakes up to `count` waiters for `key`, the longest waiting first. Returns how many.
///
/// They see what the caller wrote before.
pub fn unpark(key: usize, count: usize) -> usize {
    unpark_to(key, count, UNPARKED)
}

/// [`unpark`] for the waiters whose tag, given to [`park_tagged`](crate::wait::park::park_tagged),
/// `matches`. That must not park, panic or unpark.
#[inline]
pub fn unpark_matching(key: usize, count: usize, matches: impl FnMut(u32) -> bool) -> usize {
    wake(key, count, UNPARKED, matches, |_, _| ())
}

/// [`unpark`] that queues the woken fibers at `place`.
pub(crate) fn unpark_to(key: usize, count: usize, place: Place) -> usize {
    unpark_then(key, count, place, |_, _| ())
}

/// [`unpark_to`] that calls `then` while nothing can begin to wait for `key`, with the number of woken
/// waiters and a function that says whether others are left. `then` must not park, panic or unpark.
pub(crate) fn unpark_then(
    key: usize,
    count: usize,
    place: Place,
    then: impl FnOnce(usize, &dyn Fn() -> bool),
) -> usize {
    wake(key, count, place, |_| true, then)
}

/// Fibers to make ready once the bucket's lock is free, linked by `next`. They are off their stacks and out
/// of the bucket's list, so nothing else uses that link.
#[derive(Default)]
struct Woken {
    first: Option<FiberRef>,
    last: Option<FiberRef>,
}

impl Woken {
    /// Ends the wait of `fiber`, which was taken out of its list. False: another party had ended it.
    #[inline]
    fn claim(&mut self, fiber: FiberRef) -> bool {
        let claim = match fiber.episode.claim_held() {
            true => Claim::Ready,
            false => fiber.episode.claim_by(u64::MAX, Outcome::Unparked),
        };
        // From here on the fiber may go on to another wait, unless this claim is to make it ready.
        fiber.linked.store(false, Ordering::Release);
        match claim {
            Claim::Lost => return false,
            Claim::Early => {}
            Claim::Thread { counted } => wake_thread(fiber, counted),
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

    #[inline(never)]
    fn make_ready(mut self, place: Place) {
        while let Some(fiber) = self.first {
            self.first = fiber.next.get();
            carrier::make_ready(fiber, place);
        }
    }
}

/// The common part of the functions above: wakes up to `count` waiters for `key` whose tag `matches`.
///
/// As a rule there is one, a fiber that nothing else wakes. That one is woken here; all others are by
/// [`wake_listed`].
#[inline(always)]
fn wake(
    key: usize,
    count: usize,
    place: Place,
    mut matches: impl FnMut(u32) -> bool,
    then: impl FnOnce(usize, &dyn Fn() -> bool),
) -> usize {
    #[cfg(not(loom))]
    if let Some(_quiet) = quiet() {
        return wake_listed(bucket(key).lock(), key, count, place, matches, then);
    }
    let mut list = bucket(key).lock();
    let lone = list.lone(key).filter(|fiber| count > 0 && matches(fiber.tag.get()));
    match lone.filter(|fiber| fiber.episode.claim_held()) {
        Some(fiber) => {
            list.take_out_lone(fiber);
            fiber.linked.store(false, Ordering::Release);
            then(1, &|| false);
            drop(list);
            carrier::make_ready(fiber, place);
            1
        }
        None => wake_listed(list, key, count, place, matches, then),
    }
}

/// [`wake`] of those in a list, whatever may end their waits besides.
#[inline(never)]
fn wake_listed(
    mut list: Guard,
    key: usize,
    count: usize,
    place: Place,
    mut matches: impl FnMut(u32) -> bool,
    then: impl FnOnce(usize, &dyn Fn() -> bool),
) -> usize {
    let mut awake = 0;
    let mut woken = Woken::default();
    if let Some(mut walk) = list.walk(key) {
        while let (true, Some(fiber)) = (awake < count, walk.next()) {
            if matches(fiber.tag.get()) {
                walk.take_out(&mut list, fiber);
                awake += usize::from(woken.claim(fiber));
            }
        }
    }
    then(awake, &|| list.run(key).is_some());
    drop(list);
    woken.make_ready(place);
    awake
}

/// Wakes up to `wake` waiters for `from`, and lets up to `requeue` more wait for `to` instead, if
/// `validate` says so; meanwhile nothing can begin to wait for either key, nor be woken. Returns how many
/// were woken and how many moved; `None` if `validate` says no.
pub fn requeue(
    from: usize,
    to: usize,
    wake: usize,
    requeue: usize,
    validate: impl FnOnce() -> bool,
) -> Option<(usize, usize)> {
    #[cfg(not(loom))]
    let _quiet = quiet();
    let (mut awake, mut moved) = (0, 0);
    let mut woken = Woken::default();
    {
        // Locked in the order of their indices, so that two threads that lock the same two buckets do not
        // wait for each other.
        let (source, target) = (index(from), index(to));
        let mut low = at(source.min(target)).lock();
        let mut high = (source != target).then(|| at(source.max(target)).lock());
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
    woken.make_ready(UNPARKED);
    Some((awake, moved))
}
