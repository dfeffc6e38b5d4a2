//! Keeping handlers of signals out of the runtime, on threads that are no carriers.
//!
//! Carriers of hosted threads block signals. But a program may have threads of the kernel's beside them, in
//! which the kernel calls its handlers anywhere, and a handler may wake a fiber (`sem_post`): amid another
//! wake-up, it would wait for a lock that its own thread holds. So such threads block signals meanwhile. That
//! costs two system calls for each fiber they wake, besides those of waking a carrier.

use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::kernel;

use crate::carrier::carrier;

/// Whether the process has hosted threads.
static HOSTING: AtomicBool = AtomicBool::new(false);

/// Notes whether the process has hosted threads.
pub(crate) fn set_hosting(hosting: bool) {
    HOSTING.store(hosting, Ordering::Relaxed);
}

/// The calling kernel thread blocks signals until this is dropped.
pub(crate) struct Quiet {
    before: u64,
}

/// Blocks signals, if handlers of the program's may run on the calling kernel thread, and the process has
/// hosted threads.
#[inline(always)]
pub(crate) fn quiet() -> Option<Quiet> {
    if HOSTING.load(Ordering::Relaxed) { block() } else { None }
}

#[cold]
fn block() -> Option<Quiet> {
    /// All but faults, of which the runtime causes none.
    const ALL: u64 = !(1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1));
    carrier::here().is_none().then(|| Quiet { before: change(ALL) })
}

/// Changes the calling kernel thread's mask; returns the one before.
fn change(to: u64) -> u64 {
    let mut before = 0u64;
    let sets = [(&raw const to) as usize, (&raw mut before) as usize];
    let arguments = [libc::SIG_SETMASK as usize, sets[0], sets[1], size_of::<u64>(), 0, 0];
    // SAFETY: two sets of signals.
    let _ = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
    before
}

impl Drop for Quiet {
    fn drop(&mut self) {
        change(self.before);
    }
}
