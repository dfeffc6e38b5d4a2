//! What the pthread locks have in common.
//!
//! They are libc's own, in libc's own memory, and libc's functions lock and unlock them: plain threads wait for
//! them in the kernel as ever, and an object with a static initializer needs nothing from us. A fiber uses the
//! *trying* function of each, which does not wait, and parks by the object's address if that reports "busy".
//! Fibers and threads that unlock an object wake fibers that wait for it.
//!
//! # No lost wake-up
//!
//! The fiber tries once more as the lot's `validate`, under the lock of its key's bucket. The unlocking thread
//! first unlocks, by an atomic read-modify-write within libc, and then looks for waiters. That is the protocol
//! of [`carefree_runtime::lot`], with the try as the look at the condition, provided there is a full fence
//! between the unlock and the look: see [`is_waited_after_release`].
//!
//! Each unlock wakes one fiber, as a mutex of libc's does. That fiber tries again; if another was faster, the
//! other's unlock wakes the next. No wake-up is spent on a fiber whose time is up: see the lot.
//!
//! # Unlocks that are not seen
//!
//! Another process can unlock a shared object, and cannot see fibers; and libc unlocks some objects itself: see
//! [`Unseen`]. A wait for such an object ends by itself now and then, and tries again.

use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::wait::{Until, park_tagged};
use carefree_runtime::{Outcome, Reason, lot};

use crate::call::fiber::guarded;
use crate::call::host;
use crate::wait::starvation::{Starving, let_woken_run};

/// The longest wait for an unlock that may not be seen, in nanoseconds; and the first, which is shorter.
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

/// Whether an object can be unlocked without fibers being woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unseen {
    Never,
    /// By another process, by the kernel, or by libc's own code at any time.
    Always,
    /// By libc, while this function says so. It is called under the lot's lock, when the try has failed. A
    /// thread that makes it say so does that before the unlock, then executes a full fence, and then wakes a
    /// fiber if one waits: so a fiber is awake to call it.
    While(fn(usize) -> bool),
}

impl Unseen {
    /// For an object that can be shared with other processes.
    pub(crate) fn if_shared(shared: bool) -> Unseen {
        if shared { Unseen::Always } else { Unseen::Never }
    }
}

impl Wait {
    /// Calls `attempt` until it has a result, and parks in between. `None` if the deadline passed. Signals are
    /// handled meanwhile.
    ///
    /// `attempt` must not park, panic or unpark.
    pub(crate) fn until<R>(&self, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        guarded(|| {
            loop {
                match self.wait(&mut attempt, host::is_interruptible()) {
                    Ok(result) => return Some(result),
                    Err(Broken::Late) => return None,
                    Err(Broken::Interrupted) => host::handle_signals(),
                }
            }
        })
    }

    /// [`until`](Self::until) for a call at which a hosted thread can be cancelled, and which signals end.
    pub(crate) fn until_interrupted<R>(
        &self,
        mut attempt: impl FnMut() -> Option<R>,
    ) -> Result<R, Broken> {
        guarded(|| self.wait(&mut attempt, host::is_hosted()))
    }

    fn wait<R>(
        &self,
        attempt: &mut impl FnMut() -> Option<R>,
        cancellable: bool,
    ) -> Result<R, Broken> {
        let mut span = FIRST_RECHECK;
        let mut losses = 0;
        loop {
            let _starving = Starving::after(self.key, losses);
            let unseen = match self.unseen {
                Unseen::Never => false,
                Unseen::Always => true,
                Unseen::While(unseen) => unseen(self.key),
            };
            let look_again = if unseen { clock::now() + span } else { NEVER };
            let mut result = None;
            let is_busy = || {
                result = attempt();
                // A wait without a deadline is only for unlocks that are seen.
                result.is_none()
                    && (unseen || !matches!(self.unseen, Unseen::While(now) if now(self.key)))
            };
            let until = Until { deadline: self.deadline.min(look_again), cancellable };
            let outcome = park_tagged(self.key, self.tag, is_busy, self.reason, until);
            if let Some(result) = result {
                return Ok(result);
            }
            match outcome {
                Outcome::Cancelled => return Err(Broken::Interrupted),
                Outcome::TimedOut if self.deadline <= look_again => return Err(Broken::Late),
                Outcome::TimedOut => span = (2 * span).min(RECHECK),
                // Woken again and again, in vain, it would wait beyond its deadline: no timer finds it parked.
                // (What it was woken for may be there, and no other is woken for that: so it looks once more.)
                _ if self.deadline != NEVER && clock::now() >= self.deadline => {
                    return attempt().ok_or(Broken::Late);
                }
                _ => losses += 1,
            }
        }
    }
}

/// Why a wait for an object has ended without the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The deadline has passed.
    Late,
    /// A signal came for a hosted thread, or it was cancelled.
    Interrupted,
}

/// Wakes one fiber that waits for the object at `key`, which libc has just unlocked; yields to it where one starves.
#[inline(always)]
pub(crate) fn wake_one(key: usize) {
    if is_waited_after_release(key) {
        wake(key);
    }
}

/// [`wake_one`], but the caller goes on in any case.
#[inline(always)]
pub(crate) fn wake_one_and_go_on(key: usize) {
    if is_waited_after_release(key) {
        lot::unpark(key, 1);
    }
}

/// Whether a fiber may wait for the object at `key`, which libc has just unlocked.
///
/// On x86-64 that needs no fence: libc unlocks by a locked instruction (an exchange, a subtraction), and no
/// later load is executed before that. (In a process with one thread libc uses none; but that has no
/// carriers.) Elsewhere a release does not order later loads.
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
fn wake(key: usize) {
    if lot::unpark(key, 1) > 0 {
        let_woken_run(key);
    }
}
