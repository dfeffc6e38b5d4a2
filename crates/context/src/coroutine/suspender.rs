//! The means by which a coroutine suspends itself.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::control::Control;
use super::{switch, word};

/// Suspends a running coroutine: the first argument of its closure.
///
/// It can be passed to functions that the closure calls, but not to another thread. A coroutine of
/// a [scope](super::scope()) that the closure opens may borrow it as well: suspending from there
/// suspends this coroutine in the middle of that one, and resuming continues there.
#[repr(transparent)]
pub struct Suspender<Input, Yield> {
    /// The running coroutine's control block. A cell, because its resumer writes to it as well.
    control: UnsafeCell<Control>,
    marker: PhantomData<*mut (Input, Yield)>,
}

impl<Input, Yield> Suspender<Input, Yield> {
    /// # Safety
    ///
    /// `control` is a coroutine's with these types, and the reference is used by that coroutine only.
    #[inline]
    pub(super) unsafe fn from_control<'a>(control: *mut Control) -> &'a Self {
        // SAFETY: this type is a transparent wrapper of the control block, which is alive while its
        // coroutine runs. Its resumer writes to the block as well, but it is within an `UnsafeCell`.
        unsafe { &*control.cast() }
    }

    #[inline(always)]
    pub(super) fn control(&self) -> *mut Control {
        self.control.get()
    }

    /// Suspends the coroutine with `value`, which its resumer receives, until it is resumed again;
    /// returns the input of that resume.
    ///
    /// # Panics
    ///
    /// When the coroutine is dropped instead of resumed, with a private payload, so that its
    /// destructors run. Code that catches this panic must raise it again.
    ///
    /// # Aborts
    ///
    /// In a destructor that runs because the coroutine is panicking or being dropped: the resumer
    /// would be left with a panic that is not its own.
    #[inline]
    pub fn suspend(&self, value: Yield) -> Input {
        let control = self.control();
        let value = ManuallyDrop::new(value);
        // SAFETY: the coroutine is running, because only code that runs within its closure can
        // reach the suspender. It is lent to the closure's call, for a lifetime that the closure
        // cannot choose, so nothing made before or elsewhere can hold it; it is not `Sync`, so no
        // other thread can. That leaves coroutines of scopes opened within that call. They are
        // resumed and end within it, on stacks of their own, while the coroutine's frames wait. The
        // context saved here as "the coroutine" then includes that wait, and resuming it continues
        // within it. The resumer takes `value` out of this frame before anything else.
        unsafe {
            switch::check_panics(control);
            switch::receive(switch::leave(control, word::pack(&value)))
        }
    }
}

impl<Input, Yield> fmt::Debug for Suspender<Input, Yield> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Suspender").finish_non_exhaustive()
    }
}
