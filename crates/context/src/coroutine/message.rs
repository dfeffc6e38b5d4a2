//! The messages that switches carry between a coroutine and its resumer.
//!
//! A message is two words. The first brings a value (see `word.rs`), which may lie in the sender's
//! frame. The receiver moves it out before it does anything else; until then the sender is suspended,
//! and afterwards it does not touch the value. The second word says what the first is: to a coroutine,
//! one of [`INPUT`], [`TRANSFER`] and [`UNWIND`]; to a resumer, the control block of the sender, which
//! the resumer's handle points to from then on, or null if the sender is complete.

use std::any::Any;
use std::ptr;

use super::control::Control;
use super::word::Word;

/// To a coroutine: the first word is an input.
pub(super) const INPUT: usize = 0;
/// To a coroutine: the first word is the address of a [`HandOver`], which makes an input.
pub(super) const TRANSFER: usize = 1;
/// To a coroutine: it must unwind. The first word is unused.
pub(super) const UNWIND: usize = 2;

/// What the last message of a coroutine brings to its resumer.
pub(super) struct Finished<Return> {
    pub(super) control: *mut Control,
    pub(super) result: Result<Return, Box<dyn Any + Send>>,
}

impl<Return> Finished<Return> {
    /// Takes the result from a completed coroutine and gives its stack back.
    ///
    /// # Safety
    ///
    /// `word` is of the last message of a coroutine that returns a `Return`, and is taken once.
    #[inline(never)]
    pub(super) unsafe fn take(word: Word) -> Result<Return, Box<dyn Any + Send>> {
        // SAFETY: the last message's word is the address of a `Finished<Return>` in the coroutine's
        // last frame, on a stack that is alive until `release`. By then the result is moved out,
        // and a completed coroutine uses its stack no more.
        unsafe {
            let finished =
                ptr::with_exposed_provenance::<Finished<Return>>(word.assume_init()).read();
            Control::release(finished.control);
            finished.result
        }
    }
}

/// The message of a transfer as its target sees it, which does not know the type of the sender's
/// closure.
#[repr(C)]
pub(super) struct HandOver<Input> {
    pub(super) take: unsafe fn(*mut HandOver<Input>) -> Input,
}

impl<Input> HandOver<Input> {
    /// Makes the target's input.
    ///
    /// # Safety
    ///
    /// `message` has just arrived with [`TRANSFER`], at a coroutine that takes an `Input`.
    pub(super) unsafe fn take(message: *mut HandOver<Input>) -> Input {
        // SAFETY: the sender is suspended, so the message in its frame is alive; `take` is the
        // function that the sender chose for a message of its type.
        unsafe { ((*message).take)(message) }
    }
}
