//! No memory for a stack: idle stacks are called in.
//!
//! Idle stacks keep their address space: on the carriers that used them last, in the pool of furnished
//! stacks and in that of bare ones. Where a limit (`RLIMIT_AS`, `vm.max_map_count`) refuses another stack,
//! there may be enough of these, on other carriers or of other sizes. Also, a fiber that was joined may not
//! have left its stack yet. So a caller that is refused calls the idle stacks in, and tries again until no
//! more are to come.
//!
//! *No call is missed.* A carrier looks at [`calls::made`] whenever it is about to sleep, and a wake-up
//! between that look and the sleep ends the sleep. A carrier that its fiber keeps busy may not look in
//! time, so the caller does not wait for it for long. A carrier that sleeps, or whose fiber is about to
//! leave, needs only some microseconds; but on a busy machine it may have to wait for a processor.

use std::io;
use std::ptr;
use std::time::Duration;

use carefree_context::stack::{Stack, StackPool, StackSize};
use carefree_ground::nap;
use carefree_reactor::clock;

use crate::carrier::calls;
use crate::carrier::carrier;
use crate::carrier::runtimes;
use crate::fiber::current;
use crate::fiber::header::{FINISHED, Kind, PINNED};
use crate::fiber::idle;
use crate::fiber::registry;
use crate::protocol::sync::Ordering;

/// How long to wait for carriers that have nothing else to do. (The caller may be a carrier itself, whose
/// fibers wait meanwhile.)
const PATIENCE: Duration = Duration::from_millis(100);
/// How long to wait for carriers that seem to run fibers.
const PATIENCE_WITH_BUSY: Duration = Duration::from_millis(10);
/// Time between two tries.
const PAUSE: Duration = Duration::from_micros(50);

/// Acquires a stack of `size`, which was refused with `refusal`. The caller's carrier, if it is on one, has
/// given back the stacks that it keeps.
///
/// # Errors
/// The refusal, or a later one.
#[cold]
pub(crate) fn acquire(size: StackSize, refusal: io::Error) -> io::Result<Stack> {
    if refusal.kind() != io::ErrorKind::OutOfMemory {
        return Err(refusal);
    }
    let call = calls::make();
    runtimes::for_each(|runtime| runtime.carriers.iter().for_each(|c| c.wake()));
    // (What stands in for libc's clock handles signals, and a handler may wait.)
    let now = || current::without_parking(clock::now);
    let begun = now();
    loop {
        // Asked before the try: so the last try comes after what they give back until now.
        let patience = if some_are_leaving() { PATIENCE } else { patience_with_carriers(call) };
        idle::strip_idle();
        let refusal = match StackPool::global().acquire(size) {
            Err(refusal) => refusal,
            acquired => return acquired,
        };
        if now() >= clock::add(begun, patience) {
            return Err(refusal);
        }
        // Lets other threads run. (Carefree's own of libc's sleep would park the caller.)
        nap::sleep(PAUSE);
    }
}

/// How long to wait for carriers, other than the caller's, that have not heard this call.
fn patience_with_carriers(call: u64) -> Duration {
    let here = carrier::here().map(ptr::from_ref);
    let mut patience = Duration::ZERO;
    runtimes::for_each(|runtime| {
        let others = runtime.carriers.iter().filter(|other| Some(ptr::from_ref(*other)) != here);
        for other in others.filter(|other| other.thread() != 0 && other.calls_heard() < call) {
            patience = patience.max(if runtime.has_stopped() {
                Duration::ZERO
            } else if runtime.sleepers.is_sleeping(other.index()) {
                PATIENCE
            } else {
                PATIENCE_WITH_BUSY
            });
        }
    });
    patience
}

/// Whether a fiber that has FINISHED, other than the caller, has not left its stack yet.
fn some_are_leaving() -> bool {
    let me = current::try_current();
    let mut found = false;
    registry::for_each_alive(|fiber| {
        found |= fiber.kind.get() == Kind::Fiber
            && fiber.join.load(Ordering::Acquire) & (FINISHED | PINNED) == FINISHED
            && !fiber.stack.load(Ordering::Relaxed).is_null()
            && Some(fiber) != me;
    });
    found
}

/// The error of a call that needs a thread, which the kernel has refused with `error`.
pub(crate) fn of_threads(what_for: &str, error: &io::Error) -> io::Error {
    let knobs = "raise the limit of threads (ulimit -u, or pids.max of the control group) or of memory \
                 (ulimit -v)";
    let text = format!("no thread could be started {what_for}: {error}; {knobs}");
    io::Error::new(error.kind(), text)
}
