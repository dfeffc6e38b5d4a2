//! `sem_*`: see [`crate::locks::object`].
//!
//! A signal handler may call `sem_post`, which looks for waiting fibers without a lock. If there are any, it
//! must take one. So a handler must not wake a fiber if it has interrupted its thread in doing the same.

use std::ffi::c_int;

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;

use crate::call::answer::set_errno;
use crate::locks::kinds::kinds;
use crate::locks::object::{Unseen, Wait, wake_one};
use crate::time::deadline::{Clock, absolute};

type Semaphore = libc::sem_t;

interpose! { lean
    /// `sem_wait(3)`.
    fn sem_wait(semaphore: *mut Semaphore) -> c_int, linked "__new_sem_wait" {
        // SAFETY: the caller's promise.
        unsafe { take(semaphore, || Ok(NEVER)) }
    }
}

interpose! { lean
    /// `sem_timedwait(3)`.
    fn sem_timedwait(semaphore: *mut Semaphore, time: *const libc::timespec) -> c_int,
        linked "___sem_timedwait"
    {
        // SAFETY: the caller's promise.
        unsafe { take(semaphore, || absolute(&*time, Clock::Realtime)) }
    }
}

interpose! { lean
    /// `sem_clockwait(3)`.
    fn sem_clockwait(
        semaphore: *mut Semaphore,
        clock: libc::clockid_t,
        time: *const libc::timespec,
    ) -> c_int, linked "___sem_clockwait" {
        // SAFETY: the caller's promise.
        unsafe { take(semaphore, || absolute(&*time, Clock::from_id(clock)?)) }
    }
}

interpose! { lean anywhere
    /// `sem_post(3)`.
    fn sem_post(semaphore: *mut Semaphore) -> c_int, linked "__new_sem_post" {
        // SAFETY: the caller's promise.
        let result = unsafe { original(semaphore) };
        wake_one(semaphore as usize);
        result
    }
}

/// # Safety
/// It is a semaphore.
unsafe fn take(semaphore: *mut Semaphore, deadline: impl FnOnce() -> Result<u64, c_int>) -> c_int {
    // SAFETY: the caller's promise.
    let attempt = || unsafe { libc::sem_trywait(semaphore) == 0 };
    if attempt() {
        return 0;
    }
    let deadline = match deadline() {
        Ok(deadline) => deadline,
        Err(errno) => {
            set_errno(errno);
            return -1;
        }
    };
    // SAFETY: the caller's promise.
    let shared = unsafe { kinds().semaphore_shared.is_set(semaphore, true) };
    let unseen = Unseen::if_shared(shared);
    let key = semaphore as usize;
    let wait = Wait { key, tag: 0, reason: Reason::PosixSemaphore, deadline, unseen };
    match wait.until(|| attempt().then_some(())) {
        Some(()) => 0,
        None => {
            set_errno(libc::ETIMEDOUT);
            -1
        }
    }
}
