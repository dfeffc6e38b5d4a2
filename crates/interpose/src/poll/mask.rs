//! A call's own signal mask.

use carefree_ground::kernel;
use libc::sigset_t;

use crate::call::memory;

/// Bytes of the kernel's set of signals.
const SIGNALS: usize = 8;

/// Whether signals would be blocked or let through by `mask` that are not already.
pub(crate) fn changes_signals(mask: *const sigset_t) -> bool {
    if mask.is_null() {
        return false;
    }
    if memory::check(mask.cast::<u64>(), 1).is_err() {
        // The call says so.
        return true;
    }
    let mut now = 0u64;
    let arguments = [libc::SIG_BLOCK as usize, 0, (&raw mut now) as usize, SIGNALS, 0, 0];
    // SAFETY: there is room for the answer.
    let asked = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
    // SAFETY: it can be read, and the kernel uses as much of a set of signals.
    asked.is_err() || now != unsafe { mask.cast::<u64>().read_unaligned() }
}
