//! Coroutines that end with a scope: the safe way to have them.
//!
//! # Why it is sound
//!
//! What makes an owned coroutine unsafe (see [`Coroutine::new`](super::Coroutine::new)) is that
//! nothing forces it to end: its handle can be forgotten, leaked, or kept in a thread-local
//! variable, and then its frames stop for good while the thread ends, and with it the thread-local
//! variables that they borrow. Here the scope knows every coroutine made in it that is not complete,
//! and takes down what is left when its closure has returned or panicked. So:
//!
//! * **At the end of the scope nothing can use a handle any more.** A handle's type names the
//!   lifetime of the reference to the [`Scope`] (`'h`), which the closure cannot choose. The
//!   closure's value cannot contain it. Neither can the body of a coroutine of the scope, nor what
//!   goes in and out of it: they outlive `'env`, which was chosen before the scope began. Handles
//!   that were forgotten or leaked are just that, and the closure's own are dropped. So whatever is
//!   left is suspended, the scope alone can enter it, and no new one can be made meanwhile.
//! * **No coroutine of the scope waits for the scope's end**, which it would have to if it ran: the
//!   closure's frame has been returned to, and code of the scope's coroutines runs only in calls
//!   that the closure waits for. (A coroutine that was suspended from within a coroutine of a scope
//!   of its own is suspended like any other; see [`Suspender::suspend`].)
//! * **The scope's end is always reached**, unless the process ends. Its frame lies on a stack that
//!   cannot be abandoned: a thread's or a fiber's, which runs to its end before its thread-local
//!   variables go; or, by induction, that of a coroutine of another scope, which is unwound at that
//!   scope's end, and this frame with it; or that of an owned coroutine, for which the caller of an
//!   `unsafe` function has promised as much. A body that catches the panic which unwinds it is
//!   entered again until it returns; if it never does, the scope's end waits for ever.
//! * **What the bodies borrow is there till then**: it outlives `'env`, and so the call of [`scope`].

