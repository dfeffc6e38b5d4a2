//! The record of an operation in flight, and what the completing thread does with it: see
//! [`crate::wait::operation`].

use carefree_context::arch;

use crate::carrier::carrier::Carrier;
use crate::carrier::errand::{Errand, ErrandRef};
use crate::carrier::wake::wake_completed;
use crate::fiber::header::FiberRef;
use crate::protocol::flight::Flight;
use crate::protocol::sync::Cell;

/// An operation in flight. A record of its own for each, never moved.
#[repr(C)]
pub(crate) struct Operation {
    /// First, so that it has the record's address.
    errand: Errand,
    /// The fiber that waits for it.
    pub(crate) fiber: FiberRef,
    /// The carrier whose reactor has it.
    pub(crate) carrier: &'static Carrier,
    pub(crate) result: Cell<i32>,
    pub(crate) flight: Flight,
}

const _: () = assert!(std::mem::offset_of!(Operation, errand) == 0);

/// The memory is the fiber's again. loom reports what touches the record later.
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

    /// Whether it was, now that it is done and its end was asked for.
    pub(crate) fn was_cancelled(&self) -> bool {
        // One that was under way says EINTR.
        matches!(-self.result.get(), libc::ECANCELED | libc::EINTR)
    }

    /// What its reactor knows it by: the record's address.
    pub(crate) fn token(&self) -> u64 {
        (&raw const *self) as u64
    }

    /// What asks the carrier that has it to cancel it.
    pub(crate) fn errand(&self) -> ErrandRef {
        ErrandRef::new(&self.errand)
    }
}

/// Has the record of the operation `token` fetched into the cache.
#[inline]
pub(crate) fn prefetch(token: u64) {
    arch::prefetch(token as *const u8);
}

/// Has the header fetched of the fiber that waits for the operation `token`.
///
/// # Safety
/// `token` was given to a reactor by [`perform`](crate::wait::operation::perform) and has not been completed.
#[inline]
pub(crate) unsafe fn prefetch_header(token: u64) {
    // SAFETY: the record lives until `done` is sent.
    unsafe { (*(token as *const Operation)).fiber }.prefetch_header();
}

/// The operation `token` is done.
///
/// # Safety
/// `token` was given to a reactor by [`perform`](crate::wait::operation::perform), and this is its one completion.
pub(crate) unsafe fn complete(token: u64, result: i32) {
    // SAFETY: the record lives until `done` is sent.
    let operation = unsafe { &*(token as *const Operation) };
    let fiber = operation.fiber;
    operation.result.set(result);
    // The last touch.
    operation.flight.complete();
    wake_completed(fiber);
}

/// Whether the operation of an errand that has not been run needs no cancelling any more.
///
/// # Safety
/// `token` comes from [`Carrier::send_errand`].
pub(crate) unsafe fn is_done(token: u64) -> bool {
    // SAFETY: the record lives until `heard` is sent.
    unsafe { &*(token as *const Operation) }.flight.was_done()
}

/// Runs an errand on the carrier it was sent to, or in its stead: `cancel` is its reactor's.
///
/// # Safety
/// `token` comes from [`Carrier::send_errand`].
pub(crate) unsafe fn run_errand(token: u64, cancel: impl FnOnce(u64)) {
    // SAFETY: the record lives until `heard` is sent.
    let operation = unsafe { &*(token as *const Operation) };
    let fiber = operation.fiber;
    // The last touch.
    operation.flight.hear(|| cancel(token));
    wake_completed(fiber);
}
