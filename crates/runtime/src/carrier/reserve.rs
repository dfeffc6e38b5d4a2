//! Carriers in reserve: those beyond the number that is needed now.
//!
//! Where fibers keep their carriers, by computing, spinning or waiting in ways that are not seen, the
//! monitor has others run what waits behind them: carriers from the reserve, or new ones. A carrier that
//! finds nothing while there are more than [wanted](crate::carrier::carrier::Shared::wanted) retires into
//! the reserve (after a while it does so even if it has something to run: see the monitor), and its thread waits
//! there until it is needed or the runtime ends.
//!
//! The thread does not end before: a fiber that last ran there may have been lent the arena of libc's malloc that the
//! thread uses (`Layout::lend_malloc`), and keeps it where its next carrier uses the first arena. libc counts the
//! threads that use an arena, and ends the process when a caller leaves one that nothing uses.
//!
//! In reserve a carrier runs no fibers and has no stacks at hand. What the kernel has done of the operations that
//! fibers began there, it hands on to the others. Its timers are seen to by others, when they are a little late.

use std::ptr;

use carefree_ground::slice;

use crate::carrier::carrier::{Carrier, set_here};
use crate::protocol::sync::Ordering;

impl Carrier {
    /// Goes into reserve, if there are more carriers than wanted.
    pub(crate) fn retire(&self) -> bool {
        let runtime = self.runtime();
        if runtime.sleepers.active() <= runtime.wanted() {
            return false;
        }
        // What is made ready from here on, be it by a signal's handler, is for the others.
        set_here(ptr::null());
        // A timer that no sleeper knows of: a carrier that sets one leaves it to those that are up and look at
        // the timers before they sleep, but none may be left of these.
        let more = || runtime.has_submissions() || runtime.has_unkept_timer();
        let (retired, sleeper) = if self.is_empty() {
            runtime.sleepers.retire(self.index, runtime.wanted(), self.kept_others(), more)
        } else {
            (false, None)
        };
        runtime.wake(sleeper);
        if !retired {
            set_here(self);
        }
        retired
    }

    /// Waits until it is recalled, and searches then. False: the runtime has ended.
    pub(crate) fn wait_in_reserve(&self) -> bool {
        let runtime = self.runtime();
        self.with_local(|local| {
            local.headers.clear();
            local.stacks.clear();
        });
        // It is recalled where all processors compute, and is to go before what keeps them.
        let usual = slice::shorten();
        let recalled = loop {
            // SAFETY: this is the carrier's own context.
            unsafe { self.poll() };
            self.tidy();
            if !runtime.sleepers.is_in_reserve(self.index) {
                break true;
            }
            if runtime.has_stopped() && runtime.sleepers.discharge(self.index) {
                break false;
            }
            // While it has operations, it does not count as asleep: it will hand on their fibers. See
            // `Shared::is_dormant`.
            self.sleeps.store(!self.has_operations(), Ordering::SeqCst);
            // SAFETY: this is the carrier's own context.
            unsafe { self.lie(None) };
            self.sleeps.store(false, Ordering::SeqCst);
            // SAFETY: as before.
            unsafe { self.complete() };
        };
        if let Some(usual) = usual {
            slice::set(usual);
        }
        set_here(self);
        recalled
    }

    /// The carrier's thread is about to end, with its runtime.
    pub(crate) fn leave(&self) {
        self.with_local(|local| {
            local.headers.clear();
            local.stacks.clear();
        });
        set_here(ptr::null());
        self.thread.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use carefree_ground::own::Own;

    use crate::carrier::carrier::{Carrier, Shared};
    use crate::fiber::header::{FiberRef, Header};

    /// A carrier sleeps, and the last other one that is up retires after a timer was set: the sleeper is woken
    /// to see to it.
    #[test]
    fn a_timer_that_no_sleeper_knows_of_wakes_one() {
        // (No thread runs them.)
        let runtime = Shared::new("retiring", 1, None);
        let sleeper = &runtime.carriers[0];
        runtime.sleepers.search();
        let _asleep = runtime.sleepers.lie_down(sleeper.index());
        let added = runtime.carriers.add(|index| {
            let new = Own::new(Carrier::new(index, true, None));
            new.join_runtime(Arc::as_ptr(&runtime));
            new
        });
        let added = added.expect("there is room");
        runtime.sleepers.set_out();
        runtime.sleepers.search();
        let fiber = FiberRef::new(Box::leak(Box::new(Header::new())));
        let deadline = carefree_reactor::clock::now() + 1_000_000_000;
        added.shard.insert(deadline, fiber, fiber.episode.begin(0), &runtime.timed);
        assert!(added.retire());
        assert!(!runtime.sleepers.is_sleeping(sleeper.index()));
    }
}
