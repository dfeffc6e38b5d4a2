//! How a coroutine ends otherwise than by returning: by a panic, or because it is dropped.

use std::any::Any;
use std::io::Write;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::control::{self, Control, Finished, arrival};
use super::word::{self, Word};

/// The payload of the panic that unwinds a coroutine which is being dropped.
struct ForcedUnwind;

/// Unwinds the running coroutine, without the panic hook.
pub(super) fn throw() -> ! {
    // The payload is of size zero: nothing is allocated.
    resume_unwind(Box::new(ForcedUnwind))
}

/// Goes on with the panic of a coroutine that has completed by one.
#[inline]
pub(super) fn unwrap<Return>(result: Result<Return, Box<dyn Any + Send>>) -> Return {
    match result {
        Ok(value) => value,
        Err(payload) => resume_unwind(payload),
    }
}

/// Takes a coroutine down that is not complete, and gives its stack back, even if it panics.
///
/// # Safety
///
/// `control` is of a suspended coroutine with these types, which nothing enters or takes down any
/// more: this was its only handle, or the handle is lost.
#[cold]
pub(super) unsafe fn dispose<Yield, Return, F>(control: *mut Control) {
    // SAFETY: the caller's promise; each message is what its second word says it is.
    unsafe {
        if !(*control).started {
            control::discard::<F>(control);
            return;
        }
        if cfg!(panic = "abort") {
            abort(
                "a suspended coroutine was dropped or its scope has ended, and this program is built \
                 with panic=\"abort\", so that its destructors cannot run: resume it to its end",
            );
        }
        (*control).unwinding = true;
        let mut panicked = None;
        loop {
            // It does not transfer any more, so it is the sender of what comes.
            let (word, sender) = control::enter(control, Word::uninit(), arrival::UNWIND);
            if sender.is_null() {
                match Finished::<Return>::take(word) {
                    // Caught, and the coroutine went on to its end.
                    Ok(value) => drop(value),
                    Err(payload) if payload.is::<ForcedUnwind>() => {}
                    Err(payload) => keep_first(&mut panicked, payload),
                }
                break;
            }
            // Caught, and the coroutine has suspended itself again. If dropping what it yielded panics,
            // the coroutine is taken down all the same.
            let value = word::unpack::<Yield>(word);
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
                keep_first(&mut panicked, payload);
            }
        }
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }
}

/// Keeps the first of several panics: only one can go on. The payloads of others are leaked, for they
/// might panic themselves when they are dropped.
pub(super) fn keep_first(first: &mut Option<Box<dyn Any + Send>>, payload: Box<dyn Any + Send>) {
    match first {
        None => *first = Some(payload),
        Some(_) => mem::forget(payload),
    }
}

/// Ends the program with one line.
#[cold]
pub(super) fn abort(line: &str) -> ! {
    // Nobody is left to tell that standard error is closed.
    let _ = writeln!(std::io::stderr(), "carefree: {line}; aborting");
    std::process::abort();
}
