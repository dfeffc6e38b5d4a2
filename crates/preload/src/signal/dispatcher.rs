//! The process's first kernel thread, from when its fiber has left it: it takes the signals that are sent to
//! the process, and passes each on to a thread.
//!
//! # Signals that are not handled at once
//!
//! A thread may be just about to wait when a signal comes, or in the middle of the runtime. So the dispatcher
//! looks again, at growing intervals, until every thread has handled what it can.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use carefree_ground::kernel;
use carefree_runtime::hosted::{self, HostedThread};
use libc::{siginfo_t, timespec};

use crate::signal::deliver;
use crate::signal::set::{
    FAULTS, OPEN, OURS, UNBLOCKABLE, act_by_default, action, bit, change_kernels,
    is_ignored_by_default, number,
};
use crate::signal::{carrier, mask, post};
use crate::thread::record;

/// Nanoseconds between two looks at threads that have not handled what has come: at first, and at most.
const LOOK: i64 = 100_000;
const LOOK_SELDOM: i64 = 5_000_000;

/// To be called by the process's first thread before it becomes a fiber: carriers that are started now
/// block signals. Returns what [`give_up`] takes.
pub(crate) fn begin() -> u64 {
    carrier::prepare();
    let before = change_kernels(libc::SIG_SETMASK, Some(!OPEN));
    record::MAIN.mask.store(before & !UNBLOCKABLE, Ordering::SeqCst);
    before
}

/// Undoes [`begin`], if the thread could not become a fiber.
pub(crate) fn give_up(before: u64) {
    change_kernels(libc::SIG_SETMASK, Some(before));
}

/// In the child of a fork: there is no dispatcher, and the caller has the mask of the thread that it was.
pub(crate) fn renew() {
    post::renew();
    change_kernels(libc::SIG_SETMASK, Some(mask::of_forked()));
}

/// What the first kernel thread does from now on.
pub(crate) fn run() -> ! {
    change_kernels(libc::SIG_SETMASK, Some(!OPEN | bit(OURS)));
    post::open(number() as i32);
    let mut pause = None;
    loop {
        let taken = !(post::excluded() | FAULTS | UNBLOCKABLE);
        if let Some(info) = take(taken, pause) {
            if info.si_signo != OURS {
                pass_on(&info);
            }
        }
        if post::has_come() {
            pause = Some(LOOK);
        } else if let Some(last) = pause {
            pause = some_wait_still().then_some((2 * last).min(LOOK_SELDOM));
        }
    }
}

/// Waits for a signal of a set, for so many nanoseconds at most.
fn take(set: u64, nanos: Option<i64>) -> Option<siginfo_t> {
    let mut info = MaybeUninit::<siginfo_t>::zeroed();
    let time = nanos.map(|tv_nsec| timespec { tv_sec: 0, tv_nsec });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref) as usize;
    let set = (&raw const set) as usize;
    let arguments = [set, info.as_mut_ptr() as usize, time, size_of::<u64>(), 0, 0];
    // SAFETY: a set, room for what has come, and a time or null.
    let taken = unsafe { kernel::call(libc::SYS_rt_sigtimedwait, arguments) };
    // SAFETY: zeros, or what the kernel has written.
    taken.is_ok().then(|| unsafe { info.assume_init() })
}

/// Passes a signal of the process's on.
fn pass_on(info: &siginfo_t) {
    let signal = info.si_signo;
    let action = action(signal).sa_sigaction;
    if action == libc::SIG_IGN || action == libc::SIG_DFL && is_ignored_by_default(signal) {
        return;
    }
    if info.si_code == libc::SI_TKILL {
        // Sent to the first thread, by the number that it shares with this one.
        if let Some(main) = hosted::main_thread() {
            return deliver::deliver(main, *info);
        }
    }
    match receiver(signal) {
        Some(_) if action == libc::SIG_DFL => act_by_default(signal),
        Some(thread) => deliver::deliver(thread, *info),
        None => {
            post::exclude(bit(signal), || receiver(signal).is_some());
            let process = std::process::id() as usize;
            let arguments = [process, signal as usize, ptr::from_ref(info) as usize, 0, 0, 0];
            // SAFETY: what the kernel has told of the signal.
            let _ = unsafe { kernel::call(libc::SYS_rt_sigqueueinfo, arguments) };
        }
    }
}

/// A thread that does not block a signal: the first one, if that does not.
pub(super) fn receiver(signal: i32) -> Option<HostedThread> {
    let open =
        |thread: HostedThread| record::of(thread).mask.load(Ordering::SeqCst) & bit(signal) == 0;
    let mut found = None;
    hosted::for_each(|thread| {
        if open(thread) && (found.is_none() || thread.is_main()) {
            found = Some(thread);
        }
        true
    });
    found
}

/// Interrupts the threads that have not handled yet what has come for them; whether there are any.
fn some_wait_still() -> bool {
    let mut some = false;
    hosted::for_each(|thread| {
        let record = record::of(thread);
        if record.pending.set() & !record.mask.load(Ordering::SeqCst) != 0 {
            some = true;
            deliver::interrupt(thread);
        }
        true
    });
    some
}
