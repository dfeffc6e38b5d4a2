//! Cancellation.
//!
//! The fiber is cancelled, so that its wait ends, unless the thread has cancellation disabled, or is amid a
//! system call by its number; and the call ends by a test. That sets libc's own word for it, in the thread's control block, and calls libc's
//! `pthread_testcancel`, which unwinds the thread. Not before: calls of libc's that this library makes on the
//! thread's stack test the word, too, and would unwind it amid them.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_context::tls;
use carefree_runtime::hosted::{self, HostedThread};
use libc::pthread_t;

use crate::signal;
use crate::thread::record::{self, Record};

/// The bit of libc's word that says so (`nptl/descr.h`, unchanged since glibc 2.1).
const CANCELED: u32 = 8;
/// That by which libc says that the thread may be unwound anywhere, also amid a call of its own that waits: as
/// `fgets`, which reads without this library's knowing. (Up to glibc 2.40. For later ones see `signal::carrier`.)
const ASYNCHRONOUS: u32 = 2;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// Whether the calling hosted thread was cancelled, and that takes effect.
pub(crate) fn is_due() -> bool {
    record::current().is_some_and(|(me, _)| me.is_cancelled())
}

/// Whether cancellation of the calling hosted thread is asynchronous.
pub(crate) fn ends_anywhere() -> bool {
    record::current().is_some_and(|(_, record)| record.asynchronous.load(Ordering::SeqCst))
}

/// Whether the calling hosted thread, which a signal has interrupted, is in a call that waits within libc: there
/// libc lets a thread be cancelled anywhere. If so, libc's word does not say it any more until [`resume_wait`]: what
/// the thread does meanwhile, in a handler or at its end, is no such wait.
pub(crate) fn leave_wait(me: HostedThread, record: &Record) -> bool {
    let Some(word) = word_of(me) else { return false };
    // (A thread that can be cancelled anywhere has set the bit itself.)
    let waits = word.load(Ordering::SeqCst) & ASYNCHRONOUS != 0
        && !record.asynchronous.load(Ordering::SeqCst);
    if waits {
        word.fetch_and(!ASYNCHRONOUS, Ordering::SeqCst);
    }
    waits
}

/// The calling hosted thread is in the wait again that it had [left](leave_wait), for the handlers have returned.
pub(crate) fn resume_wait(me: HostedThread) {
    if let Some(word) = word_of(me) {
        word.fetch_or(ASYNCHRONOUS, Ordering::SeqCst);
    }
}

/// libc's word for the cancellation of the calling thread.
fn word_of<'a>(me: HostedThread) -> Option<&'a AtomicU32> {
    // SAFETY: the calling thread's own.
    unsafe { tls::known()?.cancellation_of(me.pthread() as *mut u8) }
}

/// The calling hosted thread begins a system call by its number, or has ended it. `syscall` is no call at which threads
/// are cancelled: a request takes effect at the next one that is. Whether the thread was in one before.
pub(crate) fn within_syscall(begins: bool) -> bool {
    record::current().is_some_and(|(me, record)| spare(me, record, begins))
}

/// Has the calling hosted thread take no notice of cancellation, or take notice again; whether it took none before.
fn spare(me: HostedThread, record: &Record, spared: bool) -> bool {
    let spared = spared && !record.asynchronous.load(Ordering::SeqCst);
    let mut cancellation = record.cancellation.lock();
    let before = std::mem::replace(&mut cancellation.spared, spared);
    let counts = cancellation.requested && !cancellation.disabled && !cancellation.ends;
    // (A child of `vfork` looks like the thread that waits for it, and leaves that as it is.)
    if counts && spared != before && !signal::is_child() {
        if spared {
            me.take_cancel_back();
        } else {
            me.cancel();
            signal::look_again();
        }
    }
    before
}

/// The calling hosted thread calls a handler of signals, maybe amid a system call by its number, which the handler may
/// leave by a jump: whether [`resume_syscall`] is to be called after it.
pub(crate) fn leave_syscall(me: HostedThread, record: &Record) -> bool {
    spare(me, record, false)
}

/// The calling hosted thread is in the system call again that it had [left](leave_syscall).
pub(crate) fn resume_syscall(me: HostedThread, record: &Record) {
    spare(me, record, true);
}

/// Ends the calling hosted thread, if it was cancelled.
pub(crate) fn test() {
    // (A child of `vfork` looks like the thread that is to be cancelled.)
    if is_due() && !signal::is_child() {
        // SAFETY: may be called at any time. It unwinds through frames that have nothing to drop.
        unsafe { pthread_testcancel() };
    }
}

