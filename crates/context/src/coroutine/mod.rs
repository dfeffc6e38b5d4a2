//! Coroutines: computations that are suspended and resumed by hand.

mod call;
mod control;
mod scope;
mod suspender;
mod symmetric;
mod unwind;
mod word;

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};

pub use call::call_on_stack;
pub use scope::{Scope, ScopedCoroutine, scope};
pub use suspender::Suspender;
pub use symmetric::SymmetricSuspender;

use crate::overflow;
use crate::stack::{StackPool, StackSize};
pub(crate) use control::Control;
use control::{Finished, arrival};

/// A computation with a stack of its own that its owner resumes and that suspends itself, with a
/// value each way.
///
/// [`resume`](Self::resume) passes an `Input` in and waits for what comes out: a `Yield` each time
/// the coroutine suspends, its `Return` when it completes. Nothing is scheduled, nothing runs at the
/// same time: the two take turns. (`cargo run --release -p carefree-context --example switch_costs`
/// prints what a turn costs.)
///
/// A coroutine is not a thread. It runs in the thread (or fiber) of its resumer, with that
/// thread's thread-local variables, and it stays in the thread that created it (it is neither `Send`
/// nor `Sync`). A blocking call in it blocks its resumer too.
///
/// This one is *owned*: it may live for as long as its owner likes, and be forgotten, which is why
/// making one is [`unsafe`](Self::new). **A [`scope`] makes them safely**, and they may borrow.
///
/// ```
/// use carefree_context::coroutine::Coroutine;
///
/// fn primes() -> Coroutine<(), u32, ()> {
///     let body = |suspender: &carefree_context::Suspender<(), u32>, ()| {
///         for n in 2.. {
///             if (2..n).all(|divisor| n % divisor != 0) {
///                 suspender.suspend(n);
///             }
///         }
///     };
///     // SAFETY: when it suspends itself, it borrows nothing of a thread-local variable's.
///     unsafe { Coroutine::new(body) }
/// }
/// assert_eq!(primes().take(5).collect::<Vec<_>>(), [2, 3, 5, 7, 11]);
/// ```
///
/// # Panics
///
/// A panic in the coroutine that it does not catch completes it and goes on in its resumer, with the
/// same payload. The panic hook has run by then, in the coroutine.
///
/// # Dropping
///
/// * A coroutine that never ran just drops its closure.
/// * A suspended one is unwound: [`suspend`](Suspender::suspend) panics in it with a private payload
///   and without a message, so that every destructor on its stack runs. Code that catches this panic
///   may go on, until it suspends the next time: then it is raised again. If the coroutine leaves
///   with another panic, that one goes on in the dropper.
/// * In a program built with `panic = "abort"` nothing can be unwound. There, dropping a suspended
///   coroutine ends the program with a message. Drive coroutines to completion in such a program.
///
/// # Why everything must be `'static`
///
/// A coroutine that is forgotten stops where it is, without any destructor. Rust code on its stack may
/// rely on not being stopped: [`std::thread::scope`] lends its borrowed data to threads, in the belief
/// that it waits for them. What belongs to the coroutine stays valid, for its stack is leaked; what it
/// borrows from outside would not. To share data with an owned coroutine, use an
/// [`Rc`](std::rc::Rc), or make it in a [`scope`].
pub struct Coroutine<Input, Yield, Return> {
    /// The control block, which lies on the coroutine's stack; null once the coroutine is complete,
    /// because the stack is given back at that moment.
    control: *mut Control,
    /// Invariant, and neither `Send` nor `Sync`: the stack may hold anything.
    marker: PhantomData<*mut (Input, Yield, Return)>,
}

/// What [`Coroutine::resume`] came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoroutineState<Yield, Return> {
    /// The coroutine suspended itself with this value and can be resumed.
    Yielded(Yield),
    /// The coroutine returned this value and is done.
    Complete(Return),
}

