//! Symmetric transfer: from one coroutine directly to another.
//!
//! Three designs were considered.
//!
//! * *A group that owns all members, and identifies them by numbers.* Sound, but every transfer
//!   looks a number up and must check whether that member is complete, or itself, or gone.
//! * *Lending the target* (`transfer(&mut other)`). The target can then never transfer back, since its
//!   lender has itself been lent to its resumer.
//! * *Ownership moves with control*: the design used here. A suspended coroutine has exactly one
//!   handle. A transfer consumes the target's handle and creates one for the coroutine that is
//!   left, whose own was borrowed by its resumer; the resumer's handle becomes the target's. The
//!   only check at run time is whether the target is complete. A running coroutine cannot be a
//!   target, nor can the sender itself, because neither has a handle that could be passed.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::thread;

use super::control::Control;
use super::message::{self, HandOver};
use super::owned::{Coroutine, no_stack};
use super::suspender::Suspender;
use super::word::Word;
use super::{switch, unwind};
use crate::arch::{self, Message};
use crate::extent::{self, Place};
use crate::sanitizer;
use crate::stack::StackSize;

impl<Input: 'static, Yield: 'static, Return: 'static> Coroutine<Input, Yield, Return> {
    /// Makes a coroutine that can also pass control directly to another one: see
    /// [`SymmetricSuspender::transfer`]. Otherwise as [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// When no stack can be allocated.
    ///
    /// # Safety
    ///
    /// As with [`new`](Self::new).
    #[track_caller]
    pub unsafe fn symmetric<F>(f: F) -> Self
    where
        F: FnOnce(&SymmetricSuspender<Input, Yield, Return>, Input) -> Return + 'static,
    {
        // SAFETY: both functions ask the same of their callers.
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
            // SAFETY: `control` is the running coroutine's, which has these types, and the
            // reference is lent to its closure only.
            f(unsafe { SymmetricSuspender::from_control(control) }, input)
        })
    }
}

/// The ways out of a running [symmetric](Coroutine::symmetric) coroutine: suspend, as any
/// [`Suspender`], or [`transfer`](Self::transfer) to another coroutine.
#[repr(transparent)]
pub struct SymmetricSuspender<Input, Yield, Return> {
    suspender: Suspender<Input, Yield>,
    marker: PhantomData<*mut Return>,
}

impl<Input, Yield, Return> SymmetricSuspender<Input, Yield, Return> {
    /// # Safety
    ///
    /// `control` is a coroutine's with these types, and the reference is used by that coroutine only.
    #[inline]
    pub(super) unsafe fn from_control<'a>(control: *mut Control) -> &'a Self {
        // SAFETY: this type is a transparent wrapper of `Suspender`, which is one of the control
        // block. Its resumer writes to the block as well, but it is within an `UnsafeCell`.
        unsafe { &*control.cast() }
    }
}

