//! The record of an operation in flight, and what other threads do with it: see [`crate::wait::operation`].

use carefree_context::arch;

use crate::carrier::carrier::Carrier;
use crate::carrier::errand::{Errand, ErrandRef};
use crate::carrier::wake::wake_completed;
use crate::fiber::header::FiberRef;
use crate::protocol::flight::Flight;
use crate::protocol::sync::Cell;

/// The record of an operation in flight. It is not moved, for its address is the operation's token.
#[repr(C)]
pub(crate) struct Operation {
    /// The first field, so that its address is the record's.
    errand: Errand,
    /// The fiber that waits for it.
    pub(crate) fiber: FiberRef,
    /// The carrier whose reactor has it.
    pub(crate) carrier: &'static Carrier,
    pub(crate) result: Cell<i32>,
    pub(crate) flight: Flight,
}

const _: () = assert!(std::mem::offset_of!(Operation, errand) == 0);

/// Writes to the record when the fiber uses its memory for something else: loom reports later accesses.
#[cfg(loom)]
impl Drop for Operation {
    fn drop(&mut self) {
        self.result.set(-1);
    }
}

impl Operation {
    pub(crate) fn new(fiber: FiberRef, carrier: &'static Carrier) -> Operation {
        Operation {
            errand: Errand::new(),
            fiber,
            carrier,
            result: Cell::new(0),
            flight: Flight::new(),
        }
    }

    /// Whether the kernel has cancelled the operation. To be asked when it is done, of one for which that
    /// was requested.
    pub(crate) fn was_cancelled(&self) -> bool {
        // EINTR, if the kernel had begun with it.
        matches!(-self.result.get(), libc::ECANCELED | libc::EINTR)
    }

    /// The token by which its reactor knows the operation: the record's address.
    pub(crate) fn token(&self) -> u64 {
        (&raw const *self) as u64
    }

    /// The request to cancel it, for the carrier that has submitted it.
    pub(crate) fn errand(&self) -> ErrandRef {
        ErrandRef::new(&self.errand)
    }
}

/// Fetches the record of the operation `token` into the cache.
#[inline]
pub(crate) fn prefetch(token: u64) {
    arch::prefetch(token as *const u8);
}

/// Fetches the header of the fiber that waits for the operation `token` into the cache.
///
/// # Safety
/// `token` is that of an [`Operation`] that was submitted and has not been completed.
#[inline]
pub(crate) unsafe fn prefetch_header(token: u64) {
    // SAFETY: the fiber keeps the record until `done` was sent, which only the completion does.
    unsafe { (*(token as *const Operation)).fiber }.prefetch_header();
}

/// The operation `token` is done.
///
/// # Safety
/// `token` is that of an [`Operation`] that was submitted, and this is its one completion.
pub(crate) unsafe fn complete(token: u64, result: i32) {
    // SAFETY: the fiber keeps the record until `done` was sent, below.
    let operation = unsafe { &*(token as *const Operation) };
    let fiber = operation.fiber;
    operation.result.set(result);
    // The last access to the record, which the fiber may free right after.
    operation.flight.complete();
    wake_completed(fiber);
}

/// Whether the operation of an errand is done, and need not be cancelled.
///
/// # Safety
/// `token` is that of an errand that was sent and has not been run.
pub(crate) unsafe fn is_done(token: u64) -> bool {
    // SAFETY: the fiber keeps the record until `heard` was sent, which only the errand does.
    unsafe { &*(token as *const Operation) }.flight.was_done()
}

/// Runs an errand, on the carrier to which it was sent or on that one's behalf. `cancel` asks that
/// carrier's driver to cancel the operation.
///
/// # Safety
/// `token` is that of an errand that was sent, and was taken from the list to be run this once.
pub(crate) unsafe fn run_errand(token: u64, cancel: impl FnOnce(u64)) {
    // SAFETY: the fiber keeps the record until `heard` was sent, below.
    let operation = unsafe { &*(token as *const Operation) };
    let fiber = operation.fiber;
    // The last access to the record.
    operation.flight.hear(|| cancel(token));
    wake_completed(fiber);
}
