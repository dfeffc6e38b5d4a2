//! What threads and the dispatcher tell each other.
//!
//! # Signals that all threads block
//!
//! Whether one does, the dispatcher learns when it has taken a signal and finds no thread for it. Then it
//! *excludes* the signal from those that it takes, and sends it to the process again, where it stays pending
//! as it should. A thread that changes its mask looks whether that opens an excluded signal ([`opened`]), and
//! if so takes it off, takes what is pending of it, and interrupts the dispatcher. No signal is left behind: the dispatcher excludes the
//! signal first and looks at the masks once more then, the thread changes its mask first and looks at the
//! excluded ones then; so one of them sees the other.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use carefree_ground::{kernel, nap};
use carefree_runtime::hosted;
use libc::siginfo_t;

use crate::signal::beside;
use crate::signal::queue::Queue;
use crate::signal::sent;
use crate::signal::set::{
    FAULTS, OURS, UNBLOCKABLE, bit, give_to_thread, number, poke, take_pending,
};
use crate::thread::record::Record;

/// The kernel's number of the dispatcher; 0 if there is none.
static DISPATCHER: AtomicI32 = AtomicI32::new(0);
/// Signals that it does not take, because all threads block them.
static EXCLUDED: AtomicU64 = AtomicU64::new(0);
/// Whether the dispatcher has taken a signal and not passed it on yet, and how many it has passed on.
static PASSES: AtomicBool = AtomicBool::new(false);
static PASSED: AtomicU64 = AtomicU64::new(0);
/// Tickets that were issued, and the last of those by which all that had come before is passed on. See [`settle`].
static ISSUED: AtomicU64 = AtomicU64::new(0);
static SETTLED: AtomicU64 = AtomicU64::new(0);
/// Signals that threads give back to the process.
static RETURNED: Queue = Queue::new();
/// How often a thread that waits for the dispatcher to pass on a signal yields its processor before it sleeps.
const YIELDS: u32 = 100;
/// How long it looks at most, where the dispatcher may wait for it.
const MOST: Duration = Duration::from_secs(1);
/// How long it sleeps.
const NAP: Duration = Duration::from_micros(50);
/// Whether a signal or a cancellation has come for a thread since the dispatcher's last look.
static CAME: AtomicBool = AtomicBool::new(false);

/// The calling kernel thread is the dispatcher from now on.
pub(super) fn open(number: i32) {
    DISPATCHER.store(number, Ordering::SeqCst);
}

/// Whether there is a dispatcher.
pub(super) fn is_open() -> bool {
    DISPATCHER.load(Ordering::SeqCst) != 0
}

/// A signal of the process's that has come to another thread than the dispatcher. As for the kernel, one of each is
/// pending at most; so there is no lock, which a handler must not take.
struct Handed {
    state: AtomicU32,
    info: UnsafeCell<MaybeUninit<siginfo_t>>,
}

impl Handed {
    const NONE: u32 = 0;
    /// A thread writes or reads what is told.
    const CHANGES: u32 = 1;
    const THERE: u32 = 2;
    /// As `CHANGES`, and the signal has come once more.
    const AGAIN: u32 = 3;

    const fn new() -> Handed {
        let info = UnsafeCell::new(MaybeUninit::zeroed());
        Handed { state: AtomicU32::new(Handed::NONE), info }
    }

