//! Waiting for a thread to end, or for a fiber whose handle was exchanged for a `pthread_t`. (Other fibers
//! are joined through their handles.)
//!
//! The kernel tells libc of a thread's end: it clears the thread's number and wakes a futex there. That
//! wakes no fiber, so another thread waits in its stead.

use std::ffi::c_int;

use carefree_runtime::clock::{self, NEVER};
use carefree_runtime::{Reason, offload, pthread, standard, wait};

use crate::call::fiber::{self, guarded};
use crate::call::host;
use crate::call::user::User;
use crate::time::deadline::{Clock, absolute_of};

/// A `pthread_t`, which is the address of libc's record of the thread.
type Thread<'u> = User<'u>;
/// Where a thread's result is written.
type Place<'u> = User<'u, User<'static>>;
type Time<'u> = User<'u, libc::timespec>;

/// Runs `join` on another thread, unless the thread has ended already or is the caller itself.
fn elsewhere(
    thread: Thread,
    result: Place,
    deadline: impl FnOnce() -> Result<u64, c_int>,
    join: impl FnOnce() -> c_int + Send,
) -> c_int {
    match pthread_tryjoin_np::original(thread, result) {
        libc::EBUSY => {}
        ended => return ended,
    }
    if is_self(thread) {
        return libc::EDEADLK;
    }
    if host::is_hosted() {
        return by_looking(thread, result, deadline());
    }
    offload(join)
}

/// Joins a thread for a hosted one, which may be cancelled meanwhile: nothing can call back a thread that
/// joins in its stead. Few threads of a host's program are none of the host's.
fn by_looking(thread: Thread, result: Place, deadline: Result<u64, c_int>) -> c_int {
    /// Nanoseconds between two looks: at first, and at most.
    const LOOK: u64 = 50_000;
    const LOOK_SELDOM: u64 = 5_000_000;
    let deadline = match deadline {
        Ok(deadline) => deadline,
        Err(errno) => return errno,
    };
    let mut pause = LOOK;
    loop {
        let now = clock::now();
        if now >= deadline {
            return libc::ETIMEDOUT;
        }
        wait::sleep_until(deadline.min(now + pause), Reason::Thread);
        host::again(&());
        match pthread_tryjoin_np::original(thread, result) {
            libc::EBUSY => pause = (2 * pause).min(LOOK_SELDOM),
            ended => return ended,
        }
    }
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
    mut deadline: impl FnMut() -> Result<u64, c_int>,
) -> Option<c_int> {
    if let Some(host) = host::get() {
        let (own, place) = (thread.address() as libc::pthread_t, result.pointer().cast());
        // SAFETY: what the program has given to be joined, and room for the result or a null pointer.
        if let Some(answer) = unsafe { (host.join)(own, place, &mut deadline) } {
            return Some(answer);
        }
    }
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
        guarded(|| elsewhere(thread, result, || Ok(NEVER), || original(thread, result)))
    }
}

interpose! { steady anywhere
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
            None => {
                let deadline = || moment(time, libc::CLOCK_REALTIME);
                elsewhere(thread, result, deadline, || original(thread, result, time))
            }
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
        // (Also for a thread that has ended: so libc has it.)
        if let Err(errno) = Clock::from_id(clock) {
            return errno;
        }
        match join_fiber(thread, result, || moment(time, clock)) {
            Some(answer) => answer,
            None if !fiber::on_fiber() => original(thread, result, clock, time),
            None => {
                let deadline = || moment(time, clock);
                elsewhere(thread, result, deadline, || original(thread, result, clock, time))
            }
        }
    }
}
