//! Waiting for words whose waiters another process wakes.
//!
//! Such a process wakes in the kernel, which does not know fibers. So where a wait for a shared word has ended without a
//! wake-up of this process's, later waits for it are operations of the ring's, which the kernel ends. They take longer
//! than waits in the lot; so if a thread of this process does wake such a wait, the word is taken for one of this
//! process's again.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use carefree_runtime::Reason;
use carefree_runtime::operation::{Ended, Wait};

use crate::call::answer::interruption;
use crate::call::fiber::guarded;
use crate::call::host;
use crate::call::user::User;
use crate::wait::user_op::UserOp;

/// Words that other processes wake waiters of, each in the place that its address has. Where two have the same, the
/// later one is known.
static PLACES: [Place; COUNT] = [const { Place::new() }; COUNT];
const COUNT: usize = 64;

struct Place {
    address: AtomicUsize,
    /// Fibers in the kernel's queues for words of this place.
    waiting: AtomicU32,
}

impl Place {
    const fn new() -> Place {
        Place { address: AtomicUsize::new(0), waiting: AtomicU32::new(0) }
    }
}

fn place(address: usize) -> &'static Place {
    &PLACES[address / size_of::<u32>() % COUNT]
}

/// A wait for this word has lasted long, and no fiber or thread of this process has woken it.
pub(super) fn note(address: usize) {
    place(address).address.store(address, Ordering::Relaxed);
}

/// A thread of this process has woken waiters of this word in the kernel.
pub(super) fn woken_from_here(address: usize) {
    let place = place(address);
    if place.waiting.load(Ordering::Relaxed) > 0 {
        let _ = place.address.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Has the calling fiber wait in the kernel, if other processes wake waiters of this word. After a signal, `goes_on` says
/// whether the wait is begun again. `None` if the fiber is to wait in the lot.
pub(super) fn wait(
    word: User<u32>,
    (value, mask): (u32, u32),
    deadline: u64,
    reason: Reason,
    goes_on: impl Fn() -> bool,
) -> Option<Result<usize, c_int>> {
    let place = place(word.address());
    let op = UserOp::futex_wait(word, value, mask);
    let how = Wait { deadline, ..Wait::until_done(reason) };
    // (Elsewhere than in a hosted thread, nothing cuts a wait for a word short; what cuts an operation would.)
    while place.address.load(Ordering::Relaxed) == word.address() && host::is_interruptible() {
        place.waiting.fetch_add(1, Ordering::Relaxed);
        let ended = guarded(|| op.perform(&how));
        place.waiting.fetch_sub(1, Ordering::Relaxed);
        return Some(match ended {
            Ended::Done(result) if result == -libc::EINTR => continue,
            Ended::Done(result) => usize::try_from(result).map_err(|_| -result),
            Ended::Late => Err(libc::ETIMEDOUT),
            Ended::Interrupted(_) if goes_on() => continue,
            Ended::Interrupted(why) => Err(interruption(why)),
            Ended::Pointless | Ended::Unsupported => return None,
        });
    }
    None
}
