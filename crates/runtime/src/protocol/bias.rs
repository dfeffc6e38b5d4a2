//! A lock biased to one owner, which takes and leaves it by two plain stores and a load.
//!
//! Each carrier owns its run queue and uses it at every switch; other carriers (*thieves*) come only to
//! steal. So the owner should not pay for a locked instruction, which costs a third of a switch without
//! thread-local storage (`cargo run --release -p carefree-context --example switch_costs`). This is
//! Dekker's mutual exclusion: each side says that it comes, then looks for the other. The fence between
//! a side's store and its load is cheap for the owner and dear for thieves ([`light`], [`heavy`]).
//!
//! # Proof
//!
//! Owner: `owner = true; light; if !thief {critical}; owner = false (release)`. (`enter`, `leave`)
//! Thief: `thief: false → true (acquire); heavy; if !owner (acquire) {critical}; thief = false
//! (release)`.
//!
//! *Exclusion.* Suppose that owner and thief are both in their critical sections. The owner has read
//! `thief == false` after its fence, and the thief `owner == false` after its own. A light and a heavy
//! fence order as two `SeqCst` fences do, so one of the two must have seen the other's `true`, or a later
//! value. The value was `false`, so it was a later one, which the other has stored when it left: their
//! sections do not overlap.
//!
//! *Order.* A side that enters after the other has left has read, with acquire, the `false` that the
//! other stored with release, so it sees all of the other's writes. Thieves exclude each other by the
//! compare-and-swap on `thief`.
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

/// How often a thief looks whether the owner has left, whose sections take a few nanoseconds.
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

    /// Runs `critical` as a thief; `None` if another thief is inside, or the owner stays inside for
    /// [`PATIENCE`] looks.
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
        // The thief may have lost its processor inside, and needs this one to leave. Not by libc's
        // function, for which Carefree has its own: that would let another fiber run here, amid the
        // owner's entry.
        // SAFETY: the call takes no arguments and changes no memory.
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

    // SAFETY: loom checks the accesses to the cell.
    unsafe impl Sync for Shared {}
    // SAFETY: nothing in it belongs to one thread.
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
