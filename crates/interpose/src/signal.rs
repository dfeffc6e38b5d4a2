//! `sigwait` and its kin, `pause` and `sigsuspend`.
//!
//! A signal is delivered to a thread. A signal that a fiber blocks with `pthread_sigmask` is blocked on its
//! carrier, for all fibers that run there, until it is unblocked there; a handler runs on some thread,
//! perhaps on the stack of a fiber. So a program that wants to receive signals on a fiber blocks them when
//! it starts, before there are carriers, and waits for them here.
//!
//! `sigwait` takes such a signal if it is pending, and waits for it by a `signalfd`.
//!
//! `pause` and `sigsuspend` wait until a handler has run *on the calling thread*. So each call on a fiber has
//! a thread of its own wait, with the carrier's mask or the given one. As in any program of several threads,
//! a signal to the process reaches that thread only if the others block it.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use carefree_ground::kernel;
use carefree_reactor::clock::{self, NEVER};
use carefree_runtime::launch::launch;
use carefree_runtime::operation::{Ended, Wait};
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Interrupted, Outcome, Reason, lot};
use libc::{siginfo_t, sigset_t, timespec};

use crate::call::answer::{Answer, answer, interruption, told};
use crate::call::host;
use crate::call::own_file::OwnFile;
use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::time::duration;
use crate::wait::readiness;
use crate::wait::user_op::UserOp;

/// Bytes of the kernel's set of signals.
const SIGNALS: usize = 8;

extern "C-unwind" fn raw_sigtimedwait(
    set: User<sigset_t>,
    info: User<siginfo_t>,
    timeout: User<timespec>,
) -> c_int {
    let arguments = [set.into(), info.into(), timeout.into(), SIGNALS.into()];
    answer(sys::call(Number::RT_SIGTIMEDWAIT, arguments)) as c_int
}

extern "C-unwind" fn raw_sigwaitinfo(set: User<sigset_t>, info: User<siginfo_t>) -> c_int {
    raw_sigtimedwait(set, info, User::NULL)
}

extern "C-unwind" fn raw_sigsuspend(mask: User<sigset_t>) -> c_int {
    let arguments = [mask.address(), SIGNALS, 0, 0, 0, 0];
    // SAFETY: the kernel reads the mask, which the program has given and the kernel checks; the thread's own
    // mask is put back when the call returns.
    answer(unsafe { kernel::call(libc::SYS_rt_sigsuspend, arguments) }) as c_int
}

interpose! {
    /// `sigwait(3)`.
    safe fn sigwait(set: User<sigset_t>, signal: User<c_int>) -> c_int, linked "__sigwait" {
        loop {
            match wait_for_one(set, User::NULL, NEVER) {
                Ok(number) => {
                    // SAFETY: libc's function writes to it unasked.
                    unsafe { signal.write_seen(number as c_int) };
                    return 0;
                }
                // A handler has run, or another thread of the host's has taken the signal.
                Err(libc::EINTR) if host::is_hosted() => _ = host::again(&()),
                Err(errno) => return told(errno),
            }
        }
    }
}

interpose! {
    /// `sigwaitinfo(2)`.
    safe fn sigwaitinfo(set: User<sigset_t>, info: User<siginfo_t>) -> c_int, else raw_sigwaitinfo {
        answer(wait_for_one(set, info, NEVER)) as c_int
    }
}

interpose! {
    /// `sigtimedwait(2)`.
    safe fn sigtimedwait(
        set: User<sigset_t>,
        info: User<siginfo_t>,
        timeout: User<timespec>,
    ) -> c_int, else raw_sigtimedwait {
        let wait = |deadline| wait_for_one(set, info, deadline);
        let waited = duration::deadline(timeout).and_then(wait);
        answer(waited) as c_int
    }
}

interpose! {
    /// `pause(2)`.
    safe fn pause() -> c_int, linked "__libc_pause" {
        answer(until_handled(None)) as c_int
    }
}

interpose! {
    /// `sigsuspend(2)`.
    safe fn sigsuspend(mask: User<sigset_t>) -> c_int, else raw_sigsuspend {
        let mask = mask.cast::<u64>();
        // The kernel uses 8 bytes of a set of signals.
        let handled = mask.read().and_then(|mask| until_handled(Some(mask)));
        answer(handled) as c_int
    }
}

/// Takes a signal of `set`, waiting for one if none is pending.
fn wait_for_one(set: User<sigset_t>, info: User<siginfo_t>, deadline: u64) -> Answer {
    let taken = wait_for_any(set, info, deadline);
    if let Some(host) = host::get().filter(|_| host::is_hosted()) {
        // It waits for none any more.
        (host.take_signal)(0);
    }
    taken
}

