//! `setuid` and its kin while fibers run.
//!
//! To the kernel, user and group ids belong to a thread; POSIX wants them to belong to the process.
//! So libc's `setuid`, `setgid`, `setgroups`, … mark all threads that libc knows and send each a
//! signal, whose handler makes the system call there and clears the mark of the thread *that it
//! runs on*. On a carrier that is running a fiber, the handler would clear the fiber's mark. The
//! carrier's would stay, and the caller would send signals for ever. (Certainly so if the caller is
//! a fiber, since it keeps its own carrier busy.)
//!
//! The handler installed here calls libc's under the carrier's thread pointer.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::transmute;
use std::sync::OnceLock;

use super::layout::Layout;
use crate::arch;

/// The signal that libc reserves for this: the second of the real-time signals.
const SIGSETXID: c_int = 33;

/// The kernel's `struct sigaction`: libc's function refuses the signals that libc reserves.
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

/// Installs [`on_signal`] in place of libc's handler, if there is one. libc installs its handler
/// when the first additional thread starts, as the pristine thread has by now.
pub(super) fn install(layout: &'static Layout) -> io::Result<()> {
    if layout.robust.is_none() {
        // `on_signal` could not find the carrier. This happens under qemu-user only.
        return Ok(());
    }
    let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: only writes the current action to `action`, which has the kernel's layout on both
    // processors.
    unsafe { sigaction(std::ptr::null(), &raw mut action)? };
    if action.handler == libc::SIG_DFL || action.handler == libc::SIG_IGN {
        return Ok(());
    }
    // SAFETY: libc installs a function with three arguments (SA_SIGINFO).
    let handler = unsafe { transmute::<usize, Handler>(action.handler) };
    if LIBCS.set((handler, layout)).is_ok() {
        action.handler = on_signal as *const () as usize;
        // SAFETY: libc's own action but for the handler, which calls libc's.
        unsafe { sigaction(&raw const action, std::ptr::null_mut())? };
    }
    Ok(())
}

/// # Safety
/// `new` is null or an action that is sound to install, `old` null or writable.
unsafe fn sigaction(new: *const Action, old: *mut Action) -> io::Result<()> {
    // SAFETY: the kernel reads and writes the two structures; the last argument is the mask's length.
    match unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGSETXID, new, old, size_of::<u64>()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
/// Only the kernel calls it, as a handler with SA_SIGINFO.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some((handler, layout)) = LIBCS.get() else { return };
    let own = arch::thread_pointer();
    let carrier = layout.kernel_thread_pointer().filter(|carrier| *carrier != own);
    // SAFETY: the handler gets what the kernel passed. The carrier's block is complete, and no code
    // runs under it: the only kernel thread that could is this one. Only the call lies between the
    // two changes of the thread pointer, and it takes nothing that depends on thread-local storage.
    unsafe {
        if let Some(carrier) = carrier {
            arch::set_thread_pointer(carrier);
            handler(signal, info, context);
            arch::set_thread_pointer(own);
        } else {
            handler(signal, info, context);
        }
    }
}
