//! What the pthread locks have in common.
//!
//! All of them are libc's own, in libc's own memory, and are taken and given back by libc's
//! functions: plain threads wait for them in the kernel as ever, and an object set up by a static
//! initializer needs nothing of us. A fiber uses the *trying* function of each, which does not
//! wait, and where that says "busy" it parks; its key is the object's address. Whoever gives an
//! object back, fiber or thread, wakes fibers that wait for it.
//!
//! # No lost wake-up
//!
//! The fiber tries once more as the lot's `validate`, under the lock of its key's bucket. Who gives
//! the object back does so first, by an atomic read-modify-write within libc, and then looks whether
//! anybody waits. That is the protocol of [`carefree_runtime::lot`], with the try as the look at the
//! condition, provided there is a full fence between the giving back and the look: see [`wake`].
//!
//! One is woken for each giving back, as with a mutex of libc's own. He tries again; should somebody
//! else have been faster, that one's giving back wakes the next. A wake-up is never spent on a fiber
//! whose time is up: see the lot.
//!
//! # What is given back unseen
//!
//! Objects shared with other processes can be given back by who cannot see a fiber; and some are
//! given back within libc: see [`Unseen`]. A wait for these ends by itself now and then, and tries
//! again.

use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::wait::{Until, park_tagged};
use carefree_runtime::{Outcome, Reason, lot};

use crate::call::fiber::guarded;

/// The longest wait for what may happen unseen, in nanoseconds; and the first, which is shorter.
pub(crate) const RECHECK: u64 = 2_000_000;
const FIRST_RECHECK: u64 = 20_000;

/// A wait of a fiber for an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The object's address.
    pub(crate) key: usize,
    pub(crate) tag: u32,
    pub(crate) reason: Reason,
    pub(crate) deadline: u64,
    pub(crate) unseen: Unseen,
}

/// Whether an object can be given back by somebody who does not wake fibers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unseen {
    Never,
    /// Another process can, or the kernel, or libc's own code at any time.
    Always,
    /// libc can, while this says so. It is asked under the lot's lock, when the try has failed. Who
    /// lets it say so does that before the object is given back, then makes a full fence, and then
    /// wakes a fiber if one waits: so a fiber is awake to ask.
    While(fn(usize) -> bool),
}

impl Unseen {
    /// For an object that can be shared with other processes.
    pub(crate) fn if_shared(shared: bool) -> Unseen {
        if shared { Unseen::Always } else { Unseen::Never }
    }
}

impl Wait {
    /// Makes `attempt` until it has a result, parked in between. `None` when the deadline passed.
    ///
    /// `attempt` must not park, panic or unpark.
    pub(crate) fn until<R>(&self, attempt: impl FnMut() -> Option<R>) -> Option<R> {
        guarded(|| self.wait(attempt))
    }

    fn wait<R>(&self, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        let mut span = FIRST_RECHECK;
        loop {
            let unseen = match self.unseen {
                Unseen::Never => false,
                Unseen::Always => true,
                Unseen::While(unseen) => unseen(self.key),
            };
            let look_again = if unseen { clock::now() + span } else { NEVER };
            let mut result = None;
            let is_busy = || {
                result = attempt();
                // A wait without an end is for what is seen only.
                result.is_none()
                    && (unseen || !matches!(self.unseen, Unseen::While(now) if now(self.key)))
            };
            let until = Until { deadline: self.deadline.min(look_again), cancellable: false };
            let outcome = park_tagged(self.key, self.tag, is_busy, self.reason, until);
            if result.is_some() {
                return result;
            }
            if outcome == Outcome::TimedOut {
                if self.deadline <= look_again {
                    return None;
                }
                span = (2 * span).min(RECHECK);
            }
        }
    }
}

/// Wakes one fiber that waits for the object at `key`, which libc has just been asked to give back.
#[inline(always)]
pub(crate) fn wake_one(key: usize) {
    if is_waited_after_release(key) {
        wake(key, 1);
    }
}

/// Whether a fiber may wait for the object at `key`, which libc has just given back.
///
/// On x86-64 no fence is needed for that: libc gives an object back by a locked instruction (an
/// exchange, a subtraction), after which no load is done early. (A process with one thread is
/// spared it; but it has no carriers.) Elsewhere a release need not order what follows.
#[inline(always)]
pub(crate) fn is_waited_after_release(key: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(not(target_arch = "x86_64"))]
    lot::fence_before_look();
    lot::is_waited(key)
}

#[cold]
#[inline(never)]
fn wake(key: usize, count: usize) {
    lot::unpark(key, count);
}
