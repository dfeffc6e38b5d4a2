//! No memory for a stack: what idles elsewhere is called in.
//!
//! Idle stacks keep their address space, on the carriers that used them last, in the pool of
//! furnished ones, and in that of bare ones. Where a limit on it (`RLIMIT_AS`, `vm.max_map_count`)
//! refuses one more, those may be all that is wanted: of the right size but on another carrier, or
//! of another size. And a fiber that has been joined may not have left its stack yet. So a caller that is
//! refused calls in what idles, and tries again until nothing more is to come.
//!
//! *No call is missed.* Carriers look at [`calls::made`] whenever they are about to sleep, and a wake-up
//! that comes between look and sleep ends that sleep. One that is kept busy by its fiber may not
//! hear in time: it is not waited for for long. One that sleeps, or whose fiber is about to leave,
//! needs a processor for some microseconds only; but on a busy machine it may have to wait for that.

use std::io;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use carefree_context::stack::{Stack, StackPool, StackSize};
use carefree_ground::nap;
use carefree_reactor::clock;

use crate::carrier::calls;
use crate::carrier::carrier;
use crate::carrier::runtimes;
use crate::fiber::current;
use crate::fiber::furnish;
use crate::fiber::header::{FINISHED, Kind, PINNED};
use crate::fiber::registry;

/// How long carriers have to give back what they do not need that have only that to do. The caller
/// may be a carrier itself, and keeps its fibers waiting meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long those have that run fibers, as far as can be told.
const PATIENCE_WITH_BUSY: Duration = Duration::from_millis(10);
/// Time between two tries.
const PAUSE: Duration = Duration::from_micros(50);

/// Acquires a stack of `size` after that was refused with `refusal`. The caller's carrier, if it is
/// on one, has given back what it keeps at hand.
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
    let begun = clock::now();
    loop {
        // Asked first: what they give back until the answer is found by this try.
        let patience = if some_are_leaving() { PATIENCE } else { patience_with_carriers(call) };
        furnish::strip_idle();
        let refusal = match StackPool::global().acquire(size) {
            Err(refusal) => refusal,
            acquired => return acquired,
        };
        if clock::now() >= clock::add(begun, patience) {
            return Err(refusal);
        }
        // Lets other threads run. (libc's sleep would park the caller.)
        nap::sleep(PAUSE);
    }
}

/// How long to wait for carriers other than the caller's that have not heard this call.
fn patience_with_carriers(call: u64) -> Duration {
    let here = carrier::here().map(ptr::from_ref);
    let mut patience = Duration::ZERO;
    runtimes::for_each(|runtime| {
        let others = runtime.carriers.iter().filter(|other| Some(ptr::from_ref(&***other)) != here);
        for other in others.filter(|other| other.calls_heard() < call) {
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

/// Whether a fiber that can be joined, other than the caller, has still to leave its stack.
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

/// The error of a call that needs a thread, which the kernel has refused for `error`.
pub(crate) fn of_threads(what_for: &str, error: &io::Error) -> io::Error {
    let knobs = "raise the limit of threads (ulimit -u, or pids.max of the control group) or of memory \
                 (ulimit -v)";
    let text = format!("no thread could be started {what_for}: {error}; {knobs}");
    io::Error::new(error.kind(), text)
}
