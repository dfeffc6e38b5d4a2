//! `sigwait` and its kin, `pause` and `sigsuspend`.
//!
//! A signal is delivered to a thread. What a fiber blocks with `pthread_sigmask` is blocked on its
//! carrier, for whatever runs there, until somebody lets it through again; a handler runs on some
//! thread, perhaps on the stack of a fiber. So who wants to receive signals on a fiber blocks them
//! when the program starts, before there are carriers, and waits for them here.
//!
//! `sigwait` takes such a signal when it has come, and waits for it by a `signalfd`.
//!
//! `pause` and `sigsuspend` wait until a handler has run *on the thread that waits*: a thread of
//! their own does, with the mask of the carrier or the one given. As in any program of several
//! threads, a signal to the process goes to that thread only if others block it.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use carefree_ground::kernel;
use carefree_reactor::Op;
use carefree_reactor::clock::{self, NEVER};
use carefree_runtime::launch::launch;
use carefree_runtime::operation::{self, Ended, Wait};
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Reason, lot};
use libc::{siginfo_t, sigset_t, timespec};

use crate::call::answer::{Answer, answer, interruption, told};
use crate::call::memory;
use crate::call::own_file::OwnFile;
use crate::time::duration;
use crate::wait::readiness;

/// Bytes of the kernel's set of signals.
const SIGNALS: usize = 8;

unsafe extern "C-unwind" fn raw_sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    timeout: *const timespec,
) -> c_int {
    let arguments = [set as usize, info as usize, timeout as usize, SIGNALS, 0, 0];
    // SAFETY: the caller's promise.
    answer(unsafe { kernel::call(libc::SYS_rt_sigtimedwait, arguments) }) as c_int
}

unsafe extern "C-unwind" fn raw_sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { raw_sigtimedwait(set, info, ptr::null()) }
}

unsafe extern "C-unwind" fn raw_sigsuspend(mask: *const sigset_t) -> c_int {
    let arguments = [mask as usize, SIGNALS, 0, 0, 0, 0];
    // SAFETY: the caller's promise.
    answer(unsafe { kernel::call(libc::SYS_rt_sigsuspend, arguments) }) as c_int
}

interpose! {
    /// `sigwait(3)`.
    fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int, linked "__sigwait" {
        // SAFETY: the caller's promise.
        match unsafe { wait_for_one(set, ptr::null_mut(), NEVER) } {
            Ok(number) => {
                // SAFETY: as above.
                unsafe { signal.write(number as c_int) };
                0
            }
            Err(errno) => told(errno),
        }
    }
}

interpose! {
    /// `sigwaitinfo(2)`.
    fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int, else raw_sigwaitinfo {
        // SAFETY: the caller's promise.
        answer(unsafe { wait_for_one(set, info, NEVER) }) as c_int
    }
}

interpose! {
    /// `sigtimedwait(2)`.
    fn sigtimedwait(
        set: *const sigset_t,
        info: *mut siginfo_t,
        timeout: *const timespec,
    ) -> c_int, else raw_sigtimedwait {
        // SAFETY: the caller's promise.
        let wait = |deadline| unsafe { wait_for_one(set, info, deadline) };
        let waited = duration::deadline(timeout).and_then(wait);
        answer(waited) as c_int
    }
}

interpose! {
    /// `pause(2)`.
    fn pause() -> c_int, linked "__libc_pause" {
        answer(until_handled(None)) as c_int
    }
}

interpose! {
    /// `sigsuspend(2)`.
    fn sigsuspend(mask: *const sigset_t) -> c_int, else raw_sigsuspend {
        let mask = mask.cast::<u64>();
        let handled = memory::check(mask, 1).and_then(|()| {
            // SAFETY: it can be read, and the kernel uses as much of a set of signals.
            until_handled(Some(unsafe { mask.read_unaligned() }))
        });
        answer(handled) as c_int
    }
}

