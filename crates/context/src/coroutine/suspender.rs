//! The way out of a coroutine.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::control::{self, Control};
use super::word;

/// The way out of a running coroutine: what its closure gets as the first argument.
///
/// It can be passed on to whatever the closure calls, but not to another thread. A coroutine of a
/// [scope](super::scope()) that the closure opens may borrow it as well: suspending by it from there
/// suspends this coroutine in the midst of that one, and resuming goes on there.
#[repr(transparent)]
pub struct Suspender<Input, Yield> {
    /// The running coroutine's, which its resumer also writes: hence the cell.
    control: UnsafeCell<Control>,
    marker: PhantomData<*mut (Input, Yield)>,
}

impl<Input, Yield> Suspender<Input, Yield> {
    /// # Safety
    ///
    /// `control` is a coroutine's with these types, and the reference is used by that coroutine only.
    #[inline]
    pub(super) unsafe fn from_control<'a>(control: *mut Control) -> &'a Self {
        // SAFETY: this type is transparent, and the caller vouches for the rest.
        unsafe { &*control.cast() }
    }

    #[inline(always)]
    pub(super) fn control(&self) -> *mut Control {
        self.control.get()
    }

    /// Suspends the coroutine with `value`, which the resumer receives, until it is resumed the next
    /// time, and returns what it is resumed with.
    ///
    /// # Panics
    ///
    /// When the coroutine is dropped instead of resumed, with a private payload, so that its
    /// destructors run. Do not catch this panic for good.
    ///
    /// # Aborts
    ///
    /// In a destructor that runs because the coroutine is panicking or being dropped: the resumer
    /// would be left with a panic that is not its own.
    #[inline]
    pub fn suspend(&self, value: Yield) -> Input {
        let control = self.control();
        let value = ManuallyDrop::new(value);
        // SAFETY: only code that runs while the coroutine runs can reach its suspender. It is lent to
        // the closure's call, for a lifetime that the closure cannot choose, so that nothing made
        // before or elsewhere can hold it; it is not `Sync`, so no other thread can. What is left are
        // coroutines of scopes opened within that call. They are resumed within it and end within it,
        // on stacks of their own, which the coroutine's frames wait for: whatever is saved here as
        // "the coroutine" then includes that wait, and goes on with it.
        // The resumer takes `value` out of this frame before anything else.
        unsafe {
            control::check_panics(control);
            control::receive(control::leave(control, word::pack(&value)))
        }
    }
}

impl<Input, Yield> fmt::Debug for Suspender<Input, Yield> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Suspender").finish_non_exhaustive()
    }
}
