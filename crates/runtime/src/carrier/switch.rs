//! Switching from a fiber to the next one on its carrier.
//!
//! # Leaving a stack
//!
//! A fiber must not be found by others before its context is saved, which the switch does. So the
//! departing fiber locks the run queue, notes what is to be done with it ([`Next`]) or queues itself, and
//! switches. What runs next on this carrier does what was noted and unlocks the queue, before
//! anything else ([`Carrier::settle`]).

use carefree_context::arch::{self, ThreadContext};

use crate::carrier::carrier::{Carrier, Next, assign_to_enter, of};
use crate::carrier::policy::YIELDED;
use crate::carrier::stats::count;
use crate::fiber::current::{current_fiber, set_current, without_parking};
use crate::fiber::furnish::Furnished;
use crate::fiber::header::FiberRef;
use crate::fiber::pin;
use crate::protocol::sync::Ordering;

/// Leaves the calling fiber's stack; returns when the fiber is run again, perhaps by another
/// carrier.
///
/// # Safety
/// `me` is the calling fiber. With [`Next::Park`] and [`Next::ParkHeld`] its wait has begun; with
/// [`Next::End`] nothing on its stack is needed any more, and the call does not return.
#[inline(always)]
pub(crate) unsafe fn leave(me: FiberRef, next: Next) {
    let carrier = of(me);
    carrier.left.set(Some((next, me)));
    if let Next::End = next {
        // SAFETY: the calling fiber's own context, which nothing accesses while it runs.
        unsafe { (*me.context.get()).end() };
    }
    // SAFETY: the caller runs on this carrier, whose queue is locked only from here until `settle`.
    let mut queue = unsafe { carrier.queue.lock() };
    let to = if carrier.is_due() { None } else { queue.pop() };
    // SAFETY: `me` is the calling fiber, as this function demands; it is noted as left, and the queue is
    // locked.
    unsafe { carrier.go(me, to) };
}

/// Lets other fibers run. Returns at once if none is ready; on a plain thread, yields that.
#[inline]
pub fn yield_now() {
    let Some(me) = current_fiber() else { return std::thread::yield_now() };
    if !of(me).must_not_switch(me) {
        yield_from(me);
    }
}

/// Queues the calling fiber behind the others on its carrier, and switches to the next of them.
#[inline(always)]
fn yield_from(me: FiberRef) {
    let carrier = of(me);
    // SAFETY: the caller runs on this carrier, whose queue is locked only from here until `settle`.
    let mut queue = unsafe { carrier.queue.lock_to_yield() };
    // A yield counts even when no other is there: a fiber that waits for something in a loop around it
    // must not keep the carrier from its timers.
    let to = if carrier.is_due() || (carrier.queue.is_empty() && carrier.has_submissions()) {
        queue.push(me, YIELDED);
        None
    } else {
        let Some(next) = queue.rotate(me) else {
            return queue.unlock();
        };
        Some(next)
    };
    // SAFETY: `me` is the calling fiber; it is in the queue, which is locked.
    unsafe { carrier.go(me, to) };
}

impl Carrier {
    /// # Safety
    /// As for [`arch::switch_thread_from_rust`]. In own mode `to` has thread-local storage of its own, in
    /// shared mode that of the calling thread.
    #[inline(always)]
    pub(crate) unsafe fn switch(&self, from: *mut ThreadContext, to: *const ThreadContext) {
        // SAFETY: as this function demands; the mode says whether the thread pointer is exchanged.
        unsafe {
            if self.own_tls {
                arch::switch_thread_from_rust::<true>(from, to);
            } else {
                arch::switch_thread_from_rust::<false>(from, to);
            }
        }
    }

    /// Counts a switch of this round. True, without counting: the carrier's own context is due instead.
    #[inline(always)]
    fn is_due(&self) -> bool {
        let round = self.round.get();
        if round == 0 {
            return true;
        }
        self.round.set(round - 1);
        false
    }

    /// Switches from `me` to `to`; without that, to the carrier's own context.
    ///
    /// # Safety
    /// `me` is the calling fiber, and either queued or noted as left. The queue is locked, and `to` was
    /// taken from it.
    #[inline(always)]
    unsafe fn go(&self, me: FiberRef, to: Option<FiberRef>) {
        let to = match to {
            Some(fiber) if assign_to_enter(fiber, self) => fiber.context.get().cast_const(),
            Some(unfurnished) => {
                // This may be within the program's allocator, so the carrier's own context finds a stack.
                self.unfurnished.set(Some(unfurnished));
                self.native.get().cast_const()
            }
            None => self.native.get().cast_const(),
        };
        // SAFETY: `to` is suspended: it is a fiber from the queue, or the carrier's own context, which is
        // while fibers run. Nothing enters `me` before the queue is unlocked, by what is switched to. Rust
        // code runs under the default floating-point environment.
        unsafe { self.switch(me.context.get(), to) };
        // The fiber runs again, perhaps on another carrier.
        of(me).entered(me);
    }

    /// To be called first by a fiber that was just entered on this carrier.
    #[inline(always)]
    pub(crate) fn entered(&self, me: FiberRef) {
        if !self.own_tls {
            set_current(Some(me));
        }
        count(&self.stats.switches);
        self.settle();
    }

    /// Does what the fiber that ran before has noted, and unlocks the queue that it has locked.
    #[inline(always)]
    pub(crate) fn settle(&self) {
        // SAFETY: this runs on the carrier, right after a switch; the party that has switched here, a
        // fiber or the carrier's own context, has locked the queue.
        let mut queue = unsafe { self.queue.locked() };
        let Some((next, fiber)) = self.left.take() else { return queue.unlock() };
        match next {
            Next::Park => {
                self.count_park(fiber);
                if !fiber.episode.commit() {
                    // Woken on its way out.
                    queue.push(fiber, YIELDED);
                }
                queue.unlock();
            }
            Next::ParkHeld(held) => {
                self.count_park(fiber);
                held.release();
                queue.unlock();
            }
            Next::End => {
                queue.unlock();
                self.bury(fiber);
            }
        }
    }

    /// Counts a wait by what it is for.
    #[inline(always)]
    fn count_park(&self, fiber: FiberRef) {
        let reason = usize::from(fiber.reason.load(Ordering::Relaxed));
        if let Some(counter) = self.stats.parks.get(reason) {
            count(counter);
        }
    }

    /// Takes back the stack of a fiber that has ended, and the fiber's reference to its header.
    fn bury(&self, fiber: FiberRef) {
        // SAFETY: the fiber has left its stack for good, and nothing else accesses its context.
        unsafe { (*fiber.context.get()).forget() };
        // This runs on the stack of the fiber that was just entered, which must not park here, and may be within
        // the program's allocator: nothing here calls that.
        without_parking(|| {
            pin::bury(fiber, |stack| {
                // SAFETY: the ended fiber was the stack's one owner, and has left it.
                let stack = unsafe { Furnished::from_raw(stack) };
                self.with_local(|local| local.stacks.put(stack));
            });
            count(&self.stats.ended);
            self.runtime().fiber_ended();
            if fiber.give_back() {
                self.recycle_ended(fiber);
            }
        });
    }
}
