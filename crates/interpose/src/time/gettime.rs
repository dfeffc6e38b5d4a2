//! Reading the clock, on fibers with virtual time.
//!
//! Where time is [virtual](carefree_runtime::RuntimeBuilder::virtual_time), `Instant::now` and its like must
//! show the time that deadlines are compared with: a loop around a timed wait asks them whether it is over.
//! The time of day begins at midnight of 1 January 2020, UTC, so that it is the same in each run. Clocks of
//! processor time, and all clocks on other fibers, are real. (Under `carefree run`, those of threads show what the
//! fiber has used, and not its carrier.)

use std::ffi::{c_int, c_void};

use carefree_ground::kernel;
use carefree_runtime::clock;
use libc::{clockid_t, time_t, timespec, timeval};

use crate::call::answer::answer;
use crate::call::host;
use crate::call::user::User;

/// The time of day at which virtual time, which begins at one second, is 0.
const MIDNIGHT: u64 = (1_577_836_800 - 1) * 1_000_000_000;

/// What `clock` shows on a fiber with virtual time, in nanoseconds; and what the host knows of clocks of threads.
/// `None` for all else.
fn shown(clock: clockid_t) -> Option<u64> {
    // (Clocks of one thread or process have numbers below 0.)
    if clock == libc::CLOCK_THREAD_CPUTIME_ID || clock < 0 {
        return host::get().and_then(|host| (host.time_used)(clock)).map(|used| used.nanos);
    }
    let now = clock::virtual_now()?;
    match clock {
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME => Some(now),
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => {
            Some(MIDNIGHT.saturating_add(now))
        }
        _ => None,
    }
}

extern "C-unwind" fn raw_time(into: User<time_t>) -> time_t {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [libc::CLOCK_REALTIME as usize, &raw mut now as usize, 0, 0, 0, 0];
    // SAFETY: there is room for the answer.
    answer(unsafe { kernel::call(libc::SYS_clock_gettime, arguments) });
    if !into.is_null() {
        // SAFETY: libc's function writes to it unasked.
        unsafe { into.write_seen(now.tv_sec) };
    }
    now.tv_sec
}

interpose! { quick
    /// `clock_gettime(2)`, which `Instant::now` and `SystemTime::now` are.
    safe fn clock_gettime(clock: clockid_t, time: User<timespec>) -> c_int, number SYS_clock_gettime {
        match shown(clock) {
            Some(now) if !time.is_null() => {
                let seconds = (now / 1_000_000_000) as time_t;
                let time_shown = timespec { tv_sec: seconds, tv_nsec: (now % 1_000_000_000) as _ };
                // (The kernel tells the time of a thread, and answers `EFAULT` for no room.)
                answer(time.write(time_shown).map(|()| 0)) as c_int
            }
            _ => original(clock, time),
        }
    }
}

interpose! { quick
    /// `gettimeofday(2)`.
    safe fn gettimeofday(time: User<timeval>, zone: User<c_void>) -> c_int, number SYS_gettimeofday {
        match shown(libc::CLOCK_REALTIME) {
            Some(now) if !time.is_null() => {
                let seconds = (now / 1_000_000_000) as time_t;
                let time_shown = timeval { tv_sec: seconds, tv_usec: (now / 1000 % 1_000_000) as _ };
                // SAFETY: libc's function writes to it unasked.
                unsafe { time.write_seen(time_shown) };
                if zone.is_null() { 0 } else { original(User::NULL, zone) }
            }
            _ => original(time, zone),
        }
    }
}

interpose! { quick
    /// `time(2)`.
    safe fn time(into: User<time_t>) -> time_t, else raw_time {
        let Some(now) = shown(libc::CLOCK_REALTIME) else {
            return original(into);
        };
        let seconds = (now / 1_000_000_000) as time_t;
        if !into.is_null() {
            // SAFETY: libc's function writes to it unasked.
            unsafe { into.write_seen(seconds) };
        }
        seconds
    }
}
