//! A crash says that the program runs under `carefree run`, and how to try without.
//!
//! Where the program has no handler for a fault, one of ours is in the kernel's table. It writes the line and
//! puts the default action back. The fault happens again when it returns, so the process ends by it as it would
//! have: with the same status, and with the registers of the fault in the core dump. The program does not see
//! the handler: where it asks what was set before, it is told of the default action. On an overflown stack the
//! kernel cannot call a handler, so there is no line.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::kernel;
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
    // SAFETY: the kernel passes what it knows of the signal.
    let is_fault = unsafe { (*info).si_code } > 0;
    static TOLD: AtomicBool = AtomicBool::new(false);
    if is_fault && !TOLD.swap(true, Ordering::Relaxed) {
        let name = FAULTS.iter().find(|(fault, _)| *fault == signal).map_or("", |(_, name)| name);
        tell(name);
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
        if !is_fault || matches!(signal, libc::SIGTRAP | libc::SIGSYS) {
            let _ = kernel::call(libc::SYS_tgkill, own);
        }
    }
}

/// Writes the line, without libc.
fn tell(name: &str) {
    let mut line = [0; 256];
    let mut length = 0;
    let parts = [
        "carefree: ",
        name,
        " in a program whose threads are fibers (`carefree run`); to see whether it ends so without, set \
         CAREFREE_RUN=off\n",
    ];
    for byte in parts.iter().flat_map(|part| part.bytes()) {
        if let Some(place) = line.get_mut(length) {
            *place = byte;
            length += 1;
        }
    }
    // SAFETY: the kernel reads the line.
    let _ = unsafe { kernel::call(libc::SYS_write, [2, line.as_ptr() as usize, length, 0, 0, 0]) };
}

/// Whether it is the handler of crashes.
pub(super) fn is_ours(handler: sighandler_t) -> bool {
    handler == on_crash as *const () as usize
}
