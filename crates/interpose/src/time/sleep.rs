//! `nanosleep` and its kin.
//!
//! A fiber that is cancelled, or whose [`timeout`](carefree_runtime::timeout()) ends, wakes early and
//! is told that its sleep is over: there is no `errno` for it that callers expect (`std` knows
//! `EINTR` only, and sleeps on). The next call that can say so does. Signals do not end a fiber's
//! sleep, for they are handled by threads.

use std::ffi::{c_int, c_uint};

use carefree_runtime::clock;
use carefree_runtime::{Reason, wait};
use libc::{clockid_t, timespec};

use crate::call::answer::set_errno;
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::time::duration::{self, span};

system_call!(
    fn raw_nanosleep(time: User<timespec>, left: User<timespec>) -> c_int = SYS_nanosleep
);

/// By way of `nanosleep`, as libc's own does; for a static program.
unsafe extern "C-unwind" fn raw_usleep(micros: c_uint) -> c_int {
    let mut time = timespec {
        tv_sec: (micros / 1_000_000).into(),
        tv_nsec: (micros % 1_000_000 * 1000).into(),
    };
    nanosleep::original(User::lend(&mut time), User::NULL)
}

/// How often a sleep until some time of day looks at the clock, which may be set meanwhile.
const LOOK: u64 = 10_000_000_000;

/// Sleeps for so long.
fn sleep_for(nanos: u64) {
    if nanos == 0 {
        carefree_runtime::yield_now();
    } else {
        wait::sleep_until(duration::from_now(nanos), Reason::Sleep);
    }
}

/// `nanosleep`; returns an `errno`, or 0.
fn sleep_relative(time: User<timespec>) -> c_int {
    match given(time).and_then(|time| span(&time)) {
        Ok(nanos) => sleep_for(nanos),
        Err(errno) => return errno,
    }
    0
}

/// What the caller's pointer points to.
fn given(time: User<timespec>) -> Result<timespec, c_int> {
    duration::given(time)?.ok_or(libc::EFAULT)
}

/// Sleeps until `clock` shows `time`; returns an `errno`, or 0.
fn sleep_absolute(clock: clockid_t, time: u64) -> c_int {
    loop {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there is room for the answer.
        if unsafe { libc::clock_gettime(clock, &raw mut now) } != 0 {
            return libc::EINVAL;
        }
        // A clock before 1970 is as good as one at its beginning.
        let left = time.saturating_sub(span(&now).unwrap_or(0));
        if left == 0 {
            return 0;
        }
        let deadline = duration::from_now(left.min(LOOK));
        wait::sleep_until(deadline, Reason::Sleep);
        if clock::now() < deadline {
            // Cut short.
            return 0;
        }
    }
}

interpose! {
    /// `nanosleep(2)`.
    safe fn nanosleep(time: User<timespec>, left: User<timespec>) -> c_int, else raw_nanosleep {
        // Written when a signal ends the sleep, and none does.
        let _ = left;
        match sleep_relative(time) {
            0 => 0,
            errno => {
                set_errno(errno);
                -1
            }
        }
    }
}

interpose! {
    /// `clock_nanosleep(2)`. A sleep until a time of day notices within ten seconds that the clock
    /// was set.
    safe fn clock_nanosleep(
        clock: clockid_t,
        flags: c_int,
        time: User<timespec>,
        left: User<timespec>,
    ) -> c_int, linked "__clock_nanosleep" {
        let absolute = flags & libc::TIMER_ABSTIME != 0;
        match clock {
            libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME
            | libc::CLOCK_TAI => {
                if !absolute {
                    return sleep_relative(time);
                }
                let time = given(time).and_then(|time| span(&time));
                time.map_or_else(|errno| errno, |time| sleep_absolute(clock, time))
            }
            // Clocks that count a process's time, alarms, and what is no clock.
            _ => offload(|| original(clock, flags, time, left)),
        }
    }
}

interpose! {
    /// `sleep(3)`. The seconds left when it is cut short.
    safe fn sleep(seconds: c_uint) -> c_uint, linked "__sleep" {
        let deadline = duration::from_now(u64::from(seconds) * 1_000_000_000);
        sleep_for(u64::from(seconds) * 1_000_000_000);
        duration::left(deadline).div_ceil(1_000_000_000) as c_uint
    }
}

interpose! {
    /// `usleep(3)`.
    safe fn usleep(micros: c_uint) -> c_int, else raw_usleep {
        sleep_for(u64::from(micros) * 1000);
        0
    }
}

interpose! {
    /// C11's `thrd_sleep(3)`, which says -2 for an error.
    safe fn thrd_sleep(time: User<timespec>, left: User<timespec>) -> c_int, linked "__thrd_sleep" {
        let _ = left;
        if sleep_relative(time) == 0 { 0 } else { -2 }
    }
}
