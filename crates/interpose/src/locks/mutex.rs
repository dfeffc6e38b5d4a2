//! `pthread_mutex_*`: see [`crate::locks::object`].
//!
//! A fiber locks a mutex under its own thread number, so recursive, error-checking and robust mutexes behave as
//! on threads. (Fibers that share their carrier's thread-local storage share its number, and a recursive mutex
//! cannot tell them apart.) A mutex with priority inheritance works among fibers and among threads; but a
//! thread that waits for one that a fiber holds waits for ever, because the kernel knows no thread of the
//! fiber's number.

use std::ffi::c_int;

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;

use crate::locks::kinds::kinds;
use crate::locks::object::{Unseen, Wait, wake_one};
use crate::locks::unseen_unlock;
use crate::time::deadline::{Clock, absolute};

type Mutex = libc::pthread_mutex_t;

interpose! { lean
    /// `pthread_mutex_lock(3)`.
    fn pthread_mutex_lock(mutex: *mut Mutex) -> c_int, linked "__pthread_mutex_lock" {
        // SAFETY: the caller's promise.
        unsafe { lock(mutex, || Ok(NEVER)) }
    }
}

interpose! { lean
    /// `pthread_mutex_timedlock(3)`.
    fn pthread_mutex_timedlock(mutex: *mut Mutex, time: *const libc::timespec) -> c_int,
        linked "__pthread_mutex_timedlock"
    {
        // SAFETY: the caller's promise.
        unsafe { lock(mutex, || absolute(&*time, Clock::Realtime)) }
    }
}

interpose! { lean
    /// `pthread_mutex_clocklock(3)`.
    fn pthread_mutex_clocklock(
        mutex: *mut Mutex,
        clock: libc::clockid_t,
        time: *const libc::timespec,
    ) -> c_int, linked "__pthread_mutex_clocklock" {
        // SAFETY: the caller's promise.
        unsafe { lock(mutex, || absolute(&*time, Clock::from_id(clock)?)) }
    }
}

interpose! { lean anywhere
    /// `pthread_mutex_unlock(3)`.
    fn pthread_mutex_unlock(mutex: *mut Mutex) -> c_int, linked "__pthread_mutex_unlock" {
        // SAFETY: the caller's promise.
        let result = unsafe { original(mutex) };
        // Uses only the address: the next owner may destroy the mutex.
        wake_one(mutex as usize);
        result
    }
}

/// Locks a mutex for the calling fiber. `deadline` is computed only if the fiber must wait.
///
/// # Safety
/// It is a mutex.
pub(crate) unsafe fn lock(
    mutex: *mut Mutex,
    deadline: impl FnOnce() -> Result<u64, c_int>,
) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::pthread_mutex_trylock(mutex) };
    if result != libc::EBUSY {
        return result;
    }
    // SAFETY: the caller's promise.
    unsafe { wait(mutex, deadline) }
}

#[cold]
#[inline(never)]
unsafe fn wait(mutex: *mut Mutex, deadline: impl FnOnce() -> Result<u64, c_int>) -> c_int {
    let kinds = kinds();
    // SAFETY: a mutex, says the caller.
    let (shared, robust, checked, inherits) = unsafe {
        (
            kinds.mutex_shared.is_set(mutex, true),
            kinds.mutex_robust.is_set(mutex, true),
            kinds.mutex_checked.is_set(mutex, false),
            kinds.mutex_inherits.is_set(mutex, true),
        )
    };
    if checked && !inherits {
        // `trylock` does not report that the caller holds the mutex already. `timedlock` does, and with a
        // time in the past it does not wait.
        let long_ago = libc::timespec { tv_sec: -1, tv_nsec: 0 };
        // SAFETY: as above.
        match unsafe { pthread_mutex_timedlock::original(mutex, &raw const long_ago) } {
            libc::ETIMEDOUT | libc::EINVAL => {}
            result => return result,
        }
    }
    let deadline = match deadline() {
        Ok(deadline) => deadline,
        Err(errno) => return errno,
    };
    let wait = Wait {
        key: mutex as usize,
        tag: 0,
        reason: Reason::Mutex,
        deadline,
        unseen: match shared || robust {
            true => Unseen::Always,
            false => Unseen::While(unseen_unlock::gives_back),
        },
    };
    let taken = wait.until(|| {
        // SAFETY: as above.
        Some(unsafe { libc::pthread_mutex_trylock(mutex) }).filter(|result| *result != libc::EBUSY)
    });
    taken.unwrap_or(libc::ETIMEDOUT)
}
