//! `nanosleep` and its kin.
//!
//! A fiber that is cancelled, or whose [`timeout`](carefree_runtime::timeout()) ends, wakes early, and its
//! sleep reports success: callers expect no `errno` for that (`std` expects only `EINTR`, and then sleeps
//! on). The next call that can report it does. Signals end the sleep of a hosted thread only, with `EINTR`:
//! elsewhere threads handle them.

use std::ffi::{c_int, c_uint};

use carefree_ground::kernel;
use carefree_runtime::clock;
use carefree_runtime::{Outcome, Reason, wait};
use libc::{clockid_t, timespec};

use crate::call::answer::set_errno;
use crate::call::host;
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::time::duration::{self, span};

/// For a static program: by `nanosleep`, like libc's own.
extern "C-unwind" fn raw_usleep(micros: c_uint) -> c_int {
    let mut time = timespec {
        tv_sec: (micros / 1_000_000).into(),
        tv_nsec: (micros % 1_000_000 * 1000).into(),
    };
    nanosleep::original(User::lend(&mut time), User::NULL)
}

/// How often a sleep until a time of day looks at the clock, in nanoseconds, because it may be set.
const LOOK: u64 = 10_000_000_000;

/// Sleeps for so long; returns whether a signal has ended that, which comes to hosted threads only.
fn sleep_for(nanos: u64) -> bool {
    if nanos == 0 {
        carefree_runtime::yield_now();
        return false;
    }
    let deadline = clock::some_time(duration::from_now(nanos));
    loop {
        let outcome = wait::sleep_until(deadline, Reason::Sleep);
        if outcome != Outcome::Cancelled || !host::is_hosted() {
            return false;
        }
        if !host::waits_on() {
            return true;
        }
    }
}

/// `nanosleep`; returns an `errno`, or 0.
fn sleep_relative(time: User<timespec>, left: User<timespec>) -> c_int {
    let nanos = match given(time).and_then(|time| span(&time)) {
        Ok(nanos) => nanos,
        Err(errno) => return errno,
    };
    let deadline = duration::from_now(nanos);
    if !sleep_for(nanos) {
        return 0;
    }
    if !left.is_null() {
        if let Err(errno) = left.write(timespan(duration::left(deadline))) {
            return errno;
        }
    }
    libc::EINTR
}

fn timespan(nanos: u64) -> timespec {
    timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    }
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
        // A time before 1970 counts as 1970.
        let left = time.saturating_sub(span(&now).unwrap_or(0));
        if left == 0 {
            return 0;
        }
        let deadline = duration::from_now(left.min(LOOK));
        wait::sleep_until(deadline, Reason::Sleep);
        if clock::now() < deadline && !host::waits_on() {
            // Cut short.
            return if host::is_hosted() { libc::EINTR } else { 0 };
        }
    }
}

/// What a clock shows of the time of processors that a process has used; `None` for other clocks, and where it has
/// ended.
fn time_of_process(clock: clockid_t) -> Option<u64> {
    /// The lowest bits of the clock of a process by its number (`CPUCLOCK_SCHED`, without `CPUCLOCK_PERTHREAD_MASK`).
    const OF_PROCESS: clockid_t = 2;
    if clock != libc::CLOCK_PROCESS_CPUTIME_ID && !(clock < 0 && clock & 7 == OF_PROCESS) {
        return None;
    }
    let mut used = timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [clock as usize, (&raw mut used) as usize, 0, 0, 0, 0];
    // Not by libc's function: signals are handled at its end, and the signal that has cut the sleep short would be gone.
    // SAFETY: there is room for the answer.
    unsafe { kernel::call(libc::SYS_clock_gettime, arguments) }.ok()?;
    span(&used).ok()
}

/// How many seconds of processors' time may be used in one second.
fn processors() -> u64 {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as u64
}

