//! Timers of the process (`alarm`, `setitimer`), whose signals the dispatcher takes.
//!
//! When a timer has been set, what it sent before is with a thread: no signal of a timer comes after the timer was
//! stopped. Nothing can be on its way if it was not set, or was to end once, and had not.

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::kernel;
use libc::{itimerval, useconds_t};

use crate::signal::deliver;
use crate::thread::record::set_errno;

/// Whether a timer was set, by `which` it is, and may have ended since.
static SET: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Notes that a timer is set or stopped; whether it was set before.
fn note(which: usize, is_set: bool) -> bool {
    SET.get(which).is_some_and(|set| set.swap(is_set, Ordering::SeqCst))
}

/// `setitimer(2)`: an `errno`, or 0.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn set(which: usize, new: *const itimerval, old: *mut itimerval) -> c_int {
    let mut own = MaybeUninit::<itimerval>::uninit();
    let before = if old.is_null() { own.as_mut_ptr() } else { old };
    let arguments = [which, new as usize, before as usize, 0, 0, 0];
    // SAFETY: as this function demands, with room for what was set before.
    let set = unsafe { kernel::call(libc::SYS_setitimer, arguments) };
    if let Err(errno) = set {
        return errno;
    }
    let is_null = |time: libc::timeval| time.tv_sec == 0 && time.tv_usec == 0;
    // SAFETY: the kernel has written the one, and read the other, if it was not null.
    let (before, is_set) =
        unsafe { (before.read(), new.as_ref().is_some_and(|new| !is_null(new.it_value))) };
    let was_set = note(which, is_set);
    if was_set && (is_null(before.it_value) || !is_null(before.it_interval)) {
        deliver::settle();
    }
    0
}

stand_in! {
    /// `setitimer(2)`.
    fn setitimer(which: c_int, new: *const itimerval, old: *mut itimerval) -> c_int {
        // SAFETY: the caller's arguments.
        match unsafe { set(which as usize, new, old) } {
            0 => 0,
            errno => {
                set_errno(errno);
                -1
            }
        }
    }

    /// `alarm(2)`. (Where seconds were left, nothing was on its way: that of an interval is not asked for.)
    fn alarm(seconds: c_uint) -> c_uint {
        // SAFETY: the caller's argument.
        let left = unsafe { next(seconds) };
        if note(libc::ITIMER_REAL as usize, seconds != 0) && left == 0 {
            deliver::settle();
        }
        left
    }

    /// `ualarm(3)`.
    fn ualarm(micros: useconds_t, interval: useconds_t) -> useconds_t {
        // SAFETY: the caller's arguments.
        let left = unsafe { next(micros, interval) };
        if note(libc::ITIMER_REAL as usize, micros != 0) {
            deliver::settle();
        }
        left
    }
}
