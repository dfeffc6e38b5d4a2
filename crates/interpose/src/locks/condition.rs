//! `pthread_cond_*`.
//!
//! A thread waits in libc's condition variable, a fiber in the runtime's lot. A signal wakes a fiber
//! if there is one, and else is passed on; a broadcast is for both. So that threads are not kept
//! waiting for ever by fibers that come again and again, every [`TURNS`]th signal goes to both: to
//! wake one too many is allowed.
//!
//! # No lost wake-up
//!
//! A fiber enters the lot *before* it unlocks the mutex. Who signals it must come after that unlock
//! by the rules of condition variables (who comes before need not be noticed): it has locked the
//! mutex since, or has otherwise learned of the unlock. So it sees that the fiber is in the lot, and
//! needs no fence for it.
//!
//! # Mutexes given back unseen
//!
//! A thread that waits gives its mutex back within libc, where nobody wakes a fiber that waits for
//! the mutex. So before it goes there it says so ([`unseen_unlock`](crate::locks::unseen_unlock)), and wakes such a fiber, which then
//! looks again every now and then instead of waiting for a wake-up: see [`Unseen`](crate::locks::object).

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

/// How often a signal goes to threads too.
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
        // First: the condition may be destroyed by those woken, as soon as all are.
        // SAFETY: the caller's promise.
        let result = unsafe { original(condition) };
        let key = condition as usize;
        if lot::is_waited(key) {
            lot::unpark(key, usize::MAX);
        }
        result
    }
}

/// A fiber waits.
///
/// # Safety
/// A condition variable and the mutex that belongs to it.
unsafe fn wait(condition: *mut Condition, mutex: *mut Mutex, deadline: u64) -> c_int {
    // SAFETY: the caller's promise.
    let shared = unsafe { kinds().condition_shared.is_set(condition, true) };
    // Who is in another process cannot wake a fiber: it wakes for nothing now and then.
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
