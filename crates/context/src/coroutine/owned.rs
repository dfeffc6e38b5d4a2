//! Coroutines that their owner may keep for as long as it likes.

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::control::Control;
use super::create;
use super::message::{self, Finished};
use super::suspender::Suspender;
use super::{switch, unwind, word};
use crate::stack::{StackPool, StackSize};

/// A computation with a stack of its own that its owner resumes and that suspends itself, passing a
/// value each way.
///
/// [`resume`](Self::resume) passes an `Input` in and waits for what comes out: a `Yield` each time
/// the coroutine suspends itself, a `Return` when it completes. Nothing is scheduled and nothing runs
/// concurrently: the two take turns. (`cargo run --release -p carefree-context --example switch_costs`
/// prints what a turn costs.)
///
/// A coroutine is not a thread. It runs in the thread (or fiber) of its resumer, with that
/// thread's thread-local variables, and it stays in the thread that created it (it is neither `Send`
/// nor `Sync`). A blocking call in it blocks its resumer too.
///
/// A `Coroutine` is *owned*: it may live for as long as its owner likes, or be forgotten. So making one is
/// [`unsafe`](Self::new) for one reason more than opening a [`scope`](super::scope()). **A scope ends the
/// coroutines that are made in it**, and they may borrow.
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
///     // SAFETY: it uses no thread-local variables.
///     unsafe { Coroutine::new(body) }
/// }
/// assert_eq!(primes().take(5).collect::<Vec<_>>(), [2, 3, 5, 7, 11]);
/// ```
///
/// # Panics
///
/// A panic that the coroutine does not catch completes it and continues in its resumer, with the same
/// payload. The panic hook has run by then, in the coroutine.
///
/// # Dropping
///
/// * A coroutine that never ran just drops its closure.
/// * A suspended one is unwound: [`suspend`](Suspender::suspend) panics in it with a private payload
///   and without a message, so that every destructor on its stack runs. Code that catches this panic
///   may continue until the coroutine suspends itself again, which raises the panic again. If the
///   coroutine ends with another panic, that one continues in the code that drops the coroutine.
/// * In a program built with `panic = "abort"` nothing can be unwound. There, dropping a suspended
///   coroutine aborts the program with a message. Resume coroutines to their ends in such a program.
///
/// # Why everything must be `'static`
///
/// A coroutine that is forgotten stops where it is and runs no destructor. Rust code on its stack may
/// rely on not being stopped: [`std::thread::scope`] lends borrowed data to threads and relies on
/// waiting for them before it returns. What belongs to the coroutine stays valid, because its stack is
/// leaked; what it borrows from outside would not. To share data with an owned coroutine, use an
/// [`Rc`](std::rc::Rc), or make the coroutine in a [`scope`](super::scope()).
pub struct Coroutine<Input, Yield, Return> {
    /// The control block, which lies on the coroutine's stack; null once the coroutine is complete,
    /// because the stack is given back at that moment.
    control: *mut Control,
    /// Invariant, and neither `Send` nor `Sync`: the stack may hold anything.
    marker: PhantomData<*mut (Input, Yield, Return)>,
}

/// What [`Coroutine::resume`] returns.
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
    /// The first [`resume`](Self::resume) calls `f`, with the input as the second argument. `f` is
    /// moved to the coroutine's stack: nothing is allocated.
    ///
    /// # Panics
    ///
    /// When no stack can be allocated (see [`with_stack_size`](Self::with_stack_size), which
    /// returns the error instead).
    ///
    /// # Safety
    ///
    /// The coroutine shares the thread-local storage of the thread (or fiber) that resumes it. So the caller
    /// must ensure what [`scope`](super::scope()#safety) asks for: it suffices that the coroutine is **suspended
    /// within no call that sets a thread-local variable and restores it at its end**, or lends what was set so.
    ///
    /// And code on its stack may hold on to some of that storage while the coroutine is suspended: within
    /// [`LocalKey::with`](std::thread::LocalKey::with), say, or in a library's function that calls
    /// back. Nothing in the type forces the coroutine to end before that storage does. Once the
    /// coroutine has been resumed, the caller must ensure one of these:
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
    /// This program ensures neither, and reads freed memory:
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
    /// Safe code cannot do that:
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
    /// When no stack can be allocated: the error names the limit that was reached. When the stack
    /// is too small for what `f` captures.
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
}

impl<Input, Yield, Return> Coroutine<Input, Yield, Return> {
    /// Makes a coroutine without transfers. Its callers must ensure that it ends in time: see
    /// [`new`](Self::new).
    pub(super) fn plain<F>(size: StackSize, f: F) -> io::Result<Self>
    where
        F: FnOnce(&Suspender<Input, Yield>, Input) -> Return,
    {
        Self::build(size, move |control, input| {
            // SAFETY: `control` is the running coroutine's, which has these types, and the
            // reference is lent to its closure only.
            f(unsafe { Suspender::from_control(control) }, input)
        })
    }

    /// Makes a coroutine of a body that is given its control block.
    pub(super) fn build<F>(size: StackSize, f: F) -> io::Result<Self>
    where
        F: FnOnce(*mut Control, Input) -> Return,
    {
        let stack = StackPool::global().acquire(size)?;
        Ok(Self::from_control(create::create::<Input, Yield, Return, F>(stack, f)?))
    }

    /// The handle of a suspended coroutine with these types, which must have no other.
    pub(super) fn from_control(control: *mut Control) -> Self {
        Coroutine { control, marker: PhantomData }
    }

    /// The control block; null if the coroutine is complete.
    pub(super) fn control(&self) -> *mut Control {
        self.control
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
        // SAFETY: the coroutine is suspended: while it runs, its handle is borrowed mutably. It has
        // these types, and takes `input` out of this frame before anything else. The message that
        // comes back is from a coroutine of the same types; its second word says which of the two
        // the first is.
        unsafe {
            let (word, sender) = switch::enter(self.control, word::pack(&input), message::INPUT);
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
            // SAFETY: the coroutine is suspended, not complete, and this was its only handle, so
            // nothing will enter it any more. `dispose` was chosen for its types when it was made.
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

#[cold]
#[track_caller]
pub(super) fn no_stack(error: &io::Error) -> ! {
    panic!("no stack for a coroutine: {error}");
}

#[cold]
#[track_caller]
fn resumed_after_completion() -> ! {
    panic!("a coroutine was resumed after it had completed: ask is_done() first");
}
