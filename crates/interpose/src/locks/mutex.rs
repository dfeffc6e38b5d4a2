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

use crate::call::user::User;
use crate::locks::kinds::kinds;
use crate::locks::object::{Unseen, Wait, wake_one};
use crate::locks::unseen_unlock;
use crate::time::deadline::{Clock, absolute_of};

type Mutex = libc::pthread_mutex_t;

interpose! { lean
    /// `pthread_mutex_lock(3)`.
    safe fn pthread_mutex_lock(mutex: User<Mutex>) -> c_int, linked "__pthread_mutex_lock" {
        lock(mutex, || Ok(NEVER))
    }
}

interpose! { lean
    /// `pthread_mutex_timedlock(3)`.
    safe fn pthread_mutex_timedlock(mutex: User<Mutex>, time: User<libc::timespec>) -> c_int,
        linked "__pthread_mutex_timedlock"
    {
        lock(mutex, || absolute_of(time, Clock::Realtime))
    }
}

interpose! { lean
    /// `pthread_mutex_clocklock(3)`.
    safe fn pthread_mutex_clocklock(
        mutex: User<Mutex>,
        clock: libc::clockid_t,
        time: User<libc::timespec>,
    ) -> c_int, linked "__pthread_mutex_clocklock" {
        lock(mutex, || absolute_of(time, Clock::from_id(clock)?))
    }
}

interpose! { lean anywhere
    /// `pthread_mutex_unlock(3)`.
    safe fn pthread_mutex_unlock(mutex: User<Mutex>) -> c_int, linked "__pthread_mutex_unlock" {
        let result = original(mutex);
        // Uses only the address: the next owner may destroy the mutex.
        wake_one(mutex.address());
        result
    }
}

/// Locks a mutex for the calling fiber. `deadline` is computed only if the fiber must wait.
pub(crate) fn lock(mutex: User<Mutex>, deadline: impl FnOnce() -> Result<u64, c_int>) -> c_int {
    // SAFETY: a mutex that the program has given and libc has set up.
    let result = unsafe { libc::pthread_mutex_trylock(mutex.pointer()) };
    if result != libc::EBUSY {
        return result;
    }
    wait(mutex, deadline)
}

#[cold]
#[inline(never)]
fn wait(mutex: User<Mutex>, deadline: impl FnOnce() -> Result<u64, c_int>) -> c_int {
    let kinds = kinds();
    let (shared, robust, checked, inherits) = (
        kinds.mutex_shared.is_set(mutex, true),
        kinds.mutex_robust.is_set(mutex, true),
        kinds.mutex_checked.is_set(mutex, false),
        kinds.mutex_inherits.is_set(mutex, true),
    );
    if checked && !inherits {
        // `trylock` does not report that the caller holds the mutex already. `timedlock` does, and with a
        // time in the past it does not wait.
        let mut long_ago = libc::timespec { tv_sec: -1, tv_nsec: 0 };
        match pthread_mutex_timedlock::original(mutex, User::lend(&mut long_ago)) {
            libc::ETIMEDOUT | libc::EINVAL => {}
            result => return result,
        }
    }
    let deadline = match deadline() {
        Ok(deadline) => deadline,
        Err(errno) => return errno,
    };
    let wait = Wait {
        key: mutex.address(),
        tag: 0,
        reason: Reason::Mutex,
        deadline,
        unseen: match shared || robust {
            true => Unseen::Always,
            false => Unseen::While(unseen_unlock::gives_back),
        },
    };
    let taken = wait.until(|| {
        // SAFETY: a mutex that the program has given and libc has set up; its caller waits here.
        Some(unsafe { libc::pthread_mutex_trylock(mutex.pointer()) })
            .filter(|result| *result != libc::EBUSY)
    });
    taken.unwrap_or(libc::ETIMEDOUT)
}
