//! Sending signals to threads.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use carefree_runtime::hosted::{self, HostedThread};
use libc::{pid_t, pthread_t, siginfo_t, sigval};

use crate::signal::deliver;
use crate::signal::set::{
    OURS, UNBLOCKABLE, act_by_default, action, bit, is_ignored_by_default, is_signal,
};
use crate::thread::find_number;
use crate::thread::record::{self, set_errno};

/// What a receiver is told of a signal that a thread of this process has sent.
fn from_here(signal: c_int, code: c_int, value: Option<sigval>) -> siginfo_t {
    /// The kernel's layout, of what is sent by a process.
    #[repr(C)]
    struct Sent {
        signal: c_int,
        errno: c_int,
        code: c_int,
        padding: c_int,
        process: pid_t,
        user: libc::uid_t,
        value: usize,
    }
    let mut info = MaybeUninit::<siginfo_t>::zeroed();
    let value = value.map_or(0, |value| value.sival_ptr as usize);
    // SAFETY: a `siginfo_t` begins with this; zeros are valid for the rest.
    unsafe {
        let (process, user) = (libc::getpid(), libc::getuid());
        let sent = Sent { signal, errno: 0, code, padding: 0, process, user, value };
        info.as_mut_ptr().cast::<Sent>().write(sent);
        info.assume_init()
    }
}

/// `pthread_kill` of a hosted thread: an `errno`, or 0.
pub(crate) fn send(thread: HostedThread, signal: c_int) -> c_int {
    send_with(thread, signal, libc::SI_TKILL, None)
}

fn send_with(thread: HostedThread, signal: c_int, code: c_int, value: Option<sigval>) -> c_int {
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
    let info = from_here(signal, code, value);
    if thread.is_me() {
        record.pending.push(info, false);
        deliver::handle();
    } else {
        // (A thread that has ended by now is sent nothing.)
        let _ = deliver::deliver(thread, info);
    }
    0
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
                Some((thread, _)) => send_with(thread, signal, libc::SI_QUEUE, Some(value)),
                None => next(thread, signal, value),
            }
        }
    }

    /// `tgkill(2)`.
    fn tgkill(process: pid_t, thread: pid_t, signal: c_int) -> c_int {
        match find_number(thread) {
            Some(thread) => answer(send(*thread, signal)),
            // SAFETY: the caller's arguments.
            None => unsafe { next(process, thread, signal) },
        }
    }

    /// `raise(3)`.
    fn raise(signal: c_int) -> c_int {
        match record::current() {
            Some((me, _)) => answer(send(me, signal)),
            // SAFETY: the caller's argument.
            None => unsafe { next(signal) },
        }
    }

    /// `kill(2)`. A signal for the own process is the receiving thread's when this returns; and if that is the
    /// caller, it is handled by then. What it does by default is done.
    fn kill(process: pid_t, signal: c_int) -> c_int {
        let own = process == std::process::id() as pid_t && is_signal(signal);
        let passed = own && bit(signal) & UNBLOCKABLE == 0 && record::current().is_some() && {
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
                _ => deliver::deliver_to_any(from_here(signal, libc::SI_USER, None)),
            }
        };
        // SAFETY: the caller's arguments.
        if passed { 0 } else { unsafe { next(process, signal) } }
    }

    /// `SIGRTMIN`: the one after ours.
    fn __libc_current_sigrtmin() -> c_int {
        OURS + 1
    }
}
