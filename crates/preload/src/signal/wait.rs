//! Waiting for signals: what `sigwait` and `sigsuspend` need of a hosted thread.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use carefree_runtime::Reason;
use carefree_runtime::wait::{self, Until};
use libc::siginfo_t;

use crate::signal::deliver::{Handled, handle_all};
use crate::signal::mask;
use crate::signal::set::{self, bit, is_signal};
use crate::thread::record::{self, set_errno};
use crate::thread::test_cancel;

stand_in! {
    /// `sighold(3)`.
    fn sighold(signal: c_int) -> c_int {
        match record::current() {
            Some((_, record)) if is_signal(signal) => {
                mask::replace(record, record.mask.load(Ordering::SeqCst) | bit(signal));
                0
            }
            // SAFETY: the caller's argument.
            _ => unsafe { next(signal) },
        }
    }

    /// `sigrelse(3)`.
    fn sigrelse(signal: c_int) -> c_int {
        match record::current() {
            Some((_, record)) if is_signal(signal) => {
                mask::replace(record, record.mask.load(Ordering::SeqCst) & !bit(signal));
                0
            }
            // SAFETY: the caller's argument.
            _ => unsafe { next(signal) },
        }
    }

    /// `sigset(3)`.
    fn sigset(signal: c_int, action: usize) -> usize {
        const HOLD: usize = 2;
        let Some((_, record)) = record::current().filter(|_| is_signal(signal)) else {
            // SAFETY: the caller's arguments.
            return unsafe { next(signal, action) };
        };
        let before = record.mask.load(Ordering::SeqCst);
        let was = set::action(signal).sa_sigaction;
        if action == HOLD {
            mask::replace(record, before | bit(signal));
        } else {
            // SAFETY: zeros are an action, of which the handler is set.
            unsafe {
                let mut wanted = std::mem::zeroed::<libc::sigaction>();
                wanted.sa_sigaction = action;
                if libc::sigaction(signal, &raw const wanted, std::ptr::null_mut()) != 0 {
                    return libc::SIG_ERR;
                }
            }
            mask::replace(record, before & !bit(signal));
        }
        if before & bit(signal) != 0 { HOLD } else { was }
    }

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

/// Takes a signal of a set that was sent to the calling thread, and that it blocks. Until the next call, the
/// thread waits for those of the set.
///
/// A sender adds a signal first and looks whether the thread waits then; this notes that it waits first and
/// looks for signals then. So one of them sees the other: the signal is taken here, or the sender has the
/// dispatcher interrupt the thread until it is.
pub(crate) fn take(set: u64) -> Option<siginfo_t> {
    let record = record::current()?.1;
    record.awaited.store(set, Ordering::SeqCst);
    record.pending.take(set)
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
