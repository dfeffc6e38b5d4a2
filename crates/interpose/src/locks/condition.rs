//! `pthread_cond_*`.
//!
//! A thread waits in libc's condition variable, a fiber in the runtime's lot. A signal wakes a fiber if one
//! waits, and otherwise is passed on; a broadcast goes to both. Every [`TURNS`]th signal goes to both as well,
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
use crate::locks::kinds::kinds;
use crate::locks::mutex;
use crate::locks::object::RECHECK;
use crate::locks::unseen_unlock::giving_back;
use crate::time::deadline::{Clock, absolute};

type Condition = libc::pthread_cond_t;
type Mutex = libc::pthread_mutex_t;

/// One in so many signals goes to threads too.
const TURNS: u32 = 128;

interpose! { lean anywhere
    /// `pthread_cond_wait(3)`.
    fn pthread_cond_wait(condition: *mut Condition, mutex: *mut Mutex) -> c_int,
        version "GLIBC_2.3.2", linked "__pthread_cond_wait" {
        // SAFETY: the caller's promise.
        unsafe {
            if !fiber::on_fiber() {
                return giving_back(mutex, || original(condition, mutex));
            }
            wait(condition, mutex, NEVER)
        }
    }
}

interpose! { lean anywhere
    /// `pthread_cond_timedwait(3)`.
    fn pthread_cond_timedwait(
        condition: *mut Condition,
        mutex: *mut Mutex,
        time: *const libc::timespec,
    ) -> c_int, version "GLIBC_2.3.2", linked "__pthread_cond_timedwait" {
        if !fiber::on_fiber() {
            // SAFETY: the caller's promise.
            return giving_back(mutex, || unsafe { original(condition, mutex, time) });
        }
        // SAFETY: a condition variable, says the caller.
        let monotonic = unsafe { kinds().condition_monotonic.is_set(condition, false) };
        let clock = if monotonic { Clock::Monotonic } else { Clock::Realtime };
        // SAFETY: the caller's promise.
        match absolute(unsafe { &*time }, clock) {
            // SAFETY: the caller's promise.
            Ok(deadline) => unsafe { wait(condition, mutex, deadline) },
            Err(errno) => errno,
        }
    }
}

interpose! { lean anywhere
    /// `pthread_cond_clockwait(3)`.
    fn pthread_cond_clockwait(
        condition: *mut Condition,
        mutex: *mut Mutex,
        clock: libc::clockid_t,
        time: *const libc::timespec,
    ) -> c_int, linked "__pthread_cond_clockwait" {
        if !fiber::on_fiber() {
            // SAFETY: the caller's promise.
            return giving_back(mutex, || unsafe { original(condition, mutex, clock, time) });
        }
        // SAFETY: the caller's promise.
        match Clock::from_id(clock).and_then(|clock| absolute(unsafe { &*time }, clock)) {
            // SAFETY: the caller's promise.
            Ok(deadline) => unsafe { wait(condition, mutex, deadline) },
            Err(errno) => errno,
        }
    }
}

interpose! { lean anywhere
    /// `pthread_cond_signal(3)`.
    fn pthread_cond_signal(condition: *mut Condition) -> c_int, version "GLIBC_2.3.2",
        linked "__pthread_cond_signal"
    {
        let key = condition as usize;
        if lot::is_waited(key) {
            static TURN: AtomicU32 = AtomicU32::new(0);
            let turn = TURN.load(Ordering::Relaxed).wrapping_add(1);
            TURN.store(turn, Ordering::Relaxed);
            if lot::unpark(key, 1) > 0 && turn % TURNS != 0 {
                return 0;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { original(condition) }
    }
}

interpose! { lean anywhere
    /// `pthread_cond_broadcast(3)`.
    fn pthread_cond_broadcast(condition: *mut Condition) -> c_int, version "GLIBC_2.3.2",
        linked "__pthread_cond_broadcast"
    {
        // First libc's: as soon as all waiters are woken, one of them may destroy the condition.
        // SAFETY: the caller's promise.
        let result = unsafe { original(condition) };
        let key = condition as usize;
        if lot::is_waited(key) {
            lot::unpark(key, usize::MAX);
        }
        result
    }
}

/// Parks the calling fiber until it is signalled.
///
/// # Safety
/// A condition variable and the mutex that belongs to it.
unsafe fn wait(condition: *mut Condition, mutex: *mut Mutex, deadline: u64) -> c_int {
    // SAFETY: the caller's promise.
    let shared = unsafe { kinds().condition_shared.is_set(condition, true) };
    // Another process cannot wake a fiber, so the fiber wakes spuriously now and then.
    let look_again = if shared { clock::now() + RECHECK } else { NEVER };
    let until = Until { deadline: deadline.min(look_again), cancellable: false };
    let mut unlocked = 0;
    let unlock = || {
        // SAFETY: the caller's promise.
        unlocked = unsafe { mutex::pthread_mutex_unlock(mutex) };
        unlocked == 0
    };
    let outcome =
        fiber::guarded(|| park_after(condition as usize, unlock, Reason::Condition, until));
    if unlocked != 0 {
        return unlocked;
    }
    // SAFETY: the caller's promise.
    match unsafe { mutex::lock(mutex, || Ok(NEVER)) } {
        0 if outcome == Outcome::TimedOut && deadline <= look_again => libc::ETIMEDOUT,
        result => result,
    }
}
