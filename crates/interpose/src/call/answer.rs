//! What a call answers: the kernel's number or an `errno`, and how C is told.

use std::ffi::c_int;

use carefree_runtime::{Interrupted, Outcome};

use crate::call::host;

/// What a call came to: the kernel's number, or an `errno`.
pub(crate) type Answer = Result<usize, c_int>;

/// Stands for `ETIMEDOUT` in the answer of a call that a [`timeout`](carefree_runtime::timeout()) cut
/// short. No `errno` of the kernel's is as large.
///
/// It travels like any error until the caller is told ([`told`]), and only then does the limit count as
/// reached: a call that has done a part answers with that part instead, and was not cut short.
const CUT: c_int = 1 << 20;

/// The `errno` of a call that was interrupted.
pub(crate) fn interruption(why: Interrupted) -> c_int {
    match why {
        // A signal, or what libc calls cancellation: the host sees to that after the call.
        Interrupted::Cancelled if host::is_hosted() => libc::EINTR,
        Interrupted::Cancelled => libc::ECANCELED,
        Interrupted::TimedOut => CUT,
    }
}

/// Whether a wait that has ended by `outcome` ends its call, which may be [steady](host::can_be_cut).
///
/// # Errors
/// If so, the `errno`.
pub(crate) fn check_cut(outcome: Outcome, steady: bool) -> Result<(), c_int> {
    if !host::can_be_cut(steady) {
        // A cancelled thread waits on.
        return Ok(());
    }
    carefree_runtime::interrupted().map_err(interruption)?;
    // A signal has come for a hosted thread, which was not cancelled.
    if outcome == Outcome::Cancelled && host::is_hosted() && !host::waits_on() {
        return Err(libc::EINTR);
    }
    Ok(())
}

/// Whether `errno` says that the fiber was interrupted, or that the file is being closed: nothing was
/// done then, and nothing is to be tried further.
pub(crate) fn is_end(errno: c_int) -> bool {
    matches!(errno, libc::EBADF | libc::ECANCELED | CUT)
        || errno == libc::EINTR && host::is_hosted()
}

/// The `errno` that the caller is told.
#[inline]
pub(crate) fn told(errno: c_int) -> c_int {
    if errno != CUT {
        return errno;
    }
    carefree_runtime::tell_timed_out();
    libc::ETIMEDOUT
}

/// Sets the caller's `errno`.
#[inline]
pub(crate) fn set_errno(errno: c_int) {
    let errno = told(errno);
    // SAFETY: the address of a variable of the calling thread or fiber. It is asked for anew each time:
    // after a wait, the caller may be on another carrier, and in shared mode even its `errno` is that
    // carrier's.
    unsafe { *libc::__errno_location() = errno };
}

/// What a function of libc returns for the kernel's answer: the number, or -1 with `errno` set.
#[inline]
pub(crate) fn answer(returned: Answer) -> isize {
    match returned {
        Ok(number) => number as isize,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// What a call answers if it ends now, after `so_far` bytes: an error after a part is not told.
pub(crate) fn or_so_far(so_far: usize, answer: Answer) -> Answer {
    match answer {
        Err(_) if so_far > 0 => Ok(so_far),
        Err(errno) => Err(errno),
        Ok(more) => Ok(so_far + more),
    }
}