/// Takes a signal of `set`, if need be after it has come.
///
/// # Safety
/// As for `sigtimedwait`.
unsafe fn wait_for_one(set: *const sigset_t, info: *mut siginfo_t, deadline: u64) -> Answer {
    let mut coming: Option<OwnFile> = None;
    loop {
        let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
        let time = &raw const at_once as usize;
        let arguments = [set as usize, info as usize, time, SIGNALS, 0, 0];
        // SAFETY: the caller's promise.
        match unsafe { kernel::call(libc::SYS_rt_sigtimedwait, arguments) } {
            Err(libc::EAGAIN | libc::EINTR) => {}
            taken => {
                // SAFETY: as above.
                if let (Ok(_), Some(info)) = (taken, unsafe { info.as_mut() }) {
                    // As libc has it: whoever sent it, it is a user's.
                    if info.si_code == libc::SI_TKILL {
                        info.si_code = libc::SI_USER;
                    }
                }
                return taken;
            }
        }
        if deadline <= clock::now() {
            return Err(libc::EAGAIN);
        }
        let fd = match &coming {
            Some(coming) => coming.fd(),
            // SAFETY: as above.
            None => coming.insert(unsafe { signals(set) }?).fd(),
        };
        let how = Wait { deadline, ..Wait::until_done(Reason::Signal) };
        // SAFETY: it points to nothing.
        match unsafe { operation::perform(&Op::Poll { fd, events: libc::POLLIN as u32 }, &how) } {
            Ended::Done(_) | Ended::Late | Ended::Pointless => {}
            Ended::Interrupted(why) => return Err(interruption(why)),
            Ended::Unsupported => {
                wait::sleep_until(deadline.min(duration::from_now(1_000_000)), Reason::Signal);
                carefree_runtime::interrupted().map_err(interruption)?;
            }
        }
    }
}

/// A `signalfd`.
///
/// # Safety
/// `set` points to a set of signals.
unsafe fn signals(set: *const sigset_t) -> Result<OwnFile, c_int> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    let arguments = [usize::MAX, set as usize, SIGNALS, flags as usize, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { kernel::call(libc::SYS_signalfd4, arguments) }.map(OwnFile::opened)
}

/// A thread that waits for a handler to run on it, and who waits for that thread.
struct Watch {
    /// Written to when it shall wait no longer.
    stop: OwnFile,
    /// The `errno` of its wait, once that has ended.
    ended: AtomicI32,
}

/// Waits until a handler has run on a thread with this mask: `EINTR`, or why the fiber goes on.
fn until_handled(mask: Option<u64>) -> Answer {
    carefree_runtime::interrupted().map_err(interruption)?;
    let arguments = [0, libc::EFD_CLOEXEC as usize, 0, 0, 0, 0];
    // SAFETY: no memory is involved.
    let stop = unsafe { kernel::call(libc::SYS_eventfd2, arguments) }?;
    let stop = OwnFile::opened(stop);
    let watch = Arc::new(Watch { stop, ended: AtomicI32::new(0) });
    let key = Arc::as_ptr(&watch) as usize;
    let handled = move |watch: &Watch| {
        let mut file = libc::pollfd { fd: watch.stop.fd(), events: libc::POLLIN, revents: 0 };
        let waited = match mask {
            Some(mask) => readiness::one_with_mask(&mut file, mask),
            None => readiness::one(&mut file, None),
        };
        // A sandbox may let no such call through.
        watch.ended.store(waited.err().unwrap_or(libc::EINTR), Ordering::Release);
    };
    let started = launch("carefree-signals", {
        let watch = Arc::clone(&watch);
        move || {
            handled(&watch);
            lot::unpark(key, usize::MAX);
        }
    });
    if started.is_err() {
        // No thread can be had. Then the carrier waits, for no errno says that.
        handled(&watch);
        return Err(watch.ended.load(Ordering::Acquire));
    }
    let waits = || watch.ended.load(Ordering::Acquire) == 0;
    let mut interrupted = Ok(());
    while waits() && interrupted.is_ok() {
        wait::park(key, waits, Reason::Signal, Until::WOKEN);
        interrupted = carefree_runtime::interrupted();
    }
    if !waits() {
        return Err(watch.ended.load(Ordering::Acquire));
    }
    let one = 1u64;
    let arguments = [watch.stop.fd() as usize, &raw const one as usize, 8, 0, 0, 0];
    // SAFETY: there are eight bytes.
    let _ = unsafe { kernel::call(libc::SYS_write, arguments) };
    while waits() {
        wait::park(key, waits, Reason::Signal, Until::WOKEN_ONLY);
    }
    Err(interrupted.map_or_else(interruption, |()| libc::EINTR))
}
