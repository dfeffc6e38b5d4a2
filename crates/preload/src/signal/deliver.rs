//! Handling the signals that have come for a thread, on that thread.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_runtime::Reason;
use carefree_runtime::hosted::{self, Held, HostedThread};
use libc::{siginfo_t, ucontext_t};

use crate::signal::handler::carefree_call_handler;
use crate::signal::set::{UNBLOCKABLE, act_by_default, action, bit, ignores, is_ignored};
use crate::signal::{alternate, beside, post};
use crate::thread::record::{self, Alternate, Record};
use crate::thread::{ends_anywhere, leave_syscall, resume_syscall, test_cancel};

/// What came of the signals that were handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Handled {
    /// No handler was called.
    None,
    /// Handlers were called, and the first signal's action says that calls are begun again: as in the kernel, it decides.
    Restarting,
    /// The first signal's action says that calls end.
    Ending,
}

/// Handles the signals that have come for the calling hosted thread and that it does not block.
pub(crate) fn handle() {
    if let Some((_, record)) = record::current() {
        handle_all(record, None, None);
    }
}

/// [`handle`] amid a call; cancels the thread if that may be done anywhere.
pub(crate) unsafe extern "C-unwind" fn amid_call() {
    handle();
    if ends_anywhere() {
        test_cancel();
    }
}

/// [`handle`], with what the kernel has saved of the thread where a signal has interrupted it; and the mask that is in force
/// after the first handler, if it is another one than now.
pub(crate) fn handle_all(
    record: &Record,
    context: Option<*mut c_void>,
    mut own_mask: Option<u64>,
) -> Handled {
    let mut handled = Handled::None;
    if record.holds.load(Ordering::Relaxed)
        || record.pending.set() & !record.mask.load(Ordering::SeqCst) == 0
        || beside::is_child()
    {
        return handled;
    }
    while let Some(info) = record.pending.take(!record.mask.load(Ordering::SeqCst)) {
        let signal = info.si_signo;
        let action = action(signal);
        match action.sa_sigaction {
            handler if ignores(signal, handler) => {}
            libc::SIG_DFL => act_by_default(signal),
            _ => {
                if handled == Handled::None {
                    let restarts = action.sa_flags & libc::SA_RESTART != 0;
                    handled = if restarts { Handled::Restarting } else { Handled::Ending };
                }
                // SAFETY: the program's handler for this signal.
                unsafe { call(record, info, &action, context, own_mask.take(), false) };
            }
        }
    }
    handled
}

/// What a handler's return puts in force again. Handlers find it in their context, as the kernel shows it, and may
/// change it there.
struct Return {
    mask: u64,
    alternate: Alternate,
}

impl Return {
    /// Exchanges it with what is in a context.
    ///
    /// # Safety
    /// A context, whose words may be written.
    unsafe fn swap(&mut self, context: *mut ucontext_t) {
        // SAFETY: as this function demands; the kernel uses 8 bytes of a set.
        unsafe {
            ptr::swap(&raw mut self.mask, (&raw mut (*context).uc_sigmask).cast());
            ptr::swap(&raw mut self.alternate.0, &raw mut (*context).uc_stack);
        }
    }
}