impl<Input: 'static, Yield: 'static, Return: 'static> Coroutine<Input, Yield, Return> {
    /// Makes a coroutine that will run `f`, on a stack of the default size.
    ///
    /// `f` starts with the first [`resume`](Self::resume), which hands it its second argument. It is
    /// moved to the coroutine's stack: nothing is allocated.
    ///
    /// # Panics
    ///
    /// When no stack can be had (see [`with_stack_size`](Self::with_stack_size), which returns the
    /// error instead).
    ///
    /// # Safety
    ///
    /// The coroutine shares the thread-local storage of the thread (or fiber) that resumes it, and
    /// code on its stack may hold on to some of it while the coroutine is suspended: within
    /// [`LocalKey::with`](std::thread::LocalKey::with), say, or in a library's function that calls
    /// back. Nothing in the type forces the coroutine to end before that storage does. Once it has
    /// been resumed, the caller sees to one of these:
    ///
    /// * The coroutine **ends before that thread or fiber begins to destroy its thread-local
    ///   variables**: it completes or is dropped. It is not forgotten or leaked then (in a cycle of
    ///   [`Rc`](std::rc::Rc)s, say), nor left to the destructor of a thread-local variable.
    /// * Or **while the coroutine is suspended, no code on its stack holds a reference to a
    ///   thread-local variable or to what belongs to one**, nor has lent such a reference to another
    ///   thread. The same holds for the coroutines of every scope that is open there. When the
    ///   coroutine is dropped, no destructor on its stack relies on thread-local variables that are
    ///   destroyed by then, other than by asking whether they are
    ///   ([`LocalKey::try_with`](std::thread::LocalKey::try_with)).
    ///
    /// With the second, such a program would be sound; without either, this one reads freed memory:
    ///
    /// ```no_run
    /// # use carefree_context::coroutine::{Coroutine, Suspender};
    /// thread_local!(static TEXT: String = "the thread's".to_string());
    ///
    /// std::thread::spawn(|| {
    ///     let body = |suspender: &Suspender<(), ()>, ()| {
    ///         TEXT.with(|text| {
    ///             std::thread::scope(|scope| {
    ///                 scope.spawn(move || loop { println!("{text}") });
    ///                 suspender.suspend(());
    ///             })
    ///         })
    ///     };
    ///     // NOT sound: suspended with `text` lent to another thread, and then forgotten.
    ///     let mut coroutine = unsafe { Coroutine::new(body) };
    ///     coroutine.resume(());
    ///     std::mem::forget(coroutine);
    /// });
    /// ```
    ///
    /// Safe code cannot write it:
    ///
    /// ```compile_fail,E0133
    /// use carefree_context::coroutine::{Coroutine, Suspender};
    /// let coroutine = Coroutine::new(|suspender: &Suspender<(), ()>, ()| suspender.suspend(()));
    /// ```
    #[track_caller]
    pub unsafe fn new<F>(f: F) -> Self
    where
        F: FnOnce(&Suspender<Input, Yield>, Input) -> Return + 'static,
    {
        Self::plain(StackSize::default(), f).unwrap_or_else(|error| no_stack(&error))
    }

    /// Makes a coroutine that will run `f`, on a stack of the given size.
    ///
    /// # Errors
    ///
    /// When no stack can be had: the error names the limit that was reached. When the stack is too
    /// small for what `f` captures.
    ///
    /// # Safety
    ///
    /// As with [`new`](Self::new).
    pub unsafe fn with_stack_size<F>(size: StackSize, f: F) -> io::Result<Self>
    where
        F: FnOnce(&Suspender<Input, Yield>, Input) -> Return + 'static,
    {
        Self::plain(size, f)
    }

    /// Makes a coroutine that can also pass control directly to another one: see
    /// [`SymmetricSuspender::transfer`]. Otherwise as [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// When no stack can be had.
    ///
    /// # Safety
    ///
    /// As with [`new`](Self::new).
    #[track_caller]
    pub unsafe fn symmetric<F>(f: F) -> Self
    where
        F: FnOnce(&SymmetricSuspender<Input, Yield, Return>, Input) -> Return + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { Self::symmetric_with_stack_size(StackSize::default(), f) }
            .unwrap_or_else(|error| no_stack(&error))
    }

    /// [`symmetric`](Self::symmetric) with a stack of the given size.
    ///
    /// # Errors
    ///
    /// As with [`with_stack_size`](Self::with_stack_size).
    ///
    /// # Safety
    ///
    /// As with [`new`](Self::new).
    pub unsafe fn symmetric_with_stack_size<F>(size: StackSize, f: F) -> io::Result<Self>
    where
        F: FnOnce(&SymmetricSuspender<Input, Yield, Return>, Input) -> Return + 'static,
    {
        Self::build(size, move |control, input| {
            // SAFETY: `control` is the running coroutine's, whose types these are.
            f(unsafe { SymmetricSuspender::from_control(control) }, input)
        })
    }
}

