//! What is told of a timer's signal.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

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