/// Sleeps until another hosted thread, or a process, has used so much time of processors, of which at most so many run
/// it at a time: as much as `time` says, or, with room for what is `left`, as much more than `used`. Returns an `errno`,
/// or 0.
fn sleep_until_used(
    look: impl Fn() -> Option<u64>,
    processors: u64,
    mut used: u64,
    time: User<timespec>,
    left: Option<User<timespec>>,
) -> c_int {
    /// Nanoseconds until the first look at a thread that has used nothing, and at most until the next.
    const PAUSE: [u64; 2] = [1_000_000, 8_000_000];
    let wanted = match given(time).and_then(|time| span(&time)) {
        Ok(wanted) if left.is_some() => used.saturating_add(wanted),
        Ok(wanted) => wanted,
        Err(errno) => return errno,
    };
    let [first, most] = PAUSE;
    let mut pause = first;
    while used < wanted {
        // No more is used than there is.
        let deadline = duration::from_now(((wanted - used) / processors).max(pause));
        wait::sleep_until(deadline, Reason::Sleep);
        let now = look();
        if clock::now() < deadline && !host::waits_on() {
            if !host::is_hosted() {
                return 0;
            }
            let rest = wanted.saturating_sub(now.unwrap_or(used));
            return match left.filter(|left| !left.is_null()).map(|left| left.write(timespan(rest)))
            {
                Some(Err(errno)) => errno,
                _ => libc::EINTR,
            };
        }
        // It has ended: the kernel knows no such clock.
        let Some(now) = now else { return libc::EINVAL };
        pause = if now == used { (pause * 2).min(most) } else { first };
        used = now;
    }
    0
}

interpose! {
    /// `nanosleep(2)`.
    safe fn nanosleep(time: User<timespec>, left: User<timespec>) -> c_int, number SYS_nanosleep {
        match sleep_relative(time, left) {
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
        let sleep = || match clock {
            libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME
            | libc::CLOCK_TAI => {
                if !absolute {
                    return sleep_relative(time, left);
                }
                let time = given(time).and_then(|time| span(&time));
                time.map_or_else(|errno| errno, |time| sleep_absolute(clock, time))
            }
            // Clocks of processor time, alarms, and invalid ones.
            _ => {
                let left_of_span = (!absolute).then_some(left);
                let look = || host::get().and_then(|host| (host.time_used)(clock));
                match (look(), time_of_process(clock)) {
                    // It would never end.
                    (Some(used), _) if used.by_caller => libc::EINVAL,
                    (Some(used), _) => {
                        let look = || look().map(|now| now.nanos);
                        sleep_until_used(look, 1, used.nanos, time, left_of_span)
                    }
                    (None, Some(used)) => {
                        let look = || time_of_process(clock);
                        sleep_until_used(look, processors(), used, time, left_of_span)
                    }
                    (None, None) => offload(|| original(clock, flags, time, left)),
                }
            }
        };
        let slept = sleep();
        if slept == libc::EINTR {
            // (The number would be taken for something that the call has brought.)
            host::again(&());
        }
        slept
    }
}

interpose! {
    /// `sleep(3)`: returns the seconds that are left if it is cut short: whole ones after a signal, as libc does, and
    /// one for a part if the fiber was cancelled, which would take none for a sleep that was not cut.
    safe fn sleep(seconds: c_uint) -> c_uint, linked "__sleep" {
        let nanos = u64::from(seconds) * 1_000_000_000;
        let deadline = duration::from_now(nanos);
        let is_interrupted = sleep_for(nanos);
        let left = duration::left(deadline);
        let seconds = if is_interrupted { left / 1_000_000_000 } else { left.div_ceil(1_000_000_000) };
        seconds as c_uint
    }
}

interpose! {
    /// `usleep(3)`.
    safe fn usleep(micros: c_uint) -> c_int, else raw_usleep {
        if sleep_for(u64::from(micros) * 1000) {
            set_errno(libc::EINTR);
            return -1;
        }
        0
    }
}

interpose! {
    /// C11's `thrd_sleep(3)`, which returns -2 for an error.
    safe fn thrd_sleep(time: User<timespec>, left: User<timespec>) -> c_int, linked "__thrd_sleep" {
        match sleep_relative(time, left) {
            0 => 0,
            libc::EINTR => -1,
            _ => -2,
        }
    }
}