impl<Input: 'static, Yield: 'static, Return: 'static> SymmetricSuspender<Input, Yield, Return> {
    /// Suspends this coroutine and passes control to `target` directly, without a stop at the
    /// resumer. Returns the input of the next resume of, or transfer to, this coroutine.
    ///
    /// The target takes this coroutine's place: the resumer now waits for the target, whose next
    /// value (or return value, or panic) comes out of the resumer's `resume`. The resumer's handle
    /// becomes the target's.
    ///
    /// `hand_over` receives this coroutine's handle and returns the input for the target. It may
    /// pass the handle along in the input, or store it for a later resume or transfer; if it drops
    /// the handle, this coroutine is unwound. It runs when this coroutine is already suspended: on
    /// the target's stack, as if the target had called it to fetch its input. If it panics, the
    /// target panics.
    ///
    /// Any coroutine of these types can be a target, symmetric or not, started or not, but only a
    /// symmetric one can transfer. A transfer is one switch and grows no stack: two coroutines may
    /// transfer to each other for ever.
    ///
    /// ```
    /// use carefree_context::coroutine::{Coroutine, CoroutineState, SymmetricSuspender};
    ///
    /// /// The ball, and the player that struck it.
    /// struct Ball {
    ///     strokes: u32,
    ///     from: Option<Player>,
    /// }
    /// type Player = Coroutine<Ball, u32, &'static str>;
    ///
    /// fn player(name: &'static str) -> Player {
    ///     let body = move |me: &SymmetricSuspender<Ball, u32, &'static str>, mut ball: Ball| {
    ///         while let Some(other) = ball.from.take() {
    ///             if ball.strokes == 10 {
    ///                 return name;
    ///             }
    ///             let strokes = ball.strokes + 1;
    ///             ball = me.transfer(other, move |me| Ball { strokes, from: Some(me) });
    ///         }
    ///         name
    ///     };
    ///     // SAFETY: it uses no thread-local variables.
    ///     unsafe { Coroutine::symmetric(body) }
    /// }
    ///
    /// let mut game = player("Ada");
    /// let first = Ball { strokes: 0, from: Some(player("Bob")) };
    /// // Ada and Bob play ten strokes among themselves; the eleventh would be Ada's.
    /// assert!(matches!(game.resume(first), CoroutineState::Complete("Ada")));
    /// ```
    ///
    /// # Panics
    ///
    /// When the target is complete. As [`suspend`](Suspender::suspend) does, when this coroutine is
    /// dropped. If this coroutine is being dropped and has caught the panic that unwinds it, that
    /// panic is raised again: a coroutine that is being taken down cannot transfer.
    ///
    /// # Aborts
    ///
    /// As [`suspend`](Suspender::suspend) does, in a destructor.
    #[track_caller]
    pub fn transfer<F>(&self, target: Coroutine<Input, Yield, Return>, hand_over: F) -> Input
    where
        F: FnOnce(Coroutine<Input, Yield, Return>) -> Input + 'static,
    {
        let control = self.suspender.control();
        if target.is_done() {
            transferred_to_complete();
        }
        // SAFETY: this coroutine is running (see `Suspender::suspend`), so its control block is its
        // own. The target is suspended, and this function has its only handle, so the target's
        // block is its own too. The resumer can wait for the target in place of this coroutine,
        // since their types are the same. The target takes `hand_over` out of this frame before
        // anything else.
        unsafe {
            if (*control).unwinding {
                drop((target, hand_over));
                unwind::throw();
            }
            let panics = thread::panicking();
            switch::check_panics(control);

            let to = ManuallyDrop::new(target).control();
            (*to).pair.resumer = (&raw const (*control).pair.resumer).read();
            (*to).resumer_mark = (*control).resumer_mark;
            (*to).resumer_panics = panics;

            let hand_over = ManuallyDrop::new(Transfer {
                head: HandOver { take: Transfer::<Input, Yield, Return, F>::take },
                from: control,
                hand_over,
                marker: PhantomData::<Coroutine<Input, Yield, Return>>,
            });
            let word = Word::new((&raw const hand_over).expose_provenance());
            let own = Place::new(ptr::null());
            extent::detach(control.cast(), &own);
            extent::hand_over(control.cast(), to.cast());
            sanitizer::leave(&raw mut (*control).mark, &raw const (*to).mark);
            let message = arch::switch(
                &raw mut (*control).pair.own,
                &raw const (*to).pair.own,
                Message { word, kind: message::TRANSFER },
            );
            sanitizer::arrive(&raw const (*control).mark);
            extent::attach(&own);
            switch::receive(message)
        }
    }
}

/// The message of a transfer as its sender makes it.
#[repr(C)]
struct Transfer<Input, Yield, Return, F> {
    head: HandOver<Input>,
    from: *mut Control,
    hand_over: F,
    marker: PhantomData<Coroutine<Input, Yield, Return>>,
}

impl<Input, Yield, Return, F> Transfer<Input, Yield, Return, F>
where
    F: FnOnce(Coroutine<Input, Yield, Return>) -> Input + 'static,
{
    /// # Safety
    ///
    /// `message` is the head of a `Self` in the frame of a suspended sender, and is taken once.
    unsafe fn take(message: *mut HandOver<Input>) -> Input {
        let message = message.cast::<Self>();
        // SAFETY: `head` is the first field, so this is the whole message, and it is alive while
        // its sender is suspended. The closure is moved out before it is called, because it may
        // drop the handle and with it the sender's stack; it borrows nothing from there, being
        // 'static.
        let (hand_over, from) =
            unsafe { ((&raw const (*message).hand_over).read(), (*message).from) };
        hand_over(Coroutine::from_control(from))
    }
}

impl<Input, Yield, Return> Deref for SymmetricSuspender<Input, Yield, Return> {
    type Target = Suspender<Input, Yield>;

    #[inline]
    fn deref(&self) -> &Suspender<Input, Yield> {
        &self.suspender
    }
}

impl<Input, Yield, Return> fmt::Debug for SymmetricSuspender<Input, Yield, Return> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SymmetricSuspender").finish_non_exhaustive()
    }
}

#[cold]
#[track_caller]
fn transferred_to_complete() -> ! {
    panic!("a coroutine transferred to one that had completed: ask is_done() first");
}
