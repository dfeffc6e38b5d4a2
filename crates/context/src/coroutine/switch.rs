//! The switch between a coroutine and its resumer.

use std::ptr;
use std::thread;

use carefree_ground::fatal;

use super::control::Control;
use super::message::{self, HandOver};
use super::unwind;
use super::word::{self, Word};
use crate::arch::{self, Message};
use crate::extent::{self, Place};
use crate::sanitizer::{self, Mark, MarkRef};

/// Passes control to a suspended coroutine and waits for a message to its resumer. Because of
/// transfers, the message may come from another coroutine.
///
/// # Safety
///
/// `control` is a suspended coroutine's, only the caller has its handle, and `word` is what `kind`,
/// one of the constants of [`message`], says.
#[inline(always)]
pub(super) unsafe fn enter(control: *mut Control, word: Word, kind: usize) -> (Word, *mut Control) {
    let message = Message { word, kind };
    // SAFETY: the control block of a suspended coroutine belongs to the owner of its handle, and
    // `pair.own` holds the coroutine.
    let message = unsafe {
        if thread::panicking() {
            note_panicking_resumer(control);
        }
        if extent::are_away() {
            enter_within_extents(control, message)
        } else {
            switch_to(control, message)
        }
    };
    (message.word, ptr::with_exposed_provenance_mut(message.kind))
}

/// Passes control back to the resumer and waits for a message to this coroutine.
///
/// # Safety
///
/// `control` is the running coroutine's, and `word` brings a value that it yields.
#[inline(always)]
pub(super) unsafe fn leave(control: *mut Control, word: Word) -> Message {
    // The resumer receives the pair's address, which is the control block's.
    control.expose_provenance();
    // SAFETY: the control block of a running coroutine belongs to the coroutine, and `pair.resumer`
    // holds its resumer.
    unsafe {
        if extent::are_away() {
            leave_without_extents(control, word)
        } else {
            switch_back(control, word)
        }
    }
}

/// Switches to a coroutine, until a switch back.
///
/// # Safety
///
/// As for [`enter`].
#[inline(always)]
unsafe fn switch_to(control: *mut Control, message: Message) -> Message {
    // SAFETY: the caller owns the suspended coroutine's control block. Its `pair.own` is entered once
    // after it was saved. Both marks are valid: the resumer's lies in this frame, which waits.
    unsafe {
        let mut mark = Mark::running();
        (*control).resumer_mark = MarkRef::to(&mut mark);
        sanitizer::leave(&raw mut mark, &raw const (*control).mark);
        let message = arch::resume(&raw mut (*control).pair, message);
        sanitizer::arrive(&raw const mark);
        message
    }
}

/// Switches from a coroutine to its resumer, until a switch back.
///
/// # Safety
///
/// As for [`leave`].
#[inline(always)]
unsafe fn switch_back(control: *mut Control, word: Word) -> Message {
    // SAFETY: the running coroutine owns its control block, whose `pair.resumer` holds the waiting
    // resumer, and so its mark too.
    unsafe {
        sanitizer::leave(&raw mut (*control).mark, (*control).resumer_mark.get());
        let message = arch::suspend(&raw mut (*control).pair, word);
        sanitizer::arrive(&raw const (*control).mark);
        message
    }
}

/// [`switch_to`] a coroutine that may be suspended within extents of its own.
///
/// # Safety
///
/// As for [`enter`].
#[cold]
#[inline(never)]
unsafe fn enter_within_extents(control: *mut Control, message: Message) -> Message {
    let boundary = extent::Boundary::new();
    // SAFETY: as for `enter`. The boundary ends in this frame: a switch does not panic.
    unsafe {
        boundary.begin(control.cast());
        let message = switch_to(control, message);
        boundary.end();
        message
    }
}

/// [`switch_back`] from a coroutine that may be within extents of its own.
///
/// # Safety
///
/// As for [`leave`].
#[cold]
#[inline(never)]
unsafe fn leave_without_extents(control: *mut Control, word: Word) -> Message {
    let own = Place::new(ptr::null());
    extent::detach(control.cast(), &own);
    // SAFETY: as for `leave`; extents do not change what is suspended.
    let message = unsafe { switch_back(control, word) };
    extent::attach(&own);
    message
}

/// # Safety
///
/// `control` is a suspended coroutine's, of which only the caller has the handle.
#[cold]
unsafe fn note_panicking_resumer(control: *mut Control) {
    // SAFETY: the control block of a suspended coroutine belongs to the owner of its handle.
    unsafe { (*control).resumer_panics = true };
}

/// Aborts if the running coroutine must not suspend itself because it is panicking.
///
/// The thread counts its panics, and `catch_unwind` counts down the one it has caught. If a
/// coroutine suspended itself while panicking (in a destructor), its resumer would inherit the
/// count and appear to be panicking: it would poison mutexes, and the count would stay wrong for
/// good.
///
/// If the *resumer* is panicking (it resumed the coroutine in a destructor), the count is the
/// resumer's, and the coroutine may suspend itself. A coroutine that panics on top of that is not
/// caught: std tells only whether the count is zero.
///
/// # Safety
///
/// `control` is the running coroutine's.
#[inline(always)]
pub(super) unsafe fn check_panics(control: *mut Control) {
    if thread::panicking() {
        // SAFETY: the control block of a running coroutine belongs to the coroutine.
        unsafe { leave_while_panicking(control) };
    }
}

/// # Safety
///
/// As for [`check_panics`].
#[cold]
unsafe fn leave_while_panicking(control: *mut Control) {
    // SAFETY: the control block of a running coroutine belongs to the coroutine.
    unsafe {
        if !(*control).resumer_panics {
            fatal::abort(format_args!(
                "a coroutine was suspended in a destructor while it was unwinding, \
                 which would leave its panic to its resumer: do not suspend in Drop"
            ));
        }
        (*control).resumer_panics = false;
    }
}

/// Takes the input that a message to the running coroutine brings, or unwinds.
///
/// # Safety
///
/// The message has just arrived at a coroutine that is resumed with an `Input`.
#[inline(always)]
pub(super) unsafe fn receive<Input>(message: Message) -> Input {
    // SAFETY: the second word says what the first is, and the sender's frame, in which the value may
    // lie, is suspended.
    unsafe {
        if message.kind == message::INPUT {
            word::unpack(message.word)
        } else {
            receive_other(message)
        }
    }
}

/// # Safety
///
/// As for [`receive`], and the message brings no input.
#[cold]
unsafe fn receive_other<Input>(message: Message) -> Input {
    if message.kind == message::UNWIND {
        unwind::throw();
    }
    // SAFETY: the only other kind is `TRANSFER`, whose first word is the address of a `HandOver` in
    // the suspended sender's frame. The types of both coroutines are the same.
    unsafe {
        let hand_over = message.word.assume_init();
        HandOver::take(ptr::with_exposed_provenance_mut::<HandOver<Input>>(hand_over))
    }
}
