//! A lock biased to one owner, which pays two plain stores and a load for it.
//!
//! Each carrier owns its run queue and uses it at every switch; others come only to steal. So the
//! owner should not pay for a locked instruction (a third of a switch without thread-local storage:
//! `cargo run --release -p carefree-context --example switch_costs`). This is Dekker's mutual
//! exclusion with the fence between each side's store and load split unevenly ([`light`]/[`heavy`]).
//!
//! # Proof
//!
//! Owner: `owner = true; light; if !thief {critical}; owner = false (release)`. (`enter`, `leave`)
//! Thief: `thief: false → true (acquire); heavy; if !owner (acquire) {critical}; thief = false
//! (release)`.
//!
//! *Exclusion.* Suppose owner and thief are both in their critical sections. The owner read
//! `thief == false` after its fence and the thief read `owner == false` after its own. A light and
//! a heavy fence order as two `SeqCst` fences do, so one of the two must have seen the other's
//! store; if it read `false` all the same, that was the value of a *later* store by the other, made
//! when it left. Then their sections are not at the same time.
//!
//! *Order.* A side that enters after the other has left has read that other's `false` with acquire (the
//! owner in `enter_slow`, or in the fast path's load), so sees all of its writes. Thieves exclude
//! each other by the compare-and-swap on `thief`.
//!
//! *Progress.* The owner steps back (`owner = false`) while it waits, so the two never wait for
//! each other. A thief gives up after some tries; the owner waits for as long as a thief takes to
//! move half a queue.

use crate::protocol::sync::{AtomicBool, Ordering, heavy, light};

#[derive(Debug)]
pub(crate) struct Bias {
    owner: AtomicBool,
    thief: AtomicBool,
}

/// How often a thief looks whether the owner has left; its sections take a few nanoseconds.
#[cfg(not(loom))]
const PATIENCE: u32 = 64;
#[cfg(loom)]
const PATIENCE: u32 = 1;

impl Bias {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Bias { owner: AtomicBool::new(false), thief: AtomicBool::new(false) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Bias { owner: AtomicBool::new(false), thief: AtomicBool::new(false) }
    }

    /// Enters as the owner; [`leave`](Self::leave) ends it.
    ///
    /// # Safety
    /// Only one thread at a time acts as the owner, and it is not inside already.
    #[inline(always)]
    pub(crate) unsafe fn enter(&self) {
        self.owner.store(true, Ordering::Relaxed);
        light();
        if self.thief.load(Ordering::Acquire) {
            self.enter_slow();
        }
    }

    /// Ends what [`enter`](Self::enter) began.
    ///
    /// # Safety
    /// The caller acts as the owner and is inside.
    #[inline(always)]
    pub(crate) unsafe fn leave(&self) {
        self.owner.store(false, Ordering::Release);
    }

    #[cold]
    fn enter_slow(&self) {
        loop {
            self.owner.store(false, Ordering::Release);
            while self.thief.load(Ordering::Acquire) {
                relax();
            }
            self.owner.store(true, Ordering::Relaxed);
            light();
            if !self.thief.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Runs `critical` as a thief, unless the owner or another thief keeps being inside.
    pub(crate) fn steal<R>(&self, critical: impl FnOnce() -> R) -> Option<R> {
        self.thief.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        heavy();
        let mut tries = 0;
        let entered = loop {
            if !self.owner.load(Ordering::Acquire) {
                break true;
            }
            tries += 1;
            if tries == PATIENCE {
                break false;
            }
            std::hint::spin_loop();
        };
        let result = entered.then(critical);
        self.thief.store(false, Ordering::Release);
        result
    }
}

fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    {
        // The thief may have lost its processor inside; it needs ours to get on. Not by libc's
        // call, which would let another fiber run here: the owner is about to touch its queue.
        // SAFETY: takes nothing and touches nothing.
        let _ = unsafe { carefree_ground::kernel::call(libc::SYS_sched_yield, [0; 6]) };
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::protocol::sync::UnsafeCell;
    use loom::sync::Arc;

    struct Shared {
        bias: Bias,
        value: UnsafeCell<usize>,
    }

    // SAFETY (of the model): what loom is asked to check.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    #[test]
    fn owner_and_thieves_exclude_each_other_and_see_each_others_writes() {
        loom::model(|| {
            let shared = Arc::new(Shared { bias: Bias::new(), value: UnsafeCell::new(0) });
            // SAFETY: called inside the bias only; that this is enough is what loom checks.
            let add = |s: &Shared| s.value.with_mut(|v| unsafe { *v += 1 });
            let thief = {
                let shared = shared.clone();
                loom::thread::spawn(move || shared.bias.steal(|| add(&shared)).is_some())
            };
            for _ in 0..2 {
                // SAFETY: this thread alone is the owner.
                unsafe { shared.bias.enter() };
                add(&shared);
                // SAFETY: entered just above.
                unsafe { shared.bias.leave() };
            }
            let stolen = thief.join().unwrap() as usize;
            // SAFETY: the thief has ended, and this thread is the owner.
            let value = shared.value.with_mut(|v| unsafe { *v });
            assert_eq!(value, 2 + stolen);
        });
    }
}
