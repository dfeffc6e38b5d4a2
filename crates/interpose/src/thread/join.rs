//! Waiting for a thread to end, or for a fiber whose handle was exchanged for a `pthread_t`. (Other fibers
//! are joined through their handles.)
//!
//! The kernel tells libc of a thread's end: it clears the thread's number and wakes a futex there. That
//! wakes no fiber, so another thread waits in its stead.

use std::ffi::{c_int, c_void};

use carefree_runtime::clock::NEVER;
use carefree_runtime::{offload, pthread, standard};

use crate::call::fiber::{self, guarded};
use crate::time::deadline::{Clock, absolute};

type Thread = libc::pthread_t;
type Time = *const libc::timespec;
type Place = *mut *mut c_void;

/// Runs `join` on another thread, unless the thread has ended already or is the caller itself.
///
/// # Safety
/// As for `pthread_join`; `join` is that.
unsafe fn elsewhere(thread: Thread, result: Place, join: impl FnOnce(Place) -> c_int) -> c_int {
    /// A pointer and a call with it, lent to another thread while this one waits.
    struct Sent<T>(T);
    // SAFETY: this thread does not use it meanwhile.
    unsafe impl<T> Send for Sent<T> {}
    impl<T> Sent<T> {
        fn get(self) -> T {
            self.0
        }
    }

    // SAFETY: the caller's promise.
    match unsafe { pthread_tryjoin_np::original(thread, result) } {
        libc::EBUSY => {}
        ended => return ended,
    }
    // SAFETY: no preconditions.
    if thread == unsafe { libc::pthread_self() } {
        return libc::EDEADLK;
    }
    let sent = Sent((join, result));
    offload(move || {
        let (join, result) = sent.get();
        join(result)
    })
}

/// Joins a fiber whose handle was exchanged for `thread`, if there is one; waits for it until `deadline`,
/// which is computed only if there is something to wait for.
///
/// # Safety
/// As for `pthread_join`.
unsafe fn join_fiber(
    thread: Thread,
    result: Place,
    deadline: impl FnOnce() -> Result<u64, c_int>,
) -> Option<c_int> {
    let mut ended = pthread::join(thread as usize, 0)?;
    if !ended {
        // SAFETY: no preconditions.
        if thread == unsafe { libc::pthread_self() } {
            return Some(libc::EDEADLK);
        }
        ended = match deadline() {
            Ok(0) => return Some(libc::EBUSY),
            Ok(deadline) => pthread::join(thread as usize, deadline)?,
            Err(errno) => return Some(errno),
        };
    }
    if !ended {
        return Some(libc::ETIMEDOUT);
    }
    if !result.is_null() {
        // SAFETY: the caller's promise. What std's threads return to libc.
        unsafe { result.write(std::ptr::null_mut()) };
    }
    Some(0)
}

/// The deadline of a join with a time limit.
///
/// # Safety
/// It is a time, or null.
unsafe fn moment(time: Time, clock: libc::clockid_t) -> Result<u64, c_int> {
    let clock = Clock::from_id(clock)?;
    // SAFETY: the caller's promise.
    match unsafe { time.as_ref() } {
        // At least 1, because 0 means not to wait.
        Some(time) => Ok(absolute(time, clock)?.max(1)),
        None => Ok(NEVER),
    }
}

interpose! { lean anywhere
    /// `pthread_join(3)` of a thread, or of a fiber that was given up.
    fn pthread_join(thread: Thread, result: Place) -> c_int, linked "__pthread_join" {
        if thread == standard::token() as Thread {
            return 0;
        }
        // SAFETY: the caller's promise.
        if let Some(answer) = unsafe { guarded(|| join_fiber(thread, result, || Ok(NEVER))) } {
            return answer;
        }
        if !fiber::on_fiber() {
            // SAFETY: the caller's promise.
            return unsafe { original(thread, result) };
        }
        // SAFETY: the caller's promise.
        unsafe { guarded(|| elsewhere(thread, result, |result| original(thread, result))) }
    }
}

interpose! { anywhere
    /// `pthread_tryjoin_np(3)` of a thread, or of a fiber that was given up.
    fn pthread_tryjoin_np(thread: Thread, result: Place) -> c_int, linked "__pthread_tryjoin_np" {
        // SAFETY: the caller's promise.
        match unsafe { join_fiber(thread, result, || Ok(0)) } {
            Some(answer) => answer,
            // SAFETY: as above.
            None => unsafe { original(thread, result) },
        }
    }
}

interpose! { anywhere
    /// `pthread_timedjoin_np(3)` of a thread, or of a fiber that was given up.
    fn pthread_timedjoin_np(thread: Thread, result: Place, time: Time) -> c_int,
        linked "___pthread_timedjoin_np"
    {
        // SAFETY: the caller's promise.
        unsafe {
            match join_fiber(thread, result, || moment(time, libc::CLOCK_REALTIME)) {
                Some(answer) => answer,
                None if !fiber::on_fiber() => original(thread, result, time),
                None => elsewhere(thread, result, |result| original(thread, result, time)),
            }
        }
    }
}

interpose! { anywhere
    /// `pthread_clockjoin_np(3)` of a thread, or of a fiber that was given up.
    fn pthread_clockjoin_np(
        thread: Thread,
        result: Place,
        clock: libc::clockid_t,
        time: Time,
    ) -> c_int, linked "___pthread_clockjoin_np" {
        // SAFETY: the caller's promise.
        unsafe {
            match join_fiber(thread, result, || moment(time, clock)) {
                Some(answer) => answer,
                None if !fiber::on_fiber() => original(thread, result, clock, time),
                None => elsewhere(thread, result, |result| original(thread, result, clock, time)),
            }
        }
    }
}
