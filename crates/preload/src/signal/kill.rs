//! Sending signals to threads, and to the process.
//!
//! If a thread sends its own process a signal, the kernel has handed it to a thread when the call returns, and a handler
//! that the caller is to run has run. The kernel's is the dispatcher, so the caller waits until that has passed it on.

use std::ffi::{c_int, c_long, c_uint};
use std::sync::atomic::Ordering;

use carefree_ground::kernel;
use carefree_runtime::hosted::{self, HostedThread};
use libc::{pid_t, pthread_t, siginfo_t, sigval};

use crate::place;
use crate::signal::set::{
    OURS, UNBLOCKABLE, act_by_default, action, bit, is_ignored_by_default, is_libcs, is_signal,
};
use crate::signal::{deliver, sent};
use crate::thread::find_number;
use crate::thread::record::{self, set_errno};

/// `pthread_kill` of a hosted thread: an `errno`, or 0.
pub(crate) fn send(thread: HostedThread, signal: c_int) -> c_int {
    send_told(thread, signal, || sent::told(signal, libc::SI_TKILL, 0))
}

/// Sends a thread a signal of which this is told.
fn send_told(thread: HostedThread, signal: c_int, info: impl FnOnce() -> siginfo_t) -> c_int {
    if signal == 0 {
        return 0;
    }
    if !is_signal(signal) {
        return libc::EINVAL;
    }
    if thread.has_ended() {
        return 0;
    }
    let record = record::of(thread);
    let blocked = record.mask.load(Ordering::SeqCst) & bit(signal) != 0;
    if !blocked && action(signal).sa_sigaction == libc::SIG_DFL {
        act_by_default(signal);
        return 0;
    }
    if thread.is_me() {
        record.pending.push(info(), false);
        deliver::handle();
    } else {
        // (A thread that has ended by now is sent nothing.)
        let _ = deliver::deliver(thread, info());
    }
    0
}

/// Sends the own process a signal of which this is told: it is the receiving thread's when this returns, and if that
/// is the caller, it is handled by then. What it does by default is done. False if the kernel is to send it.
fn send_here(process: pid_t, signal: c_int, info: impl FnOnce() -> siginfo_t) -> bool {
    let own = process == std::process::id() as pid_t && is_signal(signal);
    own && bit(signal) & UNBLOCKABLE == 0 && record::current().is_some() && {
        match action(signal).sa_sigaction {
            libc::SIG_IGN => false,
            libc::SIG_DFL if is_ignored_by_default(signal) => false,
            libc::SIG_DFL => {
                let acts = deliver::receiver(signal).is_some();
                if acts {
                    act_by_default(signal);
                }
                acts
            }
            _ => deliver::deliver_to_any(info()),
        }
    }
}

/// Whether this is the number of the process.
pub(crate) fn is_own(process: pid_t) -> bool {
    process == std::process::id() as pid_t
}

/// Whether `kill` may send a signal to the own process, among others.
fn is_here(process: pid_t) -> bool {
    match process {
        -1 | 0 => true,
        1.. => is_own(process),
        _ => process.checked_neg().is_some_and(is_own_group),
    }
}

fn is_own_group(group: pid_t) -> bool {
    // SAFETY: takes nothing.
    group == 0 || group == unsafe { libc::getpgrp() }
}

/// What `call` returns. If it may have sent the own process a signal, that is handed over then.
fn settled_if(here: bool, call: impl FnOnce() -> c_int) -> c_int {
    let result = call();
    if here && result == 0 {
        deliver::settle();
    }
    result
}

