//! The parking lot: which fibers and threads wait for which key.
//!
//! A key is any number that the waiting and the waking side agree on, an address as a rule. Keys
//! are spread over a fixed number of buckets, each a list of waiters under a lock; a waiter is a
//! fiber or a plain thread. A waiter also has a *tag*, by which a waker may choose among those that
//! wait for one key.
//!
//! # No lost wake-up
//!
//! A waiter enters the list and asks `validate` under the bucket's lock; the waker changes the
//! condition first, then takes the lock. So either `validate` sees the change, or the waker sees
//! the waiter.
//!
//! A waiter whose wait was ended by something else (deadline, cancellation) is still in the list.
//! It is taken out by the party that ended the wait or, if it had not left its stack yet, by itself when it
//! goes on. A waker that meets it meanwhile cannot claim it, takes it out, and looks further: a
//! wake-up is never spent on one that is awake.
//!
//! *Nor on a later wait.* A waiter is `linked` from when it enters the list until the thread that has taken it out
//! has also tried to claim it, and it does not go on before it has seen that it is not (`leave`). So
//! a waker that finds it in the list finds it in the wait for which it is there, even if that is over.
//!
//! # A waker that looks first
//!
//! Most of what might have to wake a waiter (each unlocking of a mutex) finds none, and should
//! not take a lock to learn it. So the word of a bucket's lock also tells whether its list is empty,
//! and is 0 only when no waiter is in the list and none is about to enter.
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
//! # Nothing here allocates
//!
//! Nor do a fiber's parking and its being made ready. The program's allocator may wait for a mutex,
//! and unlock one that a fiber waits for.

use crate::carrier::bucket::{Held, LOT, List, bucket, fence_after_lock, index};
use crate::carrier::carrier;
use crate::carrier::policy::{Place, UNPARKED};
use crate::carrier::wake::wake_thread;
use crate::fiber::header::FiberRef;
use crate::protocol::episode::{Claim, Outcome};
use crate::protocol::sync::Ordering;

/// Whether a fiber or thread waits, or is about to wait, for `key` (or, rarely, for another one).
///
/// For a waker that has changed the condition, and then made a full fence: if this says `false`,
/// it need not [`unpark`]. See the module's proof.
#[inline(always)]
pub fn is_waited(key: usize) -> bool {
    bucket(key).is_used()
}

/// [`is_waited`] for a waker that has changed the condition in any way, with the fence it takes.
///
/// The fence is saved if there is a waiter: to wake it takes the lock, which is as good.
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
    // SAFETY: writes back what it reads at the top of the stack. Any locked instruction orders all
    // accesses to ordinary memory, as `mfence` does, in half the time.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0");
    }
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    crate::protocol::sync::fence(Ordering::SeqCst);
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
/// [`crate::protocol::episode`]). The caller leaves its stack at once, and what runs next unlocks.
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
    Some(list.hold())
}

/// Wakes up to `count` of those that wait for `key`, the longest waiting first. Returns how many.
///
/// What the caller wrote before, they see after.
pub fn unpark(key: usize, count: usize) -> usize {
    unpark_to(key, count, UNPARKED)
}

/// [`unpark`] of those only whose tag, given to [`park_tagged`](crate::wait::park::park_tagged),
/// `matches`. That must not park, panic or unpark.
pub fn unpark_matching(key: usize, count: usize, mut matches: impl FnMut(u32) -> bool) -> usize {
    wake(key, count, UNPARKED, &mut matches, |_, _| ())
}

/// [`unpark`] with a say in when those woken run.
pub(crate) fn unpark_to(key: usize, count: usize, place: Place) -> usize {
    unpark_then(key, count, place, |_, _| ())
}

/// [`unpark_to`]; then, while nothing can begin to wait for `key`, calls `then` with the number of
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
/// `to` instead, if `validate` says so while nothing can begin to wait for either, nor be woken.
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
        // In the order of their places, so that two threads that lock the same two do not wait for each
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
    woken.make_ready(UNPARKED);
    Some((awake, moved))
}
