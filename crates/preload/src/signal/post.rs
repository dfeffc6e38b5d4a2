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

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::signal::set::{number, poke, take_pending};
use crate::thread::record::Record;

/// The kernel's number of the dispatcher; 0 if there is none.
static DISPATCHER: AtomicI32 = AtomicI32::new(0);
/// Signals that it does not take, because all threads block them.
static EXCLUDED: AtomicU64 = AtomicU64::new(0);
/// Whether a signal or a cancellation has come for a thread since the dispatcher's last look.
static CAME: AtomicBool = AtomicBool::new(false);

/// The calling kernel thread is the dispatcher from now on.
pub(super) fn open(number: i32) {
    DISPATCHER.store(number, Ordering::SeqCst);
}

/// In the child of a fork: there is none.
pub(super) fn renew() {
    DISPATCHER.store(0, Ordering::Relaxed);
    EXCLUDED.store(0, Ordering::Relaxed);
    CAME.store(false, Ordering::Relaxed);
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

/// Whether something has come for a thread since this was asked last.
pub(super) fn has_come() -> bool {
    CAME.swap(false, Ordering::SeqCst)
}

/// The mask of the calling thread has changed: these signals are open now. Those of them that are pending for
/// the process become the thread's at once, as they would be handled before the call that opens them returns.
#[inline]
pub(crate) fn opened(record: &Record, open: u64) {
    let excluded = EXCLUDED.load(Ordering::SeqCst) & open;
    if excluded != 0 {
        take_excluded(record, excluded);
    }
}

#[cold]
fn take_excluded(record: &Record, signals: u64) {
    EXCLUDED.fetch_and(!signals, Ordering::SeqCst);
    // The carrier blocks them, so they stay pending until they are taken.
    while let Some(info) = take_pending(signals, Some(0)) {
        record.pending.push(info, true);
    }
    // It takes them itself again.
    poke_it();
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
        poke(dispatcher);
    }
}