impl<Input, Yield, Return> Coroutine<Input, Yield, Return> {
    /// A coroutine that knows no transfer. What becomes of it is the callers' affair.
    fn plain<F>(size: StackSize, f: F) -> io::Result<Self>
    where
        F: FnOnce(&Suspender<Input, Yield>, Input) -> Return,
    {
        Self::build(size, move |control, input| {
            // SAFETY: `control` is the running coroutine's, whose types these are.
            f(unsafe { Suspender::from_control(control) }, input)
        })
    }

    fn build<F>(size: StackSize, f: F) -> io::Result<Self>
    where
        F: FnOnce(*mut Control, Input) -> Return,
    {
        tell_of_overflows()?;
        let stack = StackPool::global().acquire(size)?;
        let control = control::create::<Input, Yield, Return, F>(stack, f)?;
        Ok(Coroutine { control, marker: PhantomData })
    }

    /// Runs the coroutine until it suspends itself or completes.
    ///
    /// `input` becomes the second argument of the coroutine's closure the first time, and what
    /// [`suspend`](Suspender::suspend) returns later.
    ///
    /// # Panics
    ///
    /// When the coroutine is complete already, and with the coroutine's own panic.
    #[inline]
    #[track_caller]
    pub fn resume(&mut self, input: Input) -> CoroutineState<Yield, Return> {
        if self.control.is_null() {
            resumed_after_completion();
        }
        let input = ManuallyDrop::new(input);
        // SAFETY: the coroutine is suspended (`&mut self` excludes that it is running), has these
        // types, and takes `input` out of this frame before anything else. What comes back is from a
        // coroutine of the same types.
        unsafe {
            let (word, sender) = control::enter(self.control, word::pack(&input), arrival::INPUT);
            self.control = sender;
            if sender.is_null() {
                CoroutineState::Complete(unwind::unwrap(Finished::take(word)))
            } else {
                CoroutineState::Yielded(word::unpack(word))
            }
        }
    }

    /// Whether the coroutine has returned or panicked, so that it cannot be resumed any more.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.control.is_null()
    }
}

impl<Input, Yield, Return> Drop for Coroutine<Input, Yield, Return> {
    #[inline]
    fn drop(&mut self) {
        if !self.control.is_null() {
            // SAFETY: the coroutine is not complete, and as its handle is being dropped, nothing will
            // resume it any more.
            unsafe { ((*self.control).dispose)(self.control) };
        }
    }
}

/// Yields what the coroutine yields.
impl<Yield> Iterator for Coroutine<(), Yield, ()> {
    type Item = Yield;

    #[inline]
    fn next(&mut self) -> Option<Yield> {
        if self.is_done() {
            return None;
        }
        match self.resume(()) {
            CoroutineState::Yielded(value) => Some(value),
            CoroutineState::Complete(()) => None,
        }
    }
}

impl<Yield> FusedIterator for Coroutine<(), Yield, ()> {}

impl<Input, Yield, Return> fmt::Debug for Coroutine<Input, Yield, Return> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Coroutine").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

/// Sees to it that a coroutine which overflows its stack says so.
#[inline]
fn tell_of_overflows() -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    #[cold]
    fn first_time() -> io::Result<()> {
        overflow::install()?;
        DONE.store(true, Ordering::Release);
        Ok(())
    }
    if DONE.load(Ordering::Acquire) { Ok(()) } else { first_time() }
}

#[cold]
#[track_caller]
fn no_stack(error: &io::Error) -> ! {
    panic!("no stack for a coroutine: {error}");
}

#[cold]
#[track_caller]
fn resumed_after_completion() -> ! {
    panic!("a coroutine was resumed after it had completed: ask is_done() first");
}
