//! The process's first kernel thread, from when its fiber has left it: it takes the signals that are sent to
//! the process, and passes each on to a thread.
//!
//! # Signals that are not handled at once
//!
//! A thread may be just about to wait when a signal comes, or in the middle of the runtime or of malloc. So the
//! dispatcher looks again, at growing intervals, until every thread has handled what it can. (They grow slowly: of a
//! thread that does little but allocate, one look in some ten finds it elsewhere.) It does so as well until a
//! thread that was cancelled ends: at a call that waits within libc, it can be unwound only while it is there.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carefree_ground::kernel;
use carefree_runtime::hosted;
use libc::siginfo_t;

use crate::signal::deliver::{self, receiver};
use crate::signal::set::{
    FAULTS, OPEN, OURS, RAISED, TERMINAL, UNBLOCKABLE, act_by_default, action, bit, change_kernels,
    give_to_process, ignores, number, take_pending,
};
use crate::signal::{alternate, beside, carrier, mask, post, timer};
use crate::thread::record;

/// Nanoseconds between two looks at threads that have not handled what has come: at first, and at most.
const LOOK: i64 = 100_000;
const LOOK_SELDOM: i64 = 5_000_000;
/// The most signals that may be pending several times for which a ticket waits.
const QUEUED: u32 = 1000;

/// To be called by the process's first thread before it becomes a fiber: carriers that are started now
/// block signals. Returns what [`give_up`] takes.
pub(crate) fn begin() -> u64 {
    carrier::prepare();
    beside::note_parent();
    let before = change_kernels(libc::SIG_SETMASK, Some(!OPEN));
    alternate::adopt(&record::MAIN);
    record::MAIN.mask.store(before & !UNBLOCKABLE, Ordering::SeqCst);
    before
}

/// Whether a signal is pending for the calling kernel thread, or for the process, that the former blocks.
pub(crate) fn is_any_pending() -> bool {
    let mut set = 0u64;
    let arguments = [(&raw mut set) as usize, size_of::<u64>(), 0, 0, 0, 0];
    // SAFETY: room for a set.
    let asked = unsafe { kernel::call(libc::SYS_rt_sigpending, arguments) };
    asked.is_ok() && set != 0
}

/// Undoes [`begin`], if the thread could not become a fiber.
pub(crate) fn give_up(before: u64) {
    change_kernels(libc::SIG_SETMASK, Some(before));
}

/// In the child of a fork: there is no dispatcher, and the caller has the mask of the thread that it was.
pub(crate) fn renew() {
    post::renew();
    // SAFETY: the child of a fork has one thread, which is in a handler of forks.
    unsafe { timer::renew() };
    change_kernels(libc::SIG_SETMASK, Some(mask::of_forked()));
}

/// What the first kernel thread does from now on.
pub(crate) fn run() -> ! {
    change_kernels(libc::SIG_SETMASK, Some(!OPEN | bit(OURS) | RAISED));
    alternate::take_kernels();
    post::open(number() as i32);
    // Before that, nothing could interrupt this thread.
    let mut pause = post::has_come().then_some(LOOK);
    let mut looked = Instant::now();
    let mut settling: Option<Settling> = None;
    loop {
        while let Some(info) = post::take_handed() {
            post::pass(|| pass_on(&info));
        }
        // (What stops the process is the kernel's: one that was taken would stop it after a SIGCONT that came since.)
        let taken = !(post::excluded() | FAULTS | TERMINAL | UNBLOCKABLE);
        let found = match &settling {
            Some(settling) => take_pending(taken & settling.of, Some(0)),
            None => take_pending(taken, pause),
        };
        let mut serves = settling.is_some();
        match found {
            Some(mut info) if info.si_signo == OURS => match post::ticket(&info) {
                Some(ticket) => {
                    serves = true;
                    settling = Some(Settling::new(ticket));
                    while let Some(info) = post::take_returned() {
                        pass_on(&info);
                    }
                }
                None => timer::fired(&mut info),
            },
            Some(info) => {
                post::pass(|| pass_on(&info));
                settling = settling.and_then(|settling| settling.without(info.si_signo));
            }
            None => settling.take().into_iter().for_each(|settling| settling.end()),
        }
        if post::has_come() {
            (pause, looked) = (Some(LOOK), Instant::now());
        } else if let Some(last) = pause {
            // (Many tickets must neither have it look all the time nor keep it from looking.)
            if !serves || looked.elapsed() >= Duration::from_nanos(last as u64) {
                pause = some_wait_still().then_some((last + last / 8).min(LOOK_SELDOM));
                looked = Instant::now();
            }
        }
    }
}

/// A ticket, from when the dispatcher has it.
struct Settling {
    ticket: u64,
    /// What may still be pending that came before the ticket.
    of: u64,
    /// How many more signals are passed on before the ticket is settled.
    left: u32,
}

impl Settling {
    fn new(ticket: u64) -> Settling {
        Settling { ticket, of: !bit(OURS), left: QUEUED }
    }

    /// Such a signal is passed on. Of the standard ones, one is pending at most: the next has come since.
    fn without(mut self, signal: i32) -> Option<Settling> {
        if signal < OURS {
            self.of &= !bit(signal);
        } else if self.left == 0 {
            self.end();
            return None;
        } else {
            self.left -= 1;
        }
        Some(self)
    }

    fn end(self) {
        post::settled(self.ticket);
    }
}

/// Passes a signal of the process's on.
fn pass_on(info: &siginfo_t) {
    let signal = info.si_signo;
    let action = action(signal).sa_sigaction;
    // The kernel keeps what all threads block, whatever is done on it: `sigwait` and `signalfd` tell of it.
    if ignores(signal, action) && receiver(signal).is_some() {
        return;
    }
    if info.si_code == libc::SI_TKILL {
        // Sent to the first thread, by the number that it shares with this one.
        if let Some(main) = hosted::main_thread() {
            let _ = deliver::deliver(main, *info);
            return;
        }
    }
    if matches!(action, libc::SIG_DFL | libc::SIG_IGN) {
        if receiver(signal).is_some() {
            return act_by_default(signal);
        }
    } else if deliver::deliver_to_any(*info) {
        return;
    }
    if bit(signal) & (RAISED | TERMINAL | FAULTS) != 0 {
        // The kernel would hand it to a carrier.
        if let Some(main) = hosted::main_thread() {
            record::of(main).pending.push(*info, true);
        }
        return;
    }
    post::exclude(bit(signal), || receiver(signal).is_some());
    give_to_process(info);
}

/// Interrupts the threads that have not handled yet what has come for them, or were cancelled and have not ended;
/// whether there are any.
fn some_wait_still() -> bool {
    let mut some = false;
    let _ = hosted::find_where(|thread| {
        let record = record::of(thread);
        let open = !record.mask.load(Ordering::SeqCst) | record.awaited.load(Ordering::SeqCst);
        if record.pending.set() & open != 0 {
            some = true;
            deliver::interrupt(thread);
        } else if thread.is_cancelled() {
            // It may be in a call of libc's that waits unknown to the runtime.
            some = true;
            deliver::interrupt_running(thread);
        }
        false
    });
    some
}