fn wait_for_any(set: User<sigset_t>, info: User<siginfo_t>, deadline: u64) -> Answer {
    let mut coming: Option<OwnFile> = None;
    let mut interrupted = None;
    let host = host::get().filter(|_| host::is_hosted());
    // The kernel uses 8 bytes of a set.
    let wanted = set.cast::<u64>().read()? & !host.map_or(0, |host| host.own_signals);
    let mut own = wanted;
    let set = User::lend(&mut own).cast::<sigset_t>();
    loop {
        if let Some(host) = host {
            if let Some(taken) = (host.take_signal)(wanted) {
                if !info.is_null() {
                    info.write(as_told_by_libc(taken))?;
                }
                return Ok(taken.si_signo as usize);
            }
        }
        // By another signal than those it waits for.
        if let Some(why) = interrupted {
            return Err(interruption(why));
        }
        let mut at_once = timespec { tv_sec: 0, tv_nsec: 0 };
        let time = User::lend(&mut at_once);
        let arguments = [set.into(), info.into(), time.into(), SIGNALS.into()];
        match sys::call(Number::RT_SIGTIMEDWAIT, arguments) {
            Err(libc::EAGAIN | libc::EINTR) => {}
            taken => {
                if taken.is_ok() && !info.is_null() {
                    // SAFETY: the kernel has written there.
                    unsafe { info.write_seen(as_told_by_libc(info.read_seen())) };
                }
                return taken;
            }
        }
        if deadline <= clock::now() {
            return Err(libc::EAGAIN);
        }
        if coming.is_none() {
            coming = signals(set).ok();
        }
        let how = Wait { deadline, ..Wait::until_done(Reason::Signal) };
        let ended =
            coming.as_ref().map(|coming| UserOp::poll(coming.fd(), libc::POLLIN).perform(&how));
        match ended {
            Some(Ended::Done(_) | Ended::Late | Ended::Pointless) => {}
            Some(Ended::Interrupted(Interrupted::Cancelled)) if host::waits_on() => {}
            Some(Ended::Interrupted(why)) => interrupted = Some(why),
            // (The process may have as many files as it may.)
            Some(Ended::Unsupported) | None => {
                let slept =
                    wait::sleep_until(deadline.min(duration::from_now(1_000_000)), Reason::Signal);
                carefree_runtime::interrupted().map_err(interruption)?;
                let is_cut = slept == Outcome::Cancelled && !host::waits_on();
                interrupted = is_cut.then_some(Interrupted::Cancelled);
            }
        }
    }
}

/// libc reports a signal that was sent to a thread like one sent to the process.
fn as_told_by_libc(mut sent: siginfo_t) -> siginfo_t {
    if sent.si_code == libc::SI_TKILL {
        sent.si_code = libc::SI_USER;
    }
    sent
}

/// A `signalfd`.
fn signals(set: User<sigset_t>) -> Result<OwnFile, c_int> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    let arguments = [usize::MAX.into(), set.into(), SIGNALS.into(), flags.into()];
    sys::call(Number::SIGNALFD4, arguments).map(OwnFile::kept)
}

/// What a fiber shares with the thread that waits for a handler in its stead.
struct Watch {
    /// An eventfd: a write to it ends the thread's wait.
    stop: OwnFile,
    /// The `errno` of its wait, once that has ended.
    ended: AtomicI32,
}

/// Waits until a handler has run on a thread with this mask: `EINTR`, or why the wait was cut short.
fn until_handled(mask: Option<u64>) -> Answer {
    if let Some(host) = host::get().filter(|_| host::is_hosted()) {
        (host.suspend)(mask);
        return Err(libc::EINTR);
    }
    carefree_runtime::interrupted().map_err(interruption)?;
    let arguments = [0usize.into(), libc::EFD_CLOEXEC.into()];
    let stop = sys::call(Number::EVENTFD2, arguments)?;
    let stop = OwnFile::kept(stop);
    let watch = Arc::new(Watch { stop, ended: AtomicI32::new(0) });
    let key = Arc::as_ptr(&watch) as usize;
    let handled = move |watch: &Watch| {
        let mut file = libc::pollfd { fd: watch.stop.fd(), events: libc::POLLIN, revents: 0 };
        let waited = match mask {
            Some(mask) => readiness::one_with_mask(&mut file, mask),
            None => readiness::one(&mut file, None),
        };
        // A sandbox may refuse every such call.
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
        // No thread can be started. Then the carrier waits, because no errno says so.
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
    let mut one = 1u64;
    let arguments = [watch.stop.fd().into(), User::lend(&mut one).into(), size_of::<u64>().into()];
    let _ = sys::call(Number::WRITE, arguments);
    while waits() {
        wait::park(key, waits, Reason::Signal, Until::WOKEN_ONLY);
    }
    Err(interrupted.map_or_else(interruption, |()| libc::EINTR))
}
