//! Waiting for signals: what `sigwait` and `sigsuspend` need of a hosted thread.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use carefree_runtime::Reason;
use carefree_runtime::wait::{self, Until};
use libc::siginfo_t;

use crate::signal::deliver::{Handled, handle_all};
use crate::signal::set::{self, OURS, bit, is_libcs, is_signal};
use crate::signal::{deliver, mask};
use crate::thread::record::{self, set_errno};
use crate::thread::test_cancel;

/// Whether a program may block the signal: libc's own are in no set.
fn may_be_held(signal: c_int) -> bool {
    is_signal(signal) && !is_libcs(signal)
}

stand_in! {
    /// `sighold(3)`.
    fn sighold(signal: c_int) -> c_int {
        match record::current() {
            Some((_, record)) if may_be_held(signal) => {
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
            Some((_, record)) if may_be_held(signal) => {
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
        let Some((_, record)) = record::current().filter(|_| may_be_held(signal)) else {
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

    /// `signalfd(2)`. (It would take what interrupts a carrier.)
    fn signalfd(file: c_int, set: *const libc::sigset_t, flags: c_int) -> c_int {
        // SAFETY: the caller's arguments. The kernel uses 8 bytes of a set.
        unsafe {
            if set.is_null() {
                return next(file, set, flags);
            }
            let mut own = std::mem::zeroed::<libc::sigset_t>();
            let wanted = set.cast::<u64>().read() & !bit(OURS);
            (&raw mut own).cast::<u64>().write(wanted);
            next(file, &raw const own, flags)
        }
    }

    /// `sigignore(3)`.
    fn sigignore(signal: c_int) -> c_int {
        // SAFETY: zeros are an action, of which the handler is set.
        unsafe {
            let mut ignore = std::mem::zeroed::<libc::sigaction>();
            ignore.sa_sigaction = libc::SIG_IGN;
            libc::sigaction(signal, &raw const ignore, std::ptr::null_mut())
        }
    }

    /// `sigpause(3)` of BSD: with a mask of 32 signals.
    fn sigpause(set: c_int) -> c_int {
        if record::current().is_none() {
            // SAFETY: the caller's argument.
            return unsafe { next(set) };
        }
        suspend(Some(u64::from(set as u32)));
        set_errno(libc::EINTR);
        -1
    }

    /// `sigpause(3)` of X/Open: with one signal less blocked.
    fn __xpg_sigpause(signal: c_int) -> c_int {
        let Some((_, record)) = record::current() else {
            // SAFETY: the caller's argument.
            return unsafe { next(signal) };
        };
        if !may_be_held(signal) {
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
        let has_handled = handle_all(record, None, Some(own)) != Handled::None;
        if has_handled || me.is_cancelled() {
            // Whatever a handler has waited for, this wait is not begun again.
            me.take_cut();
            if !has_handled {
                mask::replace(record, own);
            }
            break;
        }
        let nothing = || record.pending.set() & !record.mask.load(Ordering::SeqCst) == 0;
        wait::park(key, nothing, Reason::Signal, Until::WOKEN);
    }
    test_cancel();
}

/// Has the calling hosted thread wait with another mask in force, as `ppoll`, `pselect` and `epoll_pwait` do.
///
/// As the kernel does it: what is ready is told before a signal that came earlier is handled, and that stays
/// pending then, if the thread's own mask blocks it; and a handler is called with the mask of the wait, which is
/// not begun again.
pub(crate) fn wait_with_mask(
    with: u64,
    wait: &mut dyn FnMut(bool) -> Result<usize, c_int>,
) -> Result<usize, c_int> {
    let Some((me, record)) = record::current() else { return wait(true) };
    let own = record.mask.load(Ordering::SeqCst);
    // What has come before the call is handled before it.
    if record.pending.set() & !own != 0 {
        deliver::handle();
    }
    // Calls that the wait is made of handle no signals: only here it is known that a handler has run.
    record.holds.store(true, Ordering::Relaxed);
    mask::replace_only(record, with);
    let mut has_handled = false;
    let waited = loop {
        // (What comes from now on interrupts the wait: the dispatcher looks until it is handled.)
        let may_wait = record.pending.set() & !record.mask.load(Ordering::SeqCst) == 0;
        let waited = wait(may_wait);
        if !matches!(waited, Ok(0) | Err(libc::EINTR)) {
            break waited;
        }
        record.holds.store(false, Ordering::Relaxed);
        has_handled = handle_all(record, None, Some(own)) != Handled::None;
        if has_handled || me.is_cancelled() {
            // Whatever a handler has waited for, this wait is not begun again.
            me.take_cut();
            break Err(libc::EINTR);
        }
        if may_wait && waited == Ok(0) {
            break waited;
        }
        record.holds.store(true, Ordering::Relaxed);
    };
    // A handler's return has put the thread's own in force, or what the handler has changed it to.
    if !has_handled {
        mask::replace_only(record, own);
    }
    record.holds.store(false, Ordering::Relaxed);
    waited
}
