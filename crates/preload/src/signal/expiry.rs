//! What is told of a timer's signal, and by `timer_getoverrun` of the last one.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use carefree_ground::lock::Lock;
use libc::siginfo_t;

/// How a `siginfo_t` begins, where it is a timer's.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Expiry {
    pub(super) signal: c_int,
    errno: c_int,
    code: c_int,
    _aligned: c_int,
    /// The timer's number.
    pub(super) id: c_int,
    /// How many more it stands for.
    pub(super) overrun: c_int,
    value: usize,
}
const _: () = assert!(size_of::<Expiry>() <= size_of::<siginfo_t>());

impl Expiry {
    /// That which `info` is; `None` if it is not a timer's.
    pub(super) fn of(info: &mut siginfo_t) -> Option<&mut Expiry> {
        if info.si_code != libc::SI_TIMER {
            return None;
        }
        // SAFETY: it begins so, where it is a timer's.
        Some(unsafe { &mut *ptr::from_mut(info).cast::<Expiry>() })
    }

    /// What is told of a signal of the timer `id`.
    pub(super) fn told(signal: c_int, id: c_int, overrun: c_int, value: usize) -> siginfo_t {
        let told =
            Expiry { signal, errno: 0, code: libc::SI_TIMER, _aligned: 0, id, overrun, value };
        let mut info = MaybeUninit::<siginfo_t>::zeroed();
        // SAFETY: a `siginfo_t` begins with this; zeros are valid for the rest.
        unsafe {
            info.as_mut_ptr().cast::<Expiry>().write(told);
            info.assume_init()
        }
    }

    /// Whether another one is of the same timer, so that one of them can stand for both.
    pub(super) fn is_same(&self, other: &Expiry) -> bool {
        (self.id, self.signal) == (other.id, other.signal)
    }
}

/// The timers of which the last signal that the program has taken stands for several, and for how many more than one.
static LATE: Lock<Vec<(c_int, c_int)>> = Lock::new(Vec::new());

/// The program takes a signal of a timer's. (The caller must not park in the allocator.)
pub(super) fn taken(expiry: &Expiry) {
    let mut late = LATE.lock();
    match (late.iter().position(|(id, _)| *id == expiry.id), expiry.overrun) {
        (Some(place), 0) => _ = late.swap_remove(place),
        (Some(place), overrun) => late[place].1 = overrun,
        (None, 0) => {}
        (None, overrun) => late.push((expiry.id, overrun)),
    }
}

/// For how many more than one the last signal of a timer's stands.
pub(super) fn overrun(id: c_int) -> c_int {
    LATE.lock().iter().find(|(late, _)| *late == id).map_or(0, |(_, overrun)| *overrun)
}

/// A timer is set anew, or deleted.
pub(super) fn forget(id: c_int) {
    LATE.lock().retain(|(late, _)| *late != id);
}

/// In the child of a fork, which inherits no timers.
///
/// # Safety
/// There is one thread, and it is not in here.
pub(super) unsafe fn renew() {
    // SAFETY: as this function demands.
    unsafe { LATE.renew(Vec::new()) };
}
