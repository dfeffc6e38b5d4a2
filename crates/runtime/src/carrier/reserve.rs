//! Carriers in reserve: those beyond the number that is needed now.
//!
//! Where fibers keep their carriers, by computing, spinning or waiting in ways that are not seen, the
//! monitor has others run what waits behind them: carriers from the reserve, or new ones. A carrier that
//! finds nothing while there are more than [wanted](crate::carrier::carrier::Shared::wanted) retires into
//! the reserve, and its thread waits there until it is needed or the runtime ends.
//!
//! In reserve a carrier runs no fibers and has no stacks at hand. What the kernel has done of the
//! operations that fibers began there, it hands on to the others. Its timers are looked after by all.

use std::ptr;
use std::sync::atomic::Ordering;

use crate::carrier::carrier::{CARRIER, Carrier};

impl Carrier {
    /// Goes into reserve, if there are more carriers than wanted.
    pub(crate) fn retire(&self) -> bool {
        let runtime = self.runtime();
        if runtime.sleepers.active() <= runtime.wanted() {
            return false;
        }
        // What is made ready from here on, be it by a signal's handler, is for the others.
        CARRIER.set(ptr::null());
        let more = || runtime.has_submissions();
        let (retired, sleeper) = if self.is_empty() {
            runtime.sleepers.retire(self.index, runtime.wanted(), more)
        } else {
            (false, None)
        };
        runtime.wake(sleeper);
        if !retired {
            CARRIER.set(self);
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
        let recalled = loop {
            // SAFETY: this is the carrier's own context.
            unsafe { self.poll() };
            self.hear_calls();
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
        };
        CARRIER.set(self);
        recalled
    }

    /// The carrier's thread is about to end, with its runtime.
    pub(crate) fn leave(&self) {
        self.with_local(|local| {
            local.headers.clear();
            local.stacks.clear();
        });
        CARRIER.set(ptr::null());
        self.thread.store(0, Ordering::Relaxed);
    }
}
