//! Panics that leave a coroutine: its own, and the one that unwinds it when it is dropped.

use std::any::Any;
use std::mem;
use std::panic::resume_unwind;

/// The payload of the panic that unwinds a coroutine which is being dropped.
struct ForcedUnwind;

/// Unwinds the running coroutine, without calling the panic hook.
pub(super) fn throw() -> ! {
    // The payload is of size zero, so nothing is allocated.
    resume_unwind(Box::new(ForcedUnwind))
}

/// Whether [`throw`] raised the panic that has this payload.
pub(super) fn is_forced(payload: &(dyn Any + Send)) -> bool {
    payload.is::<ForcedUnwind>()
}

/// The value of a completed coroutine; if a panic completed it, raises that panic again.
#[inline]
pub(super) fn unwrap<Return>(result: Result<Return, Box<dyn Any + Send>>) -> Return {
    match result {
        Ok(value) => value,
        Err(payload) => resume_unwind(payload),
    }
}

/// Keeps the first of several panics, since only one can be raised again. The payloads of the
/// others are leaked: dropping them might panic.
pub(super) fn keep_first(first: &mut Option<Box<dyn Any + Send>>, payload: Box<dyn Any + Send>) {
    match first {
        None => *first = Some(payload),
        Some(_) => mem::forget(payload),
    }
}