    /// Changes the state from one to another. False: it was not the first.
    fn change(&self, from: u32, to: u32) -> bool {
        // Acquire: what was told is read after it was written. Release: it is written anew after it was read.
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Puts a signal there. One that is there already stands for both; one that is taken just now is there once more.
    fn put(&self, info: &siginfo_t) {
        loop {
            if self.change(Handed::NONE, Handed::CHANGES) {
                // SAFETY: this thread has the state `CHANGES`.
                unsafe { self.info.get().cast::<siginfo_t>().write(*info) };
                return self.state.store(Handed::THERE, Ordering::Release);
            }
            let is_there =
                || matches!(self.state.load(Ordering::Relaxed), Self::THERE | Self::AGAIN);
            if self.change(Handed::CHANGES, Handed::AGAIN) || is_there() {
                return;
            }
        }
    }

    /// The second result says that one more is there.
    fn take(&self) -> Option<(siginfo_t, bool)> {
        if !self.change(Handed::THERE, Handed::CHANGES) {
            return None;
        }
        // SAFETY: this thread has the state `CHANGES`, and what is told was written.
        let info = unsafe { self.info.get().cast::<siginfo_t>().read() };
        let again = !self.change(Handed::CHANGES, Handed::NONE);
        if again {
            self.state.store(Handed::THERE, Ordering::Release);
        }
        Some((info, again))
    }
}

// SAFETY: what is told is accessed by the thread that has given it the state `CHANGES`.
unsafe impl Sync for Handed {}

/// Standard signals, by their numbers.
static HANDED: [Handed; 32] = [const { Handed::new() }; 32];
/// Those that were handed over and not taken yet.
static HANDED_OVER: AtomicU32 = AtomicU32::new(0);

/// Has the dispatcher take a signal of the process's that has come to another thread. In a handler of signals.
pub(super) fn hand_over(info: &siginfo_t) {
    let signal = info.si_signo;
    let Some(handed) = HANDED.get(signal as usize) else { return };
    handed.put(info);
    HANDED_OVER.fetch_or(1 << signal, Ordering::SeqCst);
    poke_it();
}

/// Takes a signal that was handed over.
pub(super) fn take_handed() -> Option<siginfo_t> {
    loop {
        let signal = match HANDED_OVER.load(Ordering::SeqCst) {
            0 => return None,
            some => some.trailing_zeros(),
        };
        // Cleared before the look: what is put later sets it again.
        HANDED_OVER.fetch_and(!(1 << signal), Ordering::SeqCst);
        if let Some((info, again)) = HANDED[signal as usize].take() {
            if again {
                HANDED_OVER.fetch_or(1 << signal, Ordering::SeqCst);
            }
            return Some(info);
        }
    }
}

/// The kernel's number of the dispatcher. It is there soon after the first thread has become a fiber.
pub(super) fn await_dispatcher() -> i32 {
    loop {
        match DISPATCHER.load(Ordering::SeqCst) {
            0 => nap::sleep(NAP),
            number => return number,
        }
    }
}

/// In the child of a fork: there is none.
pub(super) fn renew() {
    // SAFETY: the child of a fork has one thread, which is in a handler of forks.
    unsafe { RETURNED.renew() };
    DISPATCHER.store(0, Ordering::Relaxed);
    EXCLUDED.store(0, Ordering::Relaxed);
    CAME.store(false, Ordering::Relaxed);
    PASSES.store(false, Ordering::Relaxed);
    HANDED_OVER.store(0, Ordering::Relaxed);
    HANDED.iter().for_each(|handed| handed.state.store(Handed::NONE, Ordering::Relaxed));
}

/// Has the dispatcher pass on a signal that it has taken.
pub(super) fn pass(on: impl FnOnce()) {
    PASSES.store(true, Ordering::SeqCst);
    on();
    PASSED.fetch_add(1, Ordering::SeqCst);
    PASSES.store(false, Ordering::SeqCst);
}

/// Waits until the dispatcher has passed on what had come when this was called; but not for ever, for it may wait for
/// memory, of which the caller may have interrupted the allocator.
///
/// # All that had come
///
/// The caller sends the dispatcher a ticket. The kernel hands out signals with the same number in their order, so
/// timers of ours that ended before come first. But it hands out a thread's signals before the process's. So the
/// dispatcher settles the ticket only when it finds nothing more pending that may have come before.
pub(crate) fn settle() {
    let dispatcher = match DISPATCHER.load(Ordering::SeqCst) {
        // The first threads may be faster than the dispatcher begins.
        0 if hosted::is_hosting() && !beside::is_one() => await_dispatcher(),
        number => number,
    };
    if dispatcher == 0 || number() as i32 == dispatcher {
        return;
    }
    let ticket = ISSUED.fetch_add(1, Ordering::SeqCst) + 1;
    let info = sent::told(OURS, libc::SI_QUEUE, ticket as usize);
    // (It is not in the child of a `vfork`; and the user may have as many signals pending as may be.)
    if !give_to_thread(dispatcher, &info) {
        return;
    }
    let mut looks = 0;
    let mut until = None;
    while SETTLED.load(Ordering::SeqCst) < ticket {
        looks += 1;
        match looks < YIELDS {
            true => nap::yield_processor(),
            // The dispatcher's priority may be lower than this thread's.
            false if now() < *until.get_or_insert_with(|| now() + MOST) => nap::sleep(NAP),
            false => return,
        }
    }
}

/// The time now. (Carefree's own `clock_gettime` may cancel the caller, amid functions that cannot be unwound.)
fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [libc::CLOCK_MONOTONIC as usize, (&raw mut time) as usize, 0, 0, 0, 0];
    // SAFETY: room for the answer.
    let _ = unsafe { kernel::call(libc::SYS_clock_gettime, arguments) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The ticket that the dispatcher was sent, if this is one.
pub(super) fn ticket(info: &siginfo_t) -> Option<u64> {
    // SAFETY: what was sent with a value has one.
    let value = (info.si_code == libc::SI_QUEUE).then(|| unsafe { info.si_value() }.sival_ptr);
    // (Other processes may send what they like.)
    value.map(|value| value as u64).filter(|ticket| *ticket <= ISSUED.load(Ordering::SeqCst))
}

/// All that came before this ticket is passed on.
pub(super) fn settled(ticket: u64) {
    SETTLED.fetch_max(ticket, Ordering::SeqCst);
}

/// Signals that the dispatcher does not take.
pub(super) fn excluded() -> u64 {
    EXCLUDED.load(Ordering::SeqCst)
}

/// Excludes signals, unless a thread is open to them, which is asked then.
pub(super) fn exclude(signals: u64, is_open: impl FnOnce() -> bool) {
    EXCLUDED.fetch_or(signals, Ordering::SeqCst);
    if is_open() {
        EXCLUDED.fetch_and(!signals, Ordering::SeqCst);
    }
}

/// The process's again, because the threads that it was for block it now: the dispatcher gives it back when this
/// returns. (The kernel lets no other thread tell of a signal what a process or the kernel has told.)
pub(super) fn give_back(info: siginfo_t) {
    RETURNED.push(info, true);
    settle();
}

/// What was given back and is not with the process yet.
pub(super) fn take_returned() -> Option<siginfo_t> {
    RETURNED.take(!0)
}

/// Whether something has come for a thread since this was asked last.
pub(super) fn has_come() -> bool {
    CAME.swap(false, Ordering::SeqCst)
}

/// The mask of the calling thread has changed: these signals are open now, and some of them were not before. What
/// is pending of the latter for the process becomes the thread's at once, for it is to be handled before the call
/// that opens them returns: be it excluded, or has the dispatcher not come to it yet. (That may just have taken
/// one, and hand it over a moment later.)
#[inline]
pub(crate) fn opened(record: &Record, open: u64, newly: u64) {
    let excluded = EXCLUDED.load(Ordering::SeqCst) & open;
    let newly = newly & !(FAULTS | UNBLOCKABLE | bit(OURS));
    if excluded | newly != 0 {
        take(record, excluded, newly);
    }
}

#[cold]
fn take(record: &Record, excluded: u64, newly: u64) {
    EXCLUDED.fetch_and(!excluded, Ordering::SeqCst);
    loop {
        // The carrier blocks them, so they stay pending until they are taken.
        while let Some(info) = take_pending(excluded | newly, Some(0)) {
            record.pending.push(info, true);
        }
        if !PASSES.load(Ordering::SeqCst) {
            break;
        }
        // What the dispatcher has taken may be for this thread, or come back to the process.
        let before = PASSED.load(Ordering::SeqCst);
        let mut looks = 0;
        while PASSES.load(Ordering::SeqCst) && PASSED.load(Ordering::SeqCst) == before {
            looks += 1;
            match looks < YIELDS {
                true => nap::yield_processor(),
                // The dispatcher's priority may be lower than this thread's.
                false => nap::sleep(NAP),
            }
        }
    }
    if excluded != 0 {
        // It takes them itself again.
        poke_it();
    }
}

/// A signal has come for a thread, or it was cancelled: the dispatcher looks whether that is dealt with.
pub(crate) fn look_again() {
    if !CAME.swap(true, Ordering::SeqCst) && number() as i32 != DISPATCHER.load(Ordering::SeqCst) {
        poke_it();
    }
}

fn poke_it() {
    let dispatcher = DISPATCHER.load(Ordering::SeqCst);
    if dispatcher != 0 {
        let _ = poke(dispatcher);
    }
}