use std::cell::Cell;
use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::{self, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use super::control::Control;
use super::suspender::Suspender;
use super::{Coroutine, CoroutineState, no_stack, unwind};
use crate::stack::StackSize;

/// Runs `f`, which may make coroutines that borrow from the caller; ends those that are not
/// complete when `f` has returned or panicked, and returns its value.
///
/// This is the safe way to have coroutines: none can outlive what its frames borrow, be it the
/// caller's variables or the thread's. What is still suspended at the end is unwound, as a coroutine
/// is that is [dropped](Coroutine#dropping).
///
/// ```
/// use carefree_context::coroutine::{self, CoroutineState};
///
/// let limit = 100;
/// coroutine::scope(|s| {
///     let mut sum = s.coroutine(|suspender, first: u32| {
///         let mut total = first;
///         while total < limit {
///             total += suspender.suspend(total);
///         }
///         format!("{total} is enough")
///     });
///     assert_eq!(sum.resume(1), CoroutineState::Yielded(1));
///     assert_eq!(sum.resume(20), CoroutineState::Yielded(21));
///     assert_eq!(sum.resume(80), CoroutineState::Complete("101 is enough".to_string()));
///     assert!(sum.is_done());
/// });
/// ```
///
/// A coroutine that takes nothing and returns nothing is an [`Iterator`] over what it yields:
///
/// ```
/// use carefree_context::coroutine::{self, Suspender};
///
/// fn moves(discs: u32, from: char, to: char, via: char, s: &Suspender<(), (char, char)>) {
///     if discs > 0 {
///         moves(discs - 1, from, via, to, s);
///         s.suspend((from, to));
///         moves(discs - 1, via, to, from, s);
///     }
/// }
/// let count = coroutine::scope(|scope| {
///     scope.coroutine(|s, ()| moves(3, 'a', 'c', 'b', s)).count()
/// });
/// assert_eq!(count, 7);
/// ```
///
/// A coroutine borrows what lives outside of the scope, not what `f` itself has; that is moved in:
///
/// ```compile_fail,E0373
/// use carefree_context::coroutine::{self, Suspender};
///
/// coroutine::scope(|s| {
///     let inside = String::from("ends before the scope does");
///     s.coroutine(|_: &Suspender<(), ()>, ()| inside.len()).resume(());
/// });
/// ```
///
/// Neither a handle nor the scope can be taken out, not even by one of the coroutines:
///
/// ```compile_fail,E0521
/// use carefree_context::coroutine::{self, Suspender};
///
/// let mut escaped = None;
/// coroutine::scope(|s| escaped = Some(s.coroutine(|_: &Suspender<(), ()>, ()| 1)));
/// ```
///
/// ```compile_fail
/// use carefree_context::coroutine::{self, Suspender};
///
/// let kept = coroutine::scope(|s| s.coroutine(|_: &Suspender<(), ()>, ()| 1));
/// ```
///
/// ```compile_fail,E0521
/// use carefree_context::coroutine::{self, Suspender};
///
/// coroutine::scope(|s| {
///     let mut one = s.coroutine(|_: &Suspender<(), ()>, ()| 1);
///     s.coroutine(move |_: &Suspender<(), ()>, ()| one.is_done()).resume(());
/// });
/// ```
///
/// Nor can a suspender be: not through what lives outside, nor by another thread.
///
/// ```compile_fail,E0521
/// use carefree_context::coroutine::{self, Suspender};
///
/// let mut escaped: Option<&Suspender<(), ()>> = None;
/// coroutine::scope(|s| {
///     s.coroutine(|suspender, ()| escaped = Some(suspender)).resume(());
/// });
/// ```
///
/// ```compile_fail,E0277
/// use carefree_context::coroutine::{self, Suspender};
///
/// coroutine::scope(|s| {
///     s.coroutine(|suspender: &Suspender<(), ()>, ()| {
///         std::thread::scope(|threads| threads.spawn(|| suspender.suspend(())).join().unwrap())
///     }).resume(());
/// });
/// ```
///
/// # Panics
///
/// With `f`'s panic; or with that of a coroutine which, when it was unwound at the end, panicked
/// otherwise. All others are ended before that.
///
/// # Aborts
///
/// In a program built with `panic = "abort"`, if a coroutine is still suspended at the end: nothing can
/// be unwound there.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'h> FnOnce(&'h Scope<'env>) -> T,
{
    let scope = Scope { first: Links::none(), env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    let mut panicked = None;
    while let Some(control) = scope.first.next() {
        // SAFETY: the coroutine is suspended, and nothing can enter it any more (see the page above).
        // It leaves the list when it gives its stack back, which it does in any case.
        let ended = catch_unwind(AssertUnwindSafe(|| unsafe { ((*control).dispose)(control) }));
        if let Err(payload) = ended {
            unwind::keep_first(&mut panicked, payload);
        }
    }
    // Only now may the function's value be dropped or its panic go on: a destructor that panics would
    // leave this frame.
    match (result, panicked) {
        (Ok(value), None) => value,
        (Ok(value), Some(payload)) => {
            if let Err(other) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
                mem::forget(other);
            }
            resume_unwind(payload)
        }
        (Err(payload), other) => {
            mem::forget(other);
            resume_unwind(payload)
        }
    }
}

/// Makes coroutines that end before it does: see [`scope`].
pub struct Scope<'env> {
    /// Of the list of coroutines that are not complete, the latest first.
    first: Links,
    /// Invariant, as that of `std::thread::Scope`.
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Scope<'env> {
    /// Makes a coroutine that will run `f`, on a stack of the default size.
    ///
    /// `f` starts with the first [`resume`](ScopedCoroutine::resume), which hands it its second
    /// argument. It is moved to the coroutine's stack: nothing is allocated.
    ///
    /// # Panics
    ///
    /// When no stack can be had (see [`coroutine_with_stack_size`](Self::coroutine_with_stack_size),
    /// which returns the error instead).
    #[track_caller]
    pub fn coroutine<'h, Input, Yield, Return, F>(
        &'h self,
        f: F,
    ) -> ScopedCoroutine<'h, Input, Yield, Return>
    where
        Input: 'env,
        Yield: 'env,
        Return: 'env,
        F: FnOnce(&Suspender<Input, Yield>, Input) -> Return + 'env,
    {
        self.coroutine_with_stack_size(StackSize::default(), f)
            .unwrap_or_else(|error| no_stack(&error))
    }

    /// Makes a coroutine that will run `f`, on a stack of the given size.
    ///
    /// # Errors
    ///
    /// When no stack can be had: the error names the limit that was reached. When the stack is too
    /// small for what `f` captures.
    pub fn coroutine_with_stack_size<'h, Input, Yield, Return, F>(
        &'h self,
        size: StackSize,
        f: F,
    ) -> io::Result<ScopedCoroutine<'h, Input, Yield, Return>>
    where
        Input: 'env,
        Yield: 'env,
        Return: 'env,
        F: FnOnce(&Suspender<Input, Yield>, Input) -> Return + 'env,
    {
        let coroutine = Coroutine::plain(size, f)?;
        // SAFETY: the new coroutine's own, which lies still until it is released, as the scope does,
        // which its handle borrows.
        unsafe { self.first.insert(&raw const (*coroutine.control).links) };
        Ok(ScopedCoroutine { coroutine, scope: PhantomData })
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// A [`Coroutine`] that ends with its [`Scope`] at the latest.
///
/// It is ended when this is dropped. If this is forgotten, the end of the scope does it.
pub struct ScopedCoroutine<'h, Input, Yield, Return> {
    /// Never handed out: two of them could be exchanged, with one that is not scoped.
    coroutine: Coroutine<Input, Yield, Return>,
    scope: PhantomData<&'h ()>,
}

