//! Cancellation.
//!
//! libc's own word for it, in the thread's control block, says that a thread was cancelled: so libc's
//! `pthread_testcancel` unwinds it. Besides, the fiber is cancelled, so that its wait ends. While the thread
//! has cancellation disabled, the fiber is not.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use carefree_context::tls;
use carefree_runtime::hosted::{self, HostedThread};
use libc::pthread_t;

use crate::signal;
use crate::thread::record::{self, Record};

/// The bit of libc's word that says so (`nptl/descr.h`, unchanged since glibc 2.1).
const CANCELED: u32 = 8;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// Whether the calling hosted thread was cancelled, and that takes effect.
pub(crate) fn is_due() -> bool {
    record::current().is_some_and(|(me, _)| me.is_cancelled())
}

/// Whether cancellation of the calling hosted thread is asynchronous.
pub(crate) fn ends_anywhere() -> bool {
    record::current().is_some_and(|(_, record)| record.cancellation.lock().asynchronous)
}

/// Ends the calling hosted thread, if it was cancelled.
pub(crate) fn test() {
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    if is_due() {
        // SAFETY: may be called at any time. It unwinds through frames that have nothing to drop.
        unsafe { pthread_testcancel() };
    }
}

fn request(thread: HostedThread, record: &Record, pthread: pthread_t) {
    let Some(layout) = tls::known() else { return };
    // SAFETY: a hosted thread, which was not joined.
    let word = unsafe { layout.cancellation_of(pthread as *mut u8) };
    if let Some(word) = word {
        word.fetch_or(CANCELED, Ordering::SeqCst);
    }
    let mut cancellation = record.cancellation.lock();
    cancellation.requested = true;
    let anywhere = cancellation.asynchronous;
    if cancellation.disabled {
        return;
    }
    thread.cancel();
    drop(cancellation);
    if anywhere {
        if thread.is_me() {
            test();
        } else {
            signal::interrupt(thread);
        }
    }
}

stand_in! {
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
            request(hosted, record, thread);
        }
        0
    }

    /// `pthread_setcancelstate(3)`.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int {
        let mut before = 0;
        // SAFETY: room for the answer.
        let done = unsafe { next(state, &raw mut before) };
        if done != 0 {
            return done;
        }
        if let Some((me, record)) = record::current() {
            let mut cancellation = record.cancellation.lock();
            cancellation.disabled = state == PTHREAD_CANCEL_DISABLE;
            match (cancellation.requested, cancellation.disabled) {
                (true, false) => me.cancel(),
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
        // SAFETY: the caller's arguments.
        let done = unsafe { next(kind, old) };
        if let (0, Some((_, record))) = (done, record::current()) {
            let asynchronous = kind == PTHREAD_CANCEL_ASYNCHRONOUS;
            record.cancellation.lock().asynchronous = asynchronous;
            if asynchronous {
                test();
            }
        }
        done
    }
}