/// Calls a handler, after which `own_mask` is in force, or the present one. If it `is_there`, the caller runs on the
/// stack on which the handler is to run.
///
/// # Safety
/// `action` is the program's for the signal.
pub(super) unsafe fn call(
    record: &Record,
    mut info: siginfo_t,
    action: &libc::sigaction,
    context: Option<*mut c_void>,
    own_mask: Option<u64>,
    is_there: bool,
) {
    let signal = info.si_signo;
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        // The flags and the mask stay, as in the kernel.
        let reset = libc::sigaction { sa_sigaction: libc::SIG_DFL, ..*action };
        // SAFETY: the default action is none of the program's.
        unsafe { libc::sigaction(signal, &raw const reset, ptr::null_mut()) };
    }
    let before = record.mask.load(Ordering::SeqCst);
    let mut after =
        Return { mask: own_mask.unwrap_or(before), alternate: *record.alternate.lock() };
    // SAFETY: the kernel uses 8 bytes of a set.
    let with = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
    let own = if action.sa_flags & libc::SA_NODEFER == 0 { bit(signal) } else { 0 };
    record.mask.store(before | with | own, Ordering::SeqCst);
    if !is_there {
        // The kernel prepares a call of each handler that is due, the lowest signal's first, and then lets the thread go
        // on: in the handler that was prepared last.
        handle_all(record, None, None);
    }
    let on_alternate = action.sa_flags & libc::SA_ONSTACK != 0;
    let end = match (on_alternate, is_there) {
        (true, false) => alternate::enter(record),
        (true, true) => {
            alternate::disarm(record);
            0
        }
        (false, _) => 0,
    };
    // SAFETY: the address of the caller's variable.
    let errno = unsafe { *libc::__errno_location() };
    let left = hosted::current().filter(|me| leave_syscall(*me, record));
    let around = record.handler.load(Ordering::Relaxed);
    // SAFETY: the program's handler, which takes these, or the signal alone, as its flags say. The alternate stack
    // is the thread's own, and nothing runs there.
    unsafe {
        let call = |info, context| {
            let place = record.handler.as_ptr();
            carefree_call_handler(action.sa_sigaction, signal, info, context, end, place);
        };
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let mut here = MaybeUninit::<ucontext_t>::zeroed();
            let context = context.map_or_else(
                || {
                    libc::getcontext(here.as_mut_ptr());
                    here.as_mut_ptr()
                },
                <*mut c_void>::cast,
            );
            after.swap(context);
            call(&raw mut info, context.cast());
            after.swap(context);
        } else {
            call(ptr::null_mut(), ptr::null_mut());
        }
        record.handler.store(around, Ordering::Relaxed);
        // Asked for anew: the thread may be on another carrier.
        *libc::__errno_location() = errno;
    }
    if let Some(me) = left {
        resume_syscall(me, record);
    }
    // (One that the kernel would not take is left out, as the kernel does.)
    let _ = alternate::set(record, &after.alternate.0);
    let mask = after.mask & !UNBLOCKABLE;
    let within = record.mask.swap(mask, Ordering::SeqCst);
    post::opened(record, !mask, within & !mask);
    // See `deliver_to_any`.
    if record.pending.set() & mask & !within != 0 {
        pass_on(record, mask & !within);
    }
}

/// Whether [`after_call`] has something to do for the calling hosted thread, if its call was not interrupted.
pub(crate) fn has_come() -> bool {
    record::current().is_some_and(|(me, record)| {
        record.pending.set() & !record.mask.load(Ordering::SeqCst) != 0
            || me.is_cut()
            || me.is_cancelled()
            || record.asynchronous.load(Ordering::SeqCst)
    })
}

/// Called at the end of each call of a hosted thread: handles signals, and `cancels` the thread. Returns whether
/// a call that was `interrupted` is to be made again.
pub(crate) unsafe extern "C-unwind" fn after_call(interrupted: bool, cancels: bool) -> bool {
    let Some((me, record)) = record::current() else { return false };
    // Taken before handlers are called: they may wait as well, and be interrupted.
    let waited_for = me.take_cut();
    let handled = handle_all(record, None, None);
    if cancels || ends_anywhere() {
        test_cancel();
    }
    if !interrupted {
        return false;
    }
    let is_begun_again = match handled {
        // It was interrupted for nothing: another call has taken the signal meanwhile.
        Handled::None => waited_for != Reason::NotStarted,
        Handled::Restarting => is_begun_again(waited_for),
        Handled::Ending => false,
    };
    is_begun_again && !me.is_cancelled()
}

/// Whether a wait is begun again after a handler with `SA_RESTART` (signal(7)).
fn is_begun_again(reason: Reason) -> bool {
    use Reason::{Ipc, NotStarted, Poll, Signal, Sleep};
    !matches!(reason, NotStarted | Sleep | Poll | Ipc | Signal)
}

/// Has `thread` handle a signal of its own soon, or when it does not block it any more; false if it has ended.
pub(crate) fn deliver(thread: HostedThread, info: siginfo_t) -> bool {
    let record = record::of(thread);
    let kept = record.mask.load(Ordering::SeqCst) | record.awaited.load(Ordering::SeqCst);
    // As the kernel does, where it is sent.
    if kept & bit(info.si_signo) == 0 && is_ignored(info.si_signo) {
        return true;
    }
    let taken = record.pending.push(info, false);
    // A thread looks at what has come for it when it has changed its mask, or noted what it waits for.
    let open = !record.mask.load(Ordering::SeqCst) | record.awaited.load(Ordering::SeqCst);
    if taken && open & bit(info.si_signo) != 0 {
        interrupt(thread);
        post::look_again();
    }
    taken
}

