//! Waiting for signals: what `sigwait` and `sigsuspend` need of a hosted thread.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use carefree_runtime::Reason;
use carefree_runtime::wait::{self, Until};
use libc::siginfo_t;

use crate::signal::deliver::{Handled, handle_all};
use crate::signal::mask;
use crate::signal::set::{bit, is_signal};
use crate::thread::record::{self, set_errno};
use crate::thread::test_cancel;

stand_in! {
    /// `sigpause(3)` of X/Open: with one signal less blocked.
    fn __xpg_sigpause(signal: c_int) -> c_int {
        let Some((_, record)) = record::current() else {
            // SAFETY: the caller's argument.
            return unsafe { next(signal) };
        };
        if !is_signal(signal) {
            set_errno(libc::EINVAL);
            return -1;
        }
        suspend(Some(record.mask.load(Ordering::SeqCst) & !bit(signal)));
        set_errno(libc::EINTR);
        -1
    }
}

/// Takes a signal of a set that was sent to the calling thread, and that it blocks.
pub(crate) fn take(set: u64) -> Option<siginfo_t> {
    record::current()?.1.pending.take(set)
}

/// Waits until the calling hosted thread has called a handler, with this mask or its own.
pub(crate) fn suspend(with: Option<u64>) {
    let Some((me, record)) = record::current() else { return };
    let own = record.mask.load(Ordering::SeqCst);
    if let Some(with) = with {
        mask::replace_only(record, with);
    }
    let key = std::ptr::from_ref(&record.pending) as usize;
    loop {
        let Handled { handlers, .. } = handle_all(record, None);
        if handlers > 0 || me.is_cancelled() {
            break;
        }
        let nothing = || record.pending.set() & !record.mask.load(Ordering::SeqCst) == 0;
        wait::park(key, nothing, Reason::Signal, Until::WOKEN);
    }
    mask::replace(record, own);
    test_cancel();
}
