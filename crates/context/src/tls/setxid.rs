//! `setuid` and its kin while fibers run.
//!
//! To the kernel, user and group ids belong to a thread; POSIX wants them to belong to the process.
//! So libc's `setuid`, `setgid`, `setgroups`, … mark all threads they know and send each a signal,
//! whose handler makes the system call there and takes the mark off the thread *that it runs on*.
//! Sent to a carrier that is running a fiber, the handler would take it off the fiber. The
//! carrier's mark would stay, and the caller would signal again, and again, for ever. (Certainly so
//! if the caller is a fiber, since it keeps its own carrier busy.)
//!
//! This stands in front of libc's handler and calls it as the carrier.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::transmute;
use std::sync::OnceLock;

use super::layout::Layout;
use super::robust::kernel_thread_pointer;
use crate::arch;

/// The signal that libc keeps for this: the second of the real-time signals.
const SIGSETXID: c_int = 33;

/// `struct sigaction` of the kernel: libc's function refuses its own signals.
#[derive(Clone, Copy)]
#[repr(C)]
struct Action {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

static LIBCS: OnceLock<(Handler, &'static Layout)> = OnceLock::new();

/// Puts [`on_signal`] in front of libc's handler, if there is one. It is there as soon as there has
/// been a second thread, and a pristine thread has been.
pub(super) fn install(layout: &'static Layout) -> io::Result<()> {
    if layout.robust.is_none() {
        // The carrier could not be found. It is so under qemu-user only.
        return Ok(());
    }
    let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: asks for the current action; the structure is the kernel's on both processors.
    unsafe { sigaction(std::ptr::null(), &raw mut action)? };
    if action.handler == libc::SIG_DFL || action.handler == libc::SIG_IGN {
        return Ok(());
    }
    // SAFETY: libc installs a function with three arguments, and so says its flag.
    let handler = unsafe { transmute::<usize, Handler>(action.handler) };
    if LIBCS.set((handler, layout)).is_ok() {
        action.handler = on_signal as *const () as usize;
        // SAFETY: as libc's own but for the handler, which calls libc's.
        unsafe { sigaction(&raw const action, std::ptr::null_mut())? };
    }
    Ok(())
}

unsafe fn sigaction(new: *const Action, old: *mut Action) -> io::Result<()> {
    // SAFETY: the caller's promise; the last argument is the mask's length.
    match unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGSETXID, new, old, size_of::<u64>()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some((handler, layout)) = LIBCS.get() else { return };
    let own = arch::thread_pointer();
    let carrier = kernel_thread_pointer(layout);
    // SAFETY: the handler gets what the kernel passed. The carrier's block is complete, and nobody
    // runs under it: the kernel's thread that would is here. Between the two changes of the thread
    // pointer there is nothing but the call, and libc's handler is told nothing of either side.
    unsafe {
        if carrier.is_null() || carrier == own {
            handler(signal, info, context);
        } else {
            arch::set_thread_pointer(carrier);
            handler(signal, info, context);
            arch::set_thread_pointer(own);
        }
    }
}