/// Has a thread that does not block it handle a signal of the process's; false if all block it.
///
/// # The signal is not left with a thread that blocks it
///
/// The chosen thread may just change its mask. This function adds the signal to the thread's and reads its
/// mask then; the thread stores its mask and looks at its signals then (`mask::replace_only`). So one of
/// them sees what the other has done, and passes the signal on.
pub(crate) fn deliver_to_any(mut info: siginfo_t) -> bool {
    let own = bit(info.si_signo);
    while let Some(thread) = user_of_time(&info).or_else(|| receiver(info.si_signo)) {
        let record = record::of(*thread);
        // (If the thread ends just now, its queue is closed, and the next look leaves it out.)
        if record.pending.push(info, true) {
            match record.mask.load(Ordering::SeqCst) & own {
                0 => {}
                _ => match record.pending.take_for_any(own) {
                    Some(taken) => {
                        info = taken;
                        continue;
                    }
                    // The thread has passed it on itself.
                    None => return true,
                },
            }
            if thread.is_me() {
                handle();
            } else {
                interrupt(*thread);
                post::look_again();
            }
            return true;
        }
    }
    false
}

/// A thread that does not block a signal: the first one, if that does not.
pub(crate) fn receiver(signal: c_int) -> Option<Held> {
    hosted::find_where(|thread| takes(thread, signal))
}

fn takes(thread: HostedThread, signal: c_int) -> bool {
    let record = record::of(thread);
    record.mask.load(Ordering::SeqCst) & bit(signal) == 0 && !record.pending.is_closed()
}

/// For a signal that a profiler has for processor time that the process has used: a thread that uses some. The kernel has
/// the signal handled by the thread that is just running. Here, those that run take turns.
fn user_of_time(info: &siginfo_t) -> Option<Held> {
    const BY_KERNEL: [c_int; 2] = [libc::SI_KERNEL, libc::SI_TIMER];
    const FOR_TIME: [c_int; 2] = [libc::SIGPROF, libc::SIGVTALRM];
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let signal = info.si_signo;
    if !FOR_TIME.contains(&signal) || !BY_KERNEL.contains(&info.si_code) {
        return None;
    }
    let runs = |thread: HostedThread| thread.reason() == Reason::Runs && takes(thread, signal);
    let mut running = 0;
    let _ = hosted::find_where(|thread| {
        running += usize::from(runs(thread));
        false
    });
    let mut left = TURN.fetch_add(1, Ordering::Relaxed).checked_rem(running)?;
    hosted::find_where(|thread| {
        if !runs(thread) {
            return false;
        }
        left = left.wrapping_sub(1);
        left == usize::MAX
    })
}

/// Passes on what has come for the caller's process and not for the caller, of a set that it blocks.
pub(crate) fn pass_on(record: &Record, of: u64) {
    while let Some(info) = record.pending.take_for_any(of) {
        if !deliver_to_any(info) {
            post::give_back(info);
        }
    }
}

/// Handles the last signals of the calling thread, which ends. What comes from now on goes to other threads.
pub(crate) fn end(record: &Record) {
    loop {
        let mask = record.mask.load(Ordering::SeqCst);
        handle_all(record, None, None);
        if record.pending.close(mask) {
            break;
        }
    }
    pass_on(record, !0);
    record.pending.clear();
}

/// What has come for the process when this is called, is for a thread when this returns, as where a call of the caller's
/// has caused it: the kernel hands such a signal over before the call returns. What of it is the caller's is handled,
/// and the caller is cancelled if that may be done anywhere: a thread that makes such calls only is nowhere else. The
/// frames of the caller must have nothing to drop.
pub(crate) fn settle() {
    if record::current().is_some() {
        post::settle();
        // SAFETY: the caller's frames have nothing to drop, down to the program's.
        unsafe { amid_call() };
    }
}

/// What the kernel has sent of this signal for a call of the calling hosted thread's is for a thread when this returns: as
/// where a child has ended, stopped or gone on. (Also where it is ignored by default: it must be gone before the threads
/// block it.)
pub(crate) fn settle_one(signal: c_int) {
    if action(signal).sa_sigaction != libc::SIG_IGN {
        post::settle();
    }
}

/// Interrupts what a thread does, so that it handles what has come for it.
pub(crate) fn interrupt(thread: HostedThread) {
    if thread.reason() == Reason::Runs {
        return interrupt_running(thread);
    }
    thread.interrupt();
}

/// [`interrupt`] for a thread that does not wait, as far as the runtime knows.
pub(crate) fn interrupt_running(thread: HostedThread) {
    let carrier = thread.carrier_thread();
    if thread.reason() == Reason::Runs && carrier != 0 {
        crate::signal::set::poke(carrier);
    }
}
