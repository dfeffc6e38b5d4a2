//! `sem_*`: see [`crate::locks::object`].
//!
//! A signal handler may call `sem_post`, which looks for waiting fibers without a lock. If there are any, it
//! must take one. So a handler must not wake a fiber if it has interrupted its thread in doing the same.

use std::ffi::c_int;

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;

use crate::call::answer::set_errno;
use crate::call::host;
use crate::call::user::User;
use crate::locks::kinds::kinds;
use crate::locks::object::{Broken, Unseen, Wait, wake_one};
use crate::time::deadline::{Clock, absolute_of, check_of};

type Semaphore = libc::sem_t;

interpose! { lean
    /// `sem_wait(3)`.
    safe fn sem_wait(semaphore: User<Semaphore>) -> c_int, linked "__new_sem_wait" {
        take(semaphore, || Ok(NEVER))
    }
}

interpose! { lean
    /// `sem_timedwait(3)`.
    safe fn sem_timedwait(semaphore: User<Semaphore>, time: User<libc::timespec>) -> c_int,
        linked "___sem_timedwait"
    {
        take_until(semaphore, time, Ok(Clock::Realtime))
    }
}

interpose! { lean
    /// `sem_clockwait(3)`.
    safe fn sem_clockwait(
        semaphore: User<Semaphore>,
        clock: libc::clockid_t,
        time: User<libc::timespec>,
    ) -> c_int, linked "___sem_clockwait" {
        take_until(semaphore, time, Clock::from_id(clock))
    }
}

interpose! { lean anywhere
    /// `sem_post(3)`.
    safe fn sem_post(semaphore: User<Semaphore>) -> c_int, linked "__new_sem_post" {
        let result = original(semaphore);
        wake_one(semaphore.address());
        result
    }
}

fn take_until(
    semaphore: User<Semaphore>,
    time: User<libc::timespec>,
    clock: Result<Clock, c_int>,
) -> c_int {
    // As libc: also where it need not wait.
    let checked = clock.and_then(|clock| check_of(time).map(|()| clock));
    match checked {
        Ok(clock) => take(semaphore, || absolute_of(time, clock)),
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

fn take(semaphore: User<Semaphore>, deadline: impl FnOnce() -> Result<u64, c_int>) -> c_int {
    host::begin();
    // SAFETY: a semaphore that the program has given and libc has set up.
    let attempt = || unsafe { libc::sem_trywait(semaphore.pointer()) == 0 };
    // What was sent before the semaphore was released is handled before the call returns.
    let taken = || {
        host::again_steady(&());
        0
    };
    if attempt() {
        return taken();
    }
    let deadline = match deadline() {
        Ok(deadline) => deadline,
        Err(errno) => {
            set_errno(errno);
            return -1;
        }
    };
    let shared = kinds().semaphore_shared.is_set(semaphore, true);
    let unseen = Unseen::if_shared(shared);
    let key = semaphore.address();
    let wait = Wait { key, tag: 0, reason: Reason::PosixSemaphore, deadline, unseen };
    loop {
        let errno = match wait.until_interrupted(|| attempt().then_some(())) {
            Ok(()) => return taken(),
            Err(Broken::Late) => libc::ETIMEDOUT,
            Err(Broken::Interrupted) => libc::EINTR,
        };
        set_errno(errno);
        // (The kernel begins no wait on a futex again that has a time limit.)
        if errno != libc::EINTR || !host::again(&-1) || deadline != NEVER {
            return -1;
        }
    }
}
