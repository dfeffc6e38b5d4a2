//! Coroutines that end with a scope, so that they may borrow.
//!
//! # Why it is sound
//!
//! Nothing forces an owned coroutine (see [`Coroutine::new`](super::Coroutine::new)) to end: its handle can
//! be forgotten, leaked, or kept in a thread-local variable. Then its frames stop for good, while the
//! thread ends and destroys the thread-local variables that they borrow. A scope knows every coroutine
//! made in it that is not complete, and takes down those that are left when its closure has returned or
//! panicked. So:
//!
//! * **At the end of the scope nothing can use a handle any more.** A handle's type names the
//!   lifetime of the reference to the [`Scope`] (`'h`), which the closure cannot choose. The
//!   closure's return value cannot contain it. Neither can the body of a coroutine of the scope,
//!   nor the values that go in and out of it: they outlive `'env`, which was chosen before the
//!   scope began. Handles that were forgotten or leaked are unreachable, and the closure's own are
//!   dropped. So every coroutine that is left is suspended, only the scope can enter it, and no new
//!   one can be made.
//! * **No coroutine of the scope waits for the scope's end**, as it would have to if it were running:
//!   the closure has returned, and code of the scope's coroutines runs only in calls that the closure
//!   waits for. (A coroutine that was suspended from within a coroutine of a scope of its own is
//!   suspended like any other; see [`Suspender::suspend`].)
//! * **The scope's end is always reached**, unless the process ends. Its frame lies on a stack that
//!   cannot be abandoned: a thread's or a fiber's, which runs to its end before its thread-local
//!   variables are destroyed; or, by induction, that of a coroutine of another scope, which is
//!   unwound at that scope's end, and this frame with it; or that of an owned coroutine, for which
//!   the caller of an `unsafe` function guarantees the same. A body that catches the panic which
//!   unwinds it is entered again until it returns; if it never does, the scope's end waits for
//!   ever.
//! * **What the bodies borrow lives until then**: it outlives `'env`, and so the call of [`scope`].
//! * **Calls that set a thread-local variable until they end are nested**, on which such code relies, and which
//!   no type tells: the caller of [`scope`] promises it. Everything within a scope is safe then. The promise is
//!   asked for there because it is about calls in the bodies *and* those around their resumes, and code that
//!   opens a scope decides on both. Code that makes a coroutine need not know what resumes it; code that is
//!   given a suspender need not know the frames below its own; and [`Iterator::next`], which resumes, cannot be
//!   unsafe.

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::control::Control;
use super::links::Links;
use super::owned::{Coroutine, CoroutineState, no_stack};
use super::suspender::Suspender;
use super::unwind;
use crate::stack::StackSize;