/// The calling hosted thread ends, by `pthread_exit`: what it does from now on is not cut short. (A request is
/// over when this has taken the lock, or does nothing then.)
pub(crate) fn begin_end() {
    if let Some((me, record)) = record::current() {
        let mut cancellation = record.cancellation.lock();
        cancellation.ends = true;
        // It may have been cut short amid a wait.
        record.holds.store(false, Ordering::Relaxed);
        me.take_cancel_back();
        drop(cancellation);
        signal::open_faults(signal::FAULTS);
    }
}

/// The function of the calling hosted thread has returned: destructors of its variables, or what the program does at its
/// exit, are not cut short, for there is no frame left to unwind to. (Natively the thread's result tells if they were.)
pub(super) fn begin_return() {
    if let Some((me, record)) = record::current() {
        let mut cancellation = record.cancellation.lock();
        cancellation.ends = true;
        if cancellation.requested {
            me.take_cancel_back();
        }
    }
}

/// The calling hosted thread ends, because it was cancelled: libc's next test for that unwinds it.
fn begin_cancelled() {
    begin_end();
    if let Some(word) = record::current().and_then(|(me, _)| word_of(me)) {
        word.fetch_or(CANCELED, Ordering::SeqCst);
    }
}

fn request(thread: HostedThread, record: &Record) {
    // All of it under the lock: see `begin_end`.
    let mut cancellation = record.cancellation.lock();
    cancellation.requested = true;
    let anywhere = record.asynchronous.load(Ordering::SeqCst);
    if cancellation.disabled || cancellation.ends || cancellation.spared {
        return;
    }
    thread.cancel();
    drop(cancellation);
    signal::look_again();
    if anywhere {
        if thread.is_me() {
            test();
        } else {
            signal::interrupt(thread);
        }
    }
}

/// Whether the calling hosted thread was cancelled, whether or not that can take effect.
fn is_requested() -> bool {
    record::current().is_some_and(|(_, record)| record.cancellation.lock().requested)
}

stand_in! {
    /// `pthread_testcancel(3)`.
    fn pthread_testcancel() {
        // A hosted thread that was not cancelled has nothing to test: libc's might see a request that comes
        // now, and the thread would end without `begin_end`.
        if record::current().is_some() {
            if !is_due() || signal::is_child() {
                return;
            }
            begin_cancelled();
        }
        // SAFETY: may be called at any time.
        unsafe { next() }
    }

    /// `pthread_cancel(3)`.
    fn pthread_cancel(thread: pthread_t) -> c_int {
        // SAFETY: the caller's argument.
        let Some((hosted, record)) = (unsafe { record::find(thread) }) else {
            // SAFETY: the caller's argument, which is no hosted thread's.
            return unsafe {
                if hosted::is_gone(thread as usize) { libc::ESRCH } else { next(thread) }
            };
        };
        if !hosted.has_ended() {
            request(hosted, record);
        }
        0
    }

    /// `pthread_setcancelstate(3)`.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int {
        let mut before = 0;
        if state != PTHREAD_CANCEL_DISABLE && ends_anywhere() && is_requested() {
            // libc's unwinds the thread at once.
            begin_cancelled();
        }
        // SAFETY: room for the answer.
        let done = unsafe { next(state, &raw mut before) };
        if done != 0 {
            return done;
        }
        if let Some((me, record)) = record::current() {
            let mut cancellation = record.cancellation.lock();
            cancellation.disabled = state == PTHREAD_CANCEL_DISABLE;
            match (cancellation.requested && !cancellation.ends, cancellation.disabled) {
                (true, false) => {
                    me.cancel();
                    signal::look_again();
                }
                (true, true) => me.take_cancel_back(),
                _ => {}
            }
        }
        if !old.is_null() {
            // SAFETY: the caller's argument.
            unsafe { old.write(before) };
        }
        0
    }

    /// `pthread_setcanceltype(3)`.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
        if kind == PTHREAD_CANCEL_ASYNCHRONOUS && is_due() {
            // libc's unwinds the thread at once.
            begin_cancelled();
        }
        // SAFETY: the caller's arguments.
        let done = unsafe { next(kind, old) };
        if let (0, Some((_, record))) = (done, record::current()) {
            let asynchronous = kind == PTHREAD_CANCEL_ASYNCHRONOUS;
            let cancellation = record.cancellation.lock();
            record.asynchronous.store(asynchronous, Ordering::SeqCst);
            drop(cancellation);
            if asynchronous {
                test();
            }
        }
        done
    }
}
