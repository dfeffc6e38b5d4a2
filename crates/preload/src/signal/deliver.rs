//! Handling the signals that have come for a thread, on that thread.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::sync::atomic::Ordering;

use carefree_runtime::Reason;
use carefree_runtime::hosted::HostedThread;
use libc::siginfo_t;

use crate::signal::post;
use crate::signal::set::{act_by_default, action, bit, is_ignored_by_default};
use crate::thread::record::{self, Record};
use crate::thread::{ends_anywhere, test_cancel};

/// What came of the signals that were handled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handled {
    /// Handlers that were called.
    pub(crate) handlers: u32,
    /// Of these, those after which calls are begun again.
    pub(crate) restarting: u32,
}

/// Handles the signals that have come for the calling hosted thread and that it does not block.
pub(crate) fn handle() {
    if let Some((_, record)) = record::current() {
        handle_all(record, None);
    }
}

/// [`handle`] amid a call; cancels the thread if that may be done anywhere.
pub(crate) unsafe extern "C-unwind" fn amid_call() {
    handle();
    if ends_anywhere() {
        test_cancel();
    }
}

/// [`handle`], with what the kernel has saved of the thread where a signal has interrupted it.
pub(crate) fn handle_all(record: &Record, context: Option<*mut c_void>) -> Handled {
    let mut handled = Handled::default();
    while let Some(info) = record.pending.take(!record.mask.load(Ordering::SeqCst)) {
        let signal = info.si_signo;
        let action = action(signal);
        match action.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL if is_ignored_by_default(signal) => {}
            libc::SIG_DFL => act_by_default(signal),
            _ => {
                handled.handlers += 1;
                handled.restarting += u32::from(action.sa_flags & libc::SA_RESTART != 0);
                // SAFETY: the program's handler for this signal.
                unsafe { call(record, info, &action, context) };
            }
        }
    }
    handled
}

/// Calls a handler.
///
/// # Safety
/// `action` is the program's for the signal.
unsafe fn call(
    record: &Record,
    mut info: siginfo_t,
    action: &libc::sigaction,
    context: Option<*mut c_void>,
) {
    let signal = info.si_signo;
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        // SAFETY: zeros are the default action.
        unsafe { libc::sigaction(signal, &std::mem::zeroed(), std::ptr::null_mut()) };
    }
    let before = record.mask.load(Ordering::SeqCst);
    // SAFETY: the kernel uses 8 bytes of a set.
    let with = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
    let own = if action.sa_flags & libc::SA_NODEFER == 0 { bit(signal) } else { 0 };
    record.mask.store(before | with | own, Ordering::SeqCst);
    // SAFETY: the address of the caller's variable.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the program's handler, which has the type that its flags say.
    unsafe {
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
            let mut here = MaybeUninit::<libc::ucontext_t>::uninit();
            let context = context.unwrap_or_else(|| {
                libc::getcontext(here.as_mut_ptr());
                here.as_mut_ptr().cast()
            });
            transmute::<usize, Handler>(action.sa_sigaction)(signal, &raw mut info, context);
        } else {
            type Handler = unsafe extern "C-unwind" fn(c_int);
            transmute::<usize, Handler>(action.sa_sigaction)(signal);
        }
        // Asked for anew: the thread may be on another carrier.
        *libc::__errno_location() = errno;
    }
    record.mask.store(before, Ordering::SeqCst);
    post::opened(!before);
}

/// Called at the end of each call of a hosted thread at which it can be cancelled: handles signals, and
/// cancels the thread. Returns whether a call that was `interrupted` is to be made again.
pub(crate) unsafe extern "C-unwind" fn after_call(interrupted: bool) -> bool {
    let Some((me, record)) = record::current() else { return false };
    let handled = handle_all(record, None);
    test_cancel();
    if !interrupted || handled.handlers > handled.restarting {
        return false;
    }
    let waited_for = Reason::from_code(record.interrupted.swap(0, Ordering::Relaxed));
    // (Interrupted, but for nothing: the signal was taken by another call meanwhile.)
    is_begun_again(waited_for) && !me.is_cancelled()
}

/// Whether a wait is begun again after a handler with `SA_RESTART` (signal(7)).
fn is_begun_again(reason: Reason) -> bool {
    !matches!(reason, Reason::NotStarted | Reason::Sleep | Reason::Poll | Reason::Signal)
}

/// Has `thread` handle a signal soon.
pub(crate) fn deliver(thread: HostedThread, info: siginfo_t) {
    record::of(thread).pending.push(info);
    interrupt(thread);
    post::look_again();
}

/// Interrupts what a thread does, so that it handles what has come for it.
pub(crate) fn interrupt(thread: HostedThread) {
    let record = record::of(thread);
    let reason = thread.reason();
    if reason == Reason::Runs {
        let carrier = thread.carrier_thread();
        if carrier != 0 {
            crate::signal::set::poke(carrier);
        }
        return;
    }
    record.interrupted.store(reason as u8, Ordering::Relaxed);
    thread.interrupt();
}