/// Runs `f`, which may make coroutines that borrow from the caller; ends those that are not
/// complete when `f` has returned or panicked, and returns its value.
///
/// No coroutine of a scope can outlive what its frames borrow, neither the caller's variables nor
/// the thread's. Coroutines that are still suspended at the end are unwound, as if they were
/// [dropped](Coroutine#dropping).
///
/// ```
/// use carefree_context::coroutine::{self, CoroutineState};
///
/// let limit = 100;
/// // SAFETY: the coroutine suspends within no call that sets a thread-local variable.
/// unsafe {
///     coroutine::scope(|s| {
///         let mut sum = s.coroutine(|suspender, first: u32| {
///             let mut total = first;
///             while total < limit {
///                 total += suspender.suspend(total);
///             }
///             format!("{total} is enough")
///         });
///         assert_eq!(sum.resume(1), CoroutineState::Yielded(1));
///         assert_eq!(sum.resume(20), CoroutineState::Yielded(21));
///         assert_eq!(sum.resume(80), CoroutineState::Complete("101 is enough".to_string()));
///         assert!(sum.is_done());
///     });
/// }
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
/// // SAFETY: `moves` sets no thread-local variable.
/// let count = unsafe {
///     coroutine::scope(|scope| scope.coroutine(|s, ()| moves(3, 'a', 'c', 'b', s)).count())
/// };
/// assert_eq!(count, 7);
/// ```
///
/// # What the compiler checks
///
/// All but what "Safety" asks for. A coroutine can borrow what lives outside of the scope, but not the
/// variables of `f`, which must be moved into it:
///
/// ```compile_fail,E0373
/// use carefree_context::coroutine::{self, Suspender};
///
/// unsafe {
///     coroutine::scope(|s| {
///         let inside = String::from("ends before the scope does");
///         s.coroutine(|_: &Suspender<(), ()>, ()| inside.len()).resume(());
///     });
/// }
/// ```
///
/// Neither a handle nor the scope can leave the closure, not even by way of a coroutine:
///
/// ```compile_fail,E0521
/// use carefree_context::coroutine::{self, Suspender};
///
/// let mut escaped = None;
/// unsafe { coroutine::scope(|s| escaped = Some(s.coroutine(|_: &Suspender<(), ()>, ()| 1))) };
/// ```
///
/// ```compile_fail
/// use carefree_context::coroutine::{self, Suspender};
///
/// let kept = unsafe { coroutine::scope(|s| s.coroutine(|_: &Suspender<(), ()>, ()| 1)) };
/// ```
///
/// ```compile_fail,E0521
/// use carefree_context::coroutine::{self, Suspender};
///
/// unsafe {
///     coroutine::scope(|s| {
///         let mut one = s.coroutine(|_: &Suspender<(), ()>, ()| 1);
///         s.coroutine(move |_: &Suspender<(), ()>, ()| one.is_done()).resume(());
///     });
/// }
/// ```
///
/// Nor can a suspender leave its coroutine, neither to a variable outside nor to another thread:
///
/// ```compile_fail,E0521
/// use carefree_context::coroutine::{self, Suspender};
///
/// let mut escaped: Option<&Suspender<(), ()>> = None;
/// unsafe {
///     coroutine::scope(|s| {
///         s.coroutine(|suspender, ()| escaped = Some(suspender)).resume(());
///     });
/// }
/// ```
///
/// ```compile_fail,E0277
/// use carefree_context::coroutine::{self, Suspender};
///
/// unsafe {
///     coroutine::scope(|s| {
///         s.coroutine(|suspender: &Suspender<(), ()>, ()| {
///             std::thread::scope(|threads| threads.spawn(|| suspender.suspend(())).join().unwrap())
///         }).resume(());
///     });
/// }
/// ```
///
/// # Safety
///
/// The coroutines share the thread-local storage of the thread (or fiber) that resumes them, and some code relies
/// on the calls of one thread being nested. It sets a thread-local variable for the time of a call, or until a
/// guard is dropped, and restores the former value after it (`set` of the crate `scoped_tls`); or it lends to a
/// call what was set in this way (its `with`). A coroutine that is suspended within such a call lets its resumer
/// and other coroutines begin and end calls of their own, and what is restored, or was lent, may be gone by then.
///
/// So the caller must ensure that of such calls that concern one variable, by the coroutines of the scope and by
/// the code that resumes or ends them, **each ends before those that were under way when it began**. It suffices
/// that **no coroutine of the scope is suspended within such a call**, be it by itself or from within a coroutine
/// of a scope that it has opened.
///
/// [`LocalKey::with`](std::thread::LocalKey::with) is no such call: what it lends lives until the thread ends, and
/// the scope ends before. Nor is a call of Carefree's own (`timeout`, `on_large_stack`): what it has set goes
/// along with the coroutine. Nor does the order matter where no memory depends on it: a span that `tracing` has
/// entered is taken for the resumer's as well, and that is all.
///
/// This program does not ensure it, and reads freed memory:
///
/// ```no_run
/// # use carefree_context::coroutine::{self, Suspender};
/// scoped_tls::scoped_thread_local!(static NAME: String);
///
/// // NOT sound: suspended within `set`, and resumed within another one.
/// unsafe {
///     coroutine::scope(|s| {
///         let mut coroutine = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
///             let name = "the coroutine's".to_string();
///             NAME.set(&name, || suspender.suspend(()));
///         });
///         coroutine.resume(());
///         let name = "the resumer's".to_string();
///         NAME.set(&name, || coroutine.resume(()));
///         // What has been restored is the coroutine's, which is freed.
///         NAME.with(|name| println!("{name}"));
///     });
/// }
/// ```
///
/// Safe code cannot do that:
///
/// ```compile_fail,E0133
/// use carefree_context::coroutine::{self, Suspender};
///
/// coroutine::scope(|s| {
///     s.coroutine(|suspender: &Suspender<(), ()>, ()| suspender.suspend(())).resume(());
/// });
/// ```
///
/// # Panics
///
/// With `f`'s panic, or else with that of a coroutine that panicked while it was unwound at the
/// end. All coroutines are ended before that.
///
/// # Aborts
///
/// In a program built with `panic = "abort"`, if a coroutine is still suspended at the end, because
/// nothing can be unwound there.
pub unsafe fn scope<'env, F, T>(f: F) -> T
where
    F: for<'h> FnOnce(&'h Scope<'env>) -> T,
{
    let scope = Scope { first: Links::none(), env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    let mut panicked = None;
    while !scope.first.next().is_null() {
        let control = Control::of_links(scope.first.next());
        // SAFETY: coroutines in the list are alive and not complete; at the scope's end they are
        // suspended, and nothing else can enter them any more (see the module). `dispose` always
        // gives the stack back, which removes the coroutine from the list.
        let ended = catch_unwind(AssertUnwindSafe(|| unsafe { ((*control).dispose)(control) }));
        if let Err(payload) = ended {
            unwind::keep_first(&mut panicked, payload);
        }
    }
    // The closure's value must not be dropped, nor its panic raised again, before this point: a panic
    // would leave this frame early.
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

/// Makes coroutines that end before the scope does, and keep what its opener has promised: see [`scope`].
pub struct Scope<'env> {
    /// The head of the list of coroutines that are not complete, the latest first.
    first: Links,
    /// Invariant, as in `std::thread::Scope`.
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Scope<'env> {
    /// Makes a coroutine that will run `f`, on a stack of the default size.
    ///
    /// The first [`resume`](ScopedCoroutine::resume) calls `f`, with the input as the second argument.
    /// `f` is moved to the coroutine's stack: nothing is allocated.
    ///
    /// # Panics
    ///
    /// When no stack can be allocated (see
    /// [`coroutine_with_stack_size`](Self::coroutine_with_stack_size), which returns the error
    /// instead).
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
    /// When no stack can be allocated: the error names the limit that was reached. When the stack
    /// is too small for what `f` captures.
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
        // SAFETY: the new coroutine's control block stays in place until it is released, which
        // removes it from the list. The scope is borrowed by the handle, and empties the list
        // before it ends.
        unsafe { self.first.insert(&raw const (*coroutine.control()).links) };
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
/// Dropping the handle ends the coroutine. If the handle is forgotten, the end of the scope ends it.
pub struct ScopedCoroutine<'h, Input, Yield, Return> {
    /// Never lent out: `mem::swap` could exchange it for one that is not scoped.
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
