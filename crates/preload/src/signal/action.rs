//! What the program wants done on signals (`sigaction`), and what the kernel is told in its place for faults.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_runtime::hosted;
use libc::sighandler_t;

use crate::signal::beside;
use crate::signal::carrier;
use crate::signal::crash::{self, FAULTS};
use crate::signal::fault;
use crate::signal::post;
use crate::signal::raised;
use crate::signal::set::{OURS, RAISED, TERMINAL, bit, ignores, is_signal};
use crate::thread::record::{self, set_errno};

/// Installs the handler for faults that the program has left to their default action, and for what calls raise.
pub(crate) fn prepare() {
    raised::prepare();
    for (signal, _) in FAULTS {
        // SAFETY: zeros are an action, which is overwritten.
        unsafe {
            let mut found = std::mem::zeroed::<libc::sigaction>();
            sigaction(signal, ptr::null(), &raw mut found);
            if found.sa_sigaction == libc::SIG_DFL {
                let action = crash::action();
                sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
    }
    TELLS_CRASHES.store(true, Ordering::Relaxed);
}

/// Whether [`prepare`] was called, once the program has fibers.
static TELLS_CRASHES: AtomicBool = AtomicBool::new(false);

/// What the kernel is to be given where the program asks for the default action of a fault.
fn crash_in_place_of(signal: c_int, action: &libc::sigaction) -> Option<libc::sigaction> {
    let is_default = action.sa_sigaction == libc::SIG_DFL && is_fault(signal);
    let tells = || TELLS_CRASHES.load(Ordering::Relaxed) && !beside::is_child();
    (is_default && tells()).then(crash::action)
}

/// `signal` and its kin, by `sigaction`: what the program is told of the handler before.
fn set(signal: c_int, handler: sighandler_t, flags: c_int, mask: u64) -> sighandler_t {
    // SAFETY: zeros are actions, of which one is overwritten; the kernel uses 8 bytes of a set.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        let mut before = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        (&raw mut action.sa_mask).cast::<u64>().write(mask);
        match sigaction(signal, &raw const action, &raw mut before) {
            0 => before.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

/// To be called before the program changes what is done on a signal. One that came while that was to ignore it is gone,
/// unless the first thread blocks it: so the kernel does, which discards what it need not keep. But the kernel's threads
/// block all signals, and the dispatcher comes to them later, to find what is done then.
fn forget_ignored(signal: c_int) {
    if hosted::main_thread().is_none()
        || !is_signal(signal)
        || is_fault(signal)
        || record::MAIN.mask.load(Ordering::SeqCst) & bit(signal) != 0
    {
        return;
    }
    // SAFETY: zeros are an action, which is overwritten; and the one that was found is set anew, for which the kernel
    // discards what is pending.
    unsafe {
        let mut found = std::mem::zeroed::<libc::sigaction>();
        if sigaction(signal, ptr::null(), &raw mut found) == 0
            && ignores(signal, found.sa_sigaction)
        {
            sigaction(signal, &raw const found, ptr::null_mut());
            post::settle();
        }
    }
}

/// The program ignores a signal from now on: what threads have pending of it is gone, whether they block it or not. The
/// kernel does that with what is pending for the process.
fn discard(signal: c_int) {
    // (What is pending for the thread that a `vfork`'s child looks like is its parent's.)
    if !hosted::is_hosting() || beside::is_child() {
        return;
    }
    let _ = hosted::find_where(|thread| {
        record::of(thread).pending.discard(bit(signal));
        false
    });
}

/// Whether it is a fault, whose handler is called by ours.
fn is_fault(signal: c_int) -> bool {
    FAULTS.iter().any(|(fault, _)| *fault == signal)
}

/// Whether a call raises it or a terminal sends it, for which ours is called as well.
fn is_raised(signal: c_int) -> bool {
    is_signal(signal) && bit(signal) & (RAISED | TERMINAL) != 0
}

/// As `signal(2)` has it, and its namesakes of BSD's.
const LASTING: c_int = libc::SA_RESTART;
/// As `signal(2)` of System V has it.
const ONCE: c_int = libc::SA_RESETHAND | libc::SA_NODEFER;

/// What all kin of `signal` do: `next` is libc's.
fn set_by(
    signal: c_int,
    handler: sighandler_t,
    flags: c_int,
    next: impl FnOnce() -> sighandler_t,
) -> sighandler_t {
    let is_ignored = ignores(signal, handler);
    if !is_ignored {
        forget_ignored(signal);
    }
    let mask = || if flags & libc::SA_NODEFER == 0 { bit(signal) } else { 0 };
    // Of these, ours is called in place of the program's, or it is ours alone.
    let before = match is_fault(signal) || is_raised(signal) || signal == OURS {
        true => set(signal, handler, flags, mask()),
        false => next(),
    };
    if is_ignored && before != libc::SIG_ERR {
        discard(signal);
    }
    before
}

stand_in! {
    /// `sigaction(2)`.
    fn sigaction(
        signal: c_int,
        action: *const libc::sigaction,
        before: *mut libc::sigaction,
    ) -> c_int {
        // SAFETY: the caller's arguments; what libc has written to `before` is an action.
        unsafe {
            // As libc has it with its own. (A program may restore what it has found.)
            if signal == OURS
                && action.as_ref().is_some_and(|action| !carrier::is_ours(action.sa_sigaction))
            {
                set_errno(libc::EINVAL);
                return -1;
            }
            if action.as_ref().is_some_and(|action| !ignores(signal, action.sa_sigaction)) {
                forget_ignored(signal);
            }
            // (What is kept is asked for first: it may be replaced.)
            let kept = fault::kept(signal);
            let theirs = action.as_ref().filter(|action| !crash::is_ours(action.sa_sigaction));
            let ours = theirs.and_then(|action| {
                fault::stand_in_for(signal, action).or_else(|| crash_in_place_of(signal, action))
            });
            let done = next(signal, ours.as_ref().map_or(action, ptr::from_ref), before);
            if done == 0 && action.as_ref().is_some_and(|to| ignores(signal, to.sa_sigaction)) {
                discard(signal);
            }
            if done == 0 && !before.is_null() {
                if crash::is_ours((*before).sa_sigaction) {
                    *before = std::mem::zeroed();
                } else if let Some(kept) = kept.filter(|_| fault::is_ours((*before).sa_sigaction)) {
                    *before = kept;
                }
            }
            done
        }
    }

    /// `signal(2)`.
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: the caller's arguments.
        set_by(signal, handler, LASTING, || unsafe { next(signal, handler) })
    }

    /// `signal(2)` of programs for System V, and of those compiled as strict C.
    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: the caller's arguments.
        set_by(signal, handler, ONCE, || unsafe { next(signal, handler) })
    }

    /// `sysv_signal(3)`.
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: the caller's arguments.
        set_by(signal, handler, ONCE, || unsafe { next(signal, handler) })
    }

    /// `bsd_signal(3)`.
    fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: the caller's arguments.
        set_by(signal, handler, LASTING, || unsafe { next(signal, handler) })
    }

    /// `ssignal(3)`.
    fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: the caller's arguments.
        set_by(signal, handler, LASTING, || unsafe { next(signal, handler) })
    }
}
