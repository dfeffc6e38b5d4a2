//! `pthread_cond_*`.
//!
//! A thread waits in libc's condition variable, a fiber in the runtime's lot. (So does
//! a thread beside hosted ones, if its mutex inherits priorities: after the wait, libc would lock the mutex in the
//! kernel, which [`mutex`] avoids.) A signal wakes a fiber if one waits, and otherwise is passed on; a broadcast goes to both. Every [`TURNS`]th signal goes to both as well,
//! so that threads do not wait for ever while fibers come again and again: one wake-up too many is allowed.
//!
//! # No lost wake-up
//!
//! A fiber enters the lot *before* it unlocks the mutex. A signal that must wake it comes after that unlock,
//! by the rules of condition variables (an earlier one need not be noticed): the signalling thread has locked
//! the mutex since, or has learned of the unlock in another way. So it sees that the fiber is in the lot,
//! without a fence.
//!
//! # Mutexes unlocked unseen
//!
//! A thread that waits unlocks its mutex within libc, where no fiber that waits for the mutex is woken. So
//! before that it announces it ([`unseen_unlock`](crate::locks::unseen_unlock)) and wakes such a fiber, which
//! then looks again now and then instead of relying on a wake-up: see [`Unseen`](crate::locks::object).

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::wait::{Until, park_after};
use carefree_runtime::{Outcome, Reason, lot};

use crate::call::fiber;
use crate::call::host;
use crate::call::user::User;
use crate::locks::kinds::kinds;
use crate::locks::mutex;
use crate::locks::object::{RECHECK, wake_one_and_go_on};
use crate::locks::unseen_unlock::giving_back;
use crate::time::deadline::{Clock, absolute_of};

type Condition = libc::pthread_cond_t;
type Mutex = libc::pthread_mutex_t;

/// One in so many signals goes to threads too.
const TURNS: u32 = 128;

interpose! { lean anywhere
    /// `pthread_cond_wait(3)`.
    safe fn pthread_cond_wait(condition: User<Condition>, mutex: User<Mutex>) -> c_int,
        version "GLIBC_2.3.2", linked "__pthread_cond_wait" {
        if !mutex::waits_as_fibers_do(mutex) {
            return giving_back(mutex, || original(condition, mutex));
        }
        wait(condition, mutex, NEVER)
    }
}

interpose! { lean anywhere
    /// `pthread_cond_timedwait(3)`.
    safe fn pthread_cond_timedwait(
        condition: User<Condition>,
        mutex: User<Mutex>,
        time: User<libc::timespec>,
    ) -> c_int, version "GLIBC_2.3.2", linked "__pthread_cond_timedwait" {
        if !mutex::waits_as_fibers_do(mutex) {
            return giving_back(mutex, || original(condition, mutex, time));
        }
        let monotonic = kinds().condition_monotonic.is_set(condition, false);
        let clock = if monotonic { Clock::Monotonic } else { Clock::Realtime };
        match absolute_of(time, clock) {
            Ok(deadline) => wait(condition, mutex, deadline),
            Err(errno) => errno,
        }
    }
}

interpose! { lean anywhere
    /// `pthread_cond_clockwait(3)`.
    safe fn pthread_cond_clockwait(
        condition: User<Condition>,
        mutex: User<Mutex>,
        clock: libc::clockid_t,
        time: User<libc::timespec>,
    ) -> c_int, linked "__pthread_cond_clockwait" {
        if !mutex::waits_as_fibers_do(mutex) {
            return giving_back(mutex, || original(condition, mutex, clock, time));
        }
        match Clock::from_id(clock).and_then(|clock| absolute_of(time, clock)) {
            Ok(deadline) => wait(condition, mutex, deadline),
            Err(errno) => errno,
        }
    }
}

interpose! { lean anywhere
    /// `pthread_cond_signal(3)`.
    safe fn pthread_cond_signal(condition: User<Condition>) -> c_int, version "GLIBC_2.3.2",
        linked "__pthread_cond_signal"
    {
        let key = condition.address();
        if lot::is_waited(key) {
            static TURN: AtomicU32 = AtomicU32::new(0);
            let turn = TURN.load(Ordering::Relaxed).wrapping_add(1);
            TURN.store(turn, Ordering::Relaxed);
            if lot::unpark(key, 1) > 0 && turn % TURNS != 0 {
                return 0;
            }
        }
        original(condition)
    }
}

interpose! { lean anywhere
    /// `pthread_cond_broadcast(3)`.
    safe fn pthread_cond_broadcast(condition: User<Condition>) -> c_int, version "GLIBC_2.3.2",
        linked "__pthread_cond_broadcast"
    {
        // First libc's: as soon as all waiters are woken, one of them may destroy the condition.
        let result = original(condition);
        let key = condition.address();
        if lot::is_waited(key) {
            lot::unpark(key, usize::MAX);
        }
        result
    }
}

/// Parks the calling fiber until it is signalled.
fn wait(condition: User<Condition>, mutex: User<Mutex>, deadline: u64) -> c_int {
    let shared = kinds().condition_shared.is_set(condition, true);
    // Another process cannot wake a fiber, so the fiber wakes spuriously now and then.
    let look_again = if shared { clock::now() + RECHECK } else { NEVER };
    let cancellable = host::is_hosted();
    let until = Until { deadline: deadline.min(look_again), cancellable };
    let mut unlocked = 0;
    let outcome = fiber::guarded(|| {
        let then = || {
            unlocked = unlock(mutex);
            unlocked == 0
        };
        // SAFETY: `then` unlocks a mutex, wakes one that waits for it, and yields to none.
        unsafe { park_after(condition.address(), then, Reason::Condition, until) }
    });
    if unlocked != 0 {
        return unlocked;
    }
    match lock_again(mutex, outcome == Outcome::Unparked) {
        0 if outcome == Outcome::TimedOut && deadline <= look_again => libc::ETIMEDOUT,
        result => result,
    }
}

/// Unlocks the mutex of a wait, which has begun: so this yields to no fiber. (A function of its own, as the next: the
/// frame of a fiber that waits should fit on the page that its thread-local storage is on.)
#[inline(never)]
fn unlock(mutex: User<Mutex>) -> c_int {
    let result = mutex::pthread_mutex_unlock::original(mutex);
    wake_one_and_go_on(mutex.address());
    result
}

/// Locks the mutex of a wait that is over. A thread that was `woken` is not cancelled here, but at its next call that may
/// wait: the signal would be lost to those that wait on.
#[inline(never)]
fn lock_again(mutex: User<Mutex>, woken: bool) -> c_int {
    let locked = mutex::lock(mutex, || Ok(NEVER));
    // A signal's handler runs with the mutex locked, and so does what cancellation unwinds to. Otherwise an
    // interruption is a spurious wake-up.
    match woken {
        true => host::again_steady(&()),
        false => host::again(&()),
    };
    locked
}
