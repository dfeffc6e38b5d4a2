//! Waiting for a thread to end, or for a fiber whose handle was exchanged for a `pthread_t`. (Other fibers
//! are joined through their handles.)
//!
//! The kernel tells libc of a thread's end: it clears the thread's number and wakes a futex there. That
//! wakes no fiber, so another thread waits in its stead.

use std::ffi::c_int;

use carefree_runtime::clock::NEVER;
use carefree_runtime::{offload, pthread, standard};

use crate::call::fiber::{self, guarded};
use crate::call::user::User;
use crate::time::deadline::{Clock, absolute_of};

/// A `pthread_t`, which is the address of libc's record of the thread.
type Thread<'u> = User<'u>;
/// Where a thread's result is written.
type Place<'u> = User<'u, User<'static>>;
type Time<'u> = User<'u, libc::timespec>;

/// Runs `join` on another thread, unless the thread has ended already or is the caller itself.
fn elsewhere(thread: Thread, result: Place, join: impl FnOnce() -> c_int + Send) -> c_int {
    match pthread_tryjoin_np::original(thread, result) {
        libc::EBUSY => {}
        ended => return ended,
    }
    if is_self(thread) {
        return libc::EDEADLK;
    }
    offload(join)
}

fn is_self(thread: Thread) -> bool {
    // SAFETY: it takes nothing, and tells an address.
    thread.address() == unsafe { libc::pthread_self() } as usize
}

/// Joins a fiber whose handle was exchanged for `thread`, if there is one; waits for it until `deadline`,
/// which is computed only if there is something to wait for.
fn join_fiber(
    thread: Thread,
    result: Place,
    deadline: impl FnOnce() -> Result<u64, c_int>,
) -> Option<c_int> {
    let mut ended = pthread::join(thread.address(), 0)?;
    if !ended {
        if is_self(thread) {
            return Some(libc::EDEADLK);
        }
        ended = match deadline() {
            Ok(0) => return Some(libc::EBUSY),
            Ok(deadline) => pthread::join(thread.address(), deadline)?,
            Err(errno) => return Some(errno),
        };
    }
    if !ended {
        return Some(libc::ETIMEDOUT);
    }
    if !result.is_null() {
        // A null pointer is what std's threads return to libc.
        // SAFETY: libc's function would write there unasked.
        unsafe { result.write_seen(User::NULL) };
    }
    Some(0)
}

/// The deadline of a join with a time limit.
fn moment(time: Time, clock: libc::clockid_t) -> Result<u64, c_int> {
    let clock = Clock::from_id(clock)?;
    if time.is_null() {
        return Ok(NEVER);
    }
    // At least 1, because 0 means not to wait.
    Ok(absolute_of(time, clock)?.max(1))
}

interpose! { lean anywhere
    /// `pthread_join(3)` of a thread, or of a fiber that was given up.
    safe fn pthread_join(thread: Thread, result: Place) -> c_int, linked "__pthread_join" {
        if thread.address() == standard::token() {
            return 0;
        }
        if let Some(answer) = guarded(|| join_fiber(thread, result, || Ok(NEVER))) {
            return answer;
        }
        if !fiber::on_fiber() {
            return original(thread, result);
        }
        guarded(|| elsewhere(thread, result, || original(thread, result)))
    }
}

interpose! { anywhere
    /// `pthread_tryjoin_np(3)` of a thread, or of a fiber that was given up.
    safe fn pthread_tryjoin_np(thread: Thread, result: Place) -> c_int,
        linked "__pthread_tryjoin_np"
    {
        match join_fiber(thread, result, || Ok(0)) {
            Some(answer) => answer,
            None => original(thread, result),
        }
    }
}

interpose! { anywhere
    /// `pthread_timedjoin_np(3)` of a thread, or of a fiber that was given up.
    safe fn pthread_timedjoin_np(thread: Thread, result: Place, time: Time) -> c_int,
        linked "___pthread_timedjoin_np"
    {
        match join_fiber(thread, result, || moment(time, libc::CLOCK_REALTIME)) {
            Some(answer) => answer,
            None if !fiber::on_fiber() => original(thread, result, time),
            None => elsewhere(thread, result, || original(thread, result, time)),
        }
    }
}

interpose! { anywhere
    /// `pthread_clockjoin_np(3)` of a thread, or of a fiber that was given up.
    safe fn pthread_clockjoin_np(
        thread: Thread,
        result: Place,
        clock: libc::clockid_t,
        time: Time,
    ) -> c_int, linked "___pthread_clockjoin_np" {
        match join_fiber(thread, result, || moment(time, clock)) {
            Some(answer) => answer,
            None if !fiber::on_fiber() => original(thread, result, clock, time),
            None => elsewhere(thread, result, || original(thread, result, clock, time)),
        }
    }
}
