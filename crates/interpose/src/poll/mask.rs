//! A call's own signal mask.

use std::ffi::c_int;

use carefree_ground::kernel;
use libc::sigset_t;

use crate::call::answer::Answer;
use crate::call::host;
use crate::call::user::User;

/// Bytes of the kernel's set of signals.
const SIGNALS: usize = 8;

/// Whether `mask` would change which signals are blocked.
pub(crate) fn changes_signals(mask: User<sigset_t>) -> bool {
    if mask.is_null() {
        return false;
    }
    // The kernel uses 8 bytes of a set of signals. If they cannot be read, the call says so.
    let Ok(mask) = mask.cast::<u64>().read() else { return true };
    let mut now = 0u64;
    let arguments = [libc::SIG_BLOCK as usize, 0, (&raw mut now) as usize, SIGNALS, 0, 0];
    // SAFETY: there is room for the answer.
    let asked = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
    asked.is_err() || now != mask
}

/// `wait` of a hosted thread until `deadline` with `mask` in force, which the host sees to; `None` if there is
/// no mask, or the caller is no hosted thread.
pub(crate) fn wait_hosted(
    mask: User<sigset_t>,
    deadline: impl FnOnce() -> Result<u64, c_int>,
    wait: impl Fn(u64) -> Answer,
) -> Option<Answer> {
    let host = host::get().filter(|_| !mask.is_null() && host::is_hosted())?;
    Some(deadline().and_then(|deadline| {
        // The kernel uses 8 bytes of a set of signals.
        let mask = mask.cast::<u64>().read()?;
        (host.wait_with_mask)(mask, &mut |waits| wait(if waits { deadline } else { 0 }))
    }))
}
