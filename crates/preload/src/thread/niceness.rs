//! The niceness of threads (`nice`, `setpriority`), of which Linux has one for each.
//!
//! As their scheduling policies, it has no effect on fibers: it is remembered, inherited and told, and refused where the
//! kernel would refuse it. To the kernel it would be the carrier's, and so strike whatever that runs. A child of a fork
//! has it.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use carefree_runtime::hosted;
use libc::id_t;

use crate::signal;
use crate::thread::identity::with_number;
use crate::thread::policy::is_privileged;
use crate::thread::record::{self, Record, set_errno};
use crate::thread::settings::BASE;

/// The niceness of a hosted thread.
pub(super) fn of(record: &Record) -> i8 {
    record.settings.niceness.load(Ordering::Relaxed)
}

/// The niceness nearest to `wanted` that there is.
fn clamped(wanted: c_int) -> c_int {
    wanted.clamp(-BASE, BASE - 1)
}

/// Whether the kernel would refuse a thread this niceness.
pub(super) fn is_refused(record: &Record, wanted: c_int) -> bool {
    let wanted = clamped(wanted);
    wanted < of(record).into() && (BASE - wanted) as u64 > limit() && !is_privileged()
}

/// Gives a thread another niceness: an `errno`, or 0.
pub(super) fn set(record: &Record, wanted: c_int) -> c_int {
    if is_refused(record, wanted) {
        return libc::EACCES;
    }
    record.settings.niceness.store(clamped(wanted) as i8, Ordering::Relaxed);
    0
}

/// The highest [`BASE`]` - niceness` of a process without rights.
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: there is room for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_NICE, &raw mut limit) };
    limit.rlim_cur
}

/// What the kernel tells of a process or thread: 20 - its niceness. `None` if it is not a hosted thread.
pub(super) fn told(which: c_uint, who: id_t) -> Option<c_int> {
    if which != libc::PRIO_PROCESS as c_uint {
        return None;
    }
    with_number(who as c_int, of).map(|niceness| BASE - c_int::from(niceness))
}

stand_in! {
    /// `setpriority(2)`.
    fn setpriority(which: c_uint, who: id_t, value: c_int) -> c_int {
        let set = |record: &Record| set(record, value);
        if which == libc::PRIO_PROCESS as c_uint {
            if let Some(errno) = with_number(who as c_int, set) {
                if errno == 0 {
                    return 0;
                }
                set_errno(errno);
                return -1;
            }
        }
        // SAFETY: the caller's arguments.
        let done = unsafe { next(which, who, value) };
        // All threads of the caller's group, or user.
        if done == 0 && which != libc::PRIO_PROCESS as c_uint && who == 0 && hosted::is_hosting() {
            let _ = hosted::find_where(|thread| {
                set(record::of(thread));
                false
            });
        }
        done
    }

    /// `getpriority(2)`.
    fn getpriority(which: c_uint, who: id_t) -> c_int {
        match told(which, who) {
            Some(told) => BASE - told,
            // SAFETY: the caller's arguments.
            None => unsafe { next(which, who) },
        }
    }

    /// `nice(2)`.
    fn nice(increment: c_int) -> c_int {
        let Some((_, record)) = record::current().filter(|_| !signal::is_child()) else {
            // SAFETY: the caller's argument.
            return unsafe { next(increment) };
        };
        match set(record, increment.saturating_add(of(record).into())) {
            0 => of(record).into(),
            _ => {
                set_errno(libc::EPERM);
                -1
            }
        }
    }
}