/// These calls by their numbers: an `errno`, or 0. `None` for others.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn by_number(number: c_long, arguments: [usize; 6]) -> Option<c_int> {
    let [process, signal, third, fourth, ..] = arguments;
    let here = match number {
        libc::SYS_kill => {
            let (process, signal) = (process as pid_t, signal as c_int);
            if send_here(process, signal, || sent::told(signal, libc::SI_USER, 0)) {
                return Some(0);
            }
            is_here(process)
        }
        libc::SYS_rt_sigqueueinfo => is_here(process as pid_t),
        libc::SYS_pidfd_send_signal => true,
        libc::SYS_rt_tgsigqueueinfo => {
            let thread = find_number(signal as c_int).filter(|_| is_own(process as pid_t))?;
            // SAFETY: as this function demands.
            let mut info = match unsafe { place::read(fourth as *const siginfo_t) } {
                Ok(info) => info,
                Err(errno) => return Some(errno),
            };
            info.si_signo = third as c_int;
            return Some(send_told(*thread, info.si_signo, || info));
        }
        _ => return None,
    };
    // SAFETY: as this function demands.
    let call = || unsafe { kernel::call(number, arguments) }.err().unwrap_or(0);
    Some(settled_if(here, call))
}

/// -1 with `errno`, or 0.
fn answer(errno: c_int) -> c_int {
    if errno == 0 {
        return 0;
    }
    set_errno(errno);
    -1
}

stand_in! {
    /// `pthread_kill(3)`.
    fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match record::find(thread) {
                Some(_) if is_libcs(signal) => libc::EINVAL,
                Some((thread, _)) => send(thread, signal),
                None if hosted::is_gone(thread as usize) => libc::ESRCH,
                None => next(thread, signal),
            }
        }
    }

    /// `pthread_sigqueue(3)`.
    fn pthread_sigqueue(thread: pthread_t, signal: c_int, value: sigval) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match record::find(thread) {
                Some(_) if is_libcs(signal) => libc::EINVAL,
                Some((thread, _)) => {
                    let value = value.sival_ptr as usize;
                    send_told(thread, signal, || sent::told(signal, libc::SI_QUEUE, value))
                }
                None => next(thread, signal, value),
            }
        }
    }

    /// `tgkill(2)`.
    fn tgkill(process: pid_t, thread: pid_t, signal: c_int) -> c_int {
        match find_number(thread).filter(|_| is_own(process)) {
            Some(thread) => answer(send(*thread, signal)),
            // SAFETY: the caller's arguments.
            None => unsafe { next(process, thread, signal) },
        }
    }

    /// `raise(3)`.
    fn raise(signal: c_int) -> c_int {
        match record::current() {
            Some(_) if is_libcs(signal) => answer(libc::EINVAL),
            Some((me, _)) => answer(send(me, signal)),
            // SAFETY: the caller's argument.
            None => unsafe { next(signal) },
        }
    }

    /// `kill(2)`.
    fn kill(process: pid_t, signal: c_int) -> c_int {
        if send_here(process, signal, || sent::told(signal, libc::SI_USER, 0)) {
            return 0;
        }
        // SAFETY: the caller's arguments.
        unsafe { settled_if(signal != 0 && is_here(process), || next(process, signal)) }
    }

    /// `killpg(3)`.
    fn killpg(group: pid_t, signal: c_int) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { settled_if(signal != 0 && is_own_group(group), || next(group, signal)) }
    }

    /// `sigqueue(3)`.
    fn sigqueue(process: pid_t, signal: c_int, value: sigval) -> c_int {
        let info = || sent::told(signal, libc::SI_QUEUE, value.sival_ptr as usize);
        if send_here(process, signal, info) {
            return 0;
        }
        // SAFETY: the caller's arguments.
        unsafe { settled_if(signal != 0 && is_here(process), || next(process, signal, value)) }
    }

    /// `pidfd_send_signal(2)`.
    fn pidfd_send_signal(
        process: c_int,
        signal: c_int,
        info: *mut siginfo_t,
        flags: c_uint,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { settled_if(true, || next(process, signal, info, flags)) }
    }

    /// `SIGRTMIN`: the one after ours.
    fn __libc_current_sigrtmin() -> c_int {
        OURS + 1
    }
}
