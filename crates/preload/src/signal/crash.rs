//! A crash says that the program runs under `carefree run`, and how to try without.
//!
//! Where the program has no handler for a fault, one of ours is in the kernel's table. It writes the line and
//! puts the default action back. The fault happens again when it returns, so the process ends by it as it would
//! have: with the same status, and with the registers of the fault in the core dump. The program does not see
//! the handler: where it asks what was set before, it is told of the default action.
//!
//! A thread that has overflowed its stack is on its carrier's alternate one here, and the line says what has
//! happened. Some programs have a handler that looks for that, and does not find the fault in the guard that
//! `pthread_getattr_np` tells, because a stack is larger than was asked for: Rust's std restores the default
//! action then, and returns. That puts this handler back, so there the line tells it, too.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_context::stack::{self, StackInfo};
use carefree_ground::kernel;
use carefree_ground::text::Text;
use libc::{sighandler_t, siginfo_t};

use crate::signal::set::number;

/// What ends a program by the default action, and what it is called.
pub(super) const FAULTS: [(c_int, &str); 6] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGSYS, "SIGSYS"),
];

/// # Safety
/// Only the kernel calls it, as a handler with SA_SIGINFO.
pub(super) unsafe extern "C" fn on_crash(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes what it knows of the signal; a fault has an address.
    let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr() as usize) };
    static TOLD: AtomicBool = AtomicBool::new(false);
    if let Some(address) = fault.filter(|_| !TOLD.swap(true, Ordering::Relaxed)) {
        let name = FAULTS.iter().find(|(fault, _)| *fault == signal).map_or("", |(_, name)| name);
        let stack = stack::find(address).filter(|stack| stack.is_guard(address));
        tell(name, stack.filter(|_| signal == libc::SIGSEGV));
    }
    // The kernel's `struct sigaction` of the default action: zeros.
    let default = [0usize; 4];
    let bytes = size_of::<u64>();
    let own = [std::process::id() as usize, number(), signal as usize, 0, 0, 0];
    // SAFETY: the kernel reads the action; the other call accesses no memory. Both are made without libc, in
    // which the thread may have been stopped anywhere.
    unsafe {
        let arguments = [signal as usize, default.as_ptr() as usize, 0, bytes, 0, 0];
        let _ = kernel::call(libc::SYS_rt_sigaction, arguments);
        // These do not happen again. The signal is taken when this returns.
        if fault.is_none() || matches!(signal, libc::SIGTRAP | libc::SIGSYS) {
            let _ = kernel::call(libc::SYS_tgkill, own);
        }
    }
}

/// Writes the line, without libc.
fn tell(name: &str, overflown: Option<StackInfo>) {
    let mut line = Text::of(format_args!(
        "carefree: {name} in a program whose threads are fibers (`carefree run`)"
    ));
    if let Some(stack) = overflown {
        line.say(format_args!(
            ": a thread has overflowed its stack of {} KiB (`--stack SIZE` sets it for threads that ask for no size)",
            (stack.size - stack.guard) >> 10
        ));
    }
    line.say(format_args!("; to see whether it ends so without, set CAREFREE_RUN=off\n"));
    line.print();
}

/// The action that has the handler of crashes called.
pub(super) fn action() -> libc::sigaction {
    // SAFETY: zeros are an action, of which the handler and the flags are set; the handler is of the type that they
    // say.
    let mut action = unsafe { std::mem::zeroed::<libc::sigaction>() };
    action.sa_sigaction = on_crash as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    action
}

/// Whether it is the handler of crashes.
pub(super) fn is_ours(handler: sighandler_t) -> bool {
    handler == on_crash as *const () as usize
}