impl<Input, Yield, Return> ScopedCoroutine<'_, Input, Yield, Return> {
    /// Runs the coroutine until it suspends itself or completes: see [`Coroutine::resume`].
    ///
    /// # Panics
    ///
    /// When the coroutine is complete already, and with the coroutine's own panic.
    #[inline]
    #[track_caller]
    pub fn resume(&mut self, input: Input) -> CoroutineState<Yield, Return> {
        self.coroutine.resume(input)
    }

    /// Whether the coroutine has returned or panicked, so that it cannot be resumed any more.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.coroutine.is_done()
    }
}

/// Yields what the coroutine yields.
impl<Yield> Iterator for ScopedCoroutine<'_, (), Yield, ()> {
    type Item = Yield;

    #[inline]
    fn next(&mut self) -> Option<Yield> {
        self.coroutine.next()
    }
}

impl<Yield> FusedIterator for ScopedCoroutine<'_, (), Yield, ()> {}

impl<Input, Yield, Return> fmt::Debug for ScopedCoroutine<'_, Input, Yield, Return> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ScopedCoroutine")
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}

/// A place in the list of a scope's coroutines: the scope's own, which begins it, or that of a
/// coroutine, in its control block. Null where there is no neighbour. All of a list belongs to one
/// thread.
pub(super) struct Links {
    previous: Cell<*const Links>,
    next: Cell<*const Links>,
}

impl Links {
    /// In no list, or the beginning of an empty one.
    pub(super) const fn none() -> Links {
        Links { previous: Cell::new(ptr::null()), next: Cell::new(ptr::null()) }
    }

    /// The coroutine that comes next.
    fn next(&self) -> Option<*mut Control> {
        let next = self.next.get();
        let control = next.wrapping_byte_sub(offset_of!(Control, links)).cast::<Control>();
        (!next.is_null()).then_some(control.cast_mut())
    }

    /// Puts `new` behind this one.
    ///
    /// # Safety
    /// Both stay where they are, and alive, until they are [removed](Self::remove).
    unsafe fn insert(&self, new: *const Links) {
        let next = self.next.replace(new);
        // SAFETY: the caller's promise, of which `next` was the object earlier.
        unsafe {
            (*new).previous.set(self);
            (*new).next.set(next);
            if let Some(next) = next.as_ref() {
                next.previous.set(new);
            }
        }
    }

    /// Takes this one out of its list, if it is in one.
    ///
    /// # Safety
    /// It was put there by [`insert`](Self::insert), and is not the scope's.
    #[inline]
    pub(super) unsafe fn remove(&self) {
        // SAFETY: neighbours in a list are alive, as each was promised to be.
        unsafe {
            if let Some(previous) = self.previous.get().as_ref() {
                previous.next.set(self.next.get());
                if let Some(next) = self.next.get().as_ref() {
                    next.previous.set(previous);
                }
            }
        }
    }
}
