//! A coroutine's end by force: it is dropped, or its scope ends, before it is complete.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use carefree_ground::fatal;

use super::control::Control;
use super::message::{self, Finished};
use super::switch;
use super::unwind::{self, keep_first};
use super::word::{self, Word};

/// Takes down a coroutine that is not complete, and gives its stack back, even if it panics.
///
/// # Safety
///
/// `control` belongs to a suspended coroutine with these types and an `F` as its closure. Nothing enters
/// it or takes it down afterwards: this was its only handle, or the handle is lost.
#[cold]
pub(super) unsafe fn dispose<Yield, Return, F>(control: *mut Control) {
    // SAFETY: the control block of a suspended coroutine is alive and belongs to the owner of its
    // handle, which is this function. An unwinding coroutine cannot transfer, so each message comes
    // from this one and has the types of this one: its second word says whether the first is a
    // `Finished<Return>` or a `Yield`.
    unsafe {
        if !(*control).started {
            discard::<F>(control);
            return;
        }
        if cfg!(panic = "abort") {
            fatal::abort(format_args!(
                "a suspended coroutine was dropped or its scope has ended, and this program is built \
                 with panic=\"abort\", so that its destructors cannot run: resume it to its end"
            ));
        }
        (*control).unwinding = true;
        let mut panicked = None;
        loop {
            let (word, sender) = switch::enter(control, Word::uninit(), message::UNWIND);
            if sender.is_null() {
                match Finished::<Return>::take(word) {
                    // The coroutine caught the panic and then returned.
                    Ok(value) => drop(value),
                    Err(payload) if unwind::is_forced(&*payload) => {}
                    Err(payload) => keep_first(&mut panicked, payload),
                }
                break;
            }
            // The coroutine caught the panic and then suspended itself. It is taken down even if
            // dropping what it yielded panics.
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

/// Takes down a coroutine that was never started. Its closure is an `F`.
///
/// # Safety
///
/// As for [`dispose`], and the coroutine never started.
unsafe fn discard<F>(control: *mut Control) {
    /// Gives the stack back even if the closure's destructor panics.
    struct Release(*mut Control);
    impl Drop for Release {
        fn drop(&mut self) {
            // SAFETY: the coroutine never started, and its closure's destructor has returned or
            // panicked. Nothing else has the handle.
            unsafe { Control::release(self.0) };
        }
    }
    let release = Release(control);
    // SAFETY: the coroutine never started, so the closure is where `create` put it.
    unsafe { Control::closure::<F>(release.0).drop_in_place() };
}
