//! Symmetric transfer: from one coroutine directly to another.
//!
//! Three designs were weighed.
//!
//! * *A group that owns all members, and numbers for them.* Sound, but every transfer looks a number
//!   up and must find out whether that member is complete, or itself, or gone.
//! * *Lending the target* (`transfer(&mut other)`). The target can then never transfer back, since its
//!   lender has itself been lent to its resumer.
//! * *Ownership moves with control*, which is what is here. A suspended coroutine has exactly one
//!   handle. The target's is given up; the own one, so far lent to the resumer, comes into being as a
//!   value. The resumer's handle now is the target's. There is nothing to check at run time but
//!   whether the target is complete: a running coroutine cannot be a target, nor can itself, because
//!   nobody has a handle of it to give.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::thread;

use super::control::{self, Control, arrival};
use super::suspender::Suspender;
use super::word::Word;
use super::{Coroutine, unwind};
use crate::arch::{self, Message};
use crate::extent;
use crate::sanitizer;

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
        // SAFETY: this type is transparent, and the caller vouches for the rest.
        unsafe { &*control.cast() }
    }
}

impl<Input: 'static, Yield: 'static, Return: 'static> SymmetricSuspender<Input, Yield, Return> {
    /// Suspends this coroutine and passes control to `target` directly, without a stop at the
    /// resumer. Returns what this coroutine is resumed with, by whomever, later.
    ///
    /// The target takes this coroutine's place: it becomes what the resumer is waiting for, so that
    /// its next value (or its return value, or its panic) comes out of the resumer's `resume`. And the
    /// handle which the resumer holds is the target's from now on.
    ///
    /// What becomes of this coroutine is for `hand_over` to say. It receives its handle, and returns
    /// the input for the target. It may send the handle along in the input, or store it where somebody
    /// finds it who resumes it or transfers to it; if it drops the handle, this coroutine is unwound.
    /// It runs when this coroutine is suspended already: on the target's stack, as if the target had
    /// called it to fetch its input. If it panics, it is the target that panics.
    ///
    /// Any coroutine of these types can be a target, symmetric or not, started or not, but only a
    /// symmetric one can transfer. No more than one turn is taken, and no stack grows: two
    /// coroutines may pass control to and fro for ever.
    ///
    /// ```
    /// use carefree_context::coroutine::{Coroutine, CoroutineState, SymmetricSuspender};
    ///
    /// /// The ball, and who struck it.
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
    ///     // SAFETY: it uses no thread-local variable.
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
    /// dropped. If this coroutine is *being* dropped and has caught the panic of that, it panics
    /// again: what is being taken down cannot step aside for another.
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
        // SAFETY: this coroutine is running (see `Suspender::suspend`), and the target is suspended,
        // with its only handle in hand. The resumer can wait for the target as well as for this
        // coroutine, since their types are the same.
        // The target takes `hand_over` out of this frame before anything else.
        unsafe {
            if (*control).unwinding {
                drop((target, hand_over));
                unwind::throw();
            }
            let panics = thread::panicking();
            control::check_panics(control);

            let to = ManuallyDrop::new(target).control;
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
            let extents = extent::detach(control);
            extent::hand_over(control, to);
            sanitizer::leave(&raw mut (*control).mark, &raw const (*to).mark);
            let message = arch::switch(
                &raw mut (*control).pair.own,
                &raw const (*to).pair.own,
                Message { word, kind: arrival::TRANSFER },
            );
            sanitizer::arrive(&raw const (*control).mark);
            extent::attach(extents);
            control::receive(message)
        }
    }
}

/// The message of a transfer, as the target knows it.
#[repr(C)]
pub(super) struct HandOver<Input> {
    take: unsafe fn(*mut HandOver<Input>) -> Input,
}

impl<Input> HandOver<Input> {
    /// Makes the target's input.
    ///
    /// # Safety
    ///
    /// `message` has just arrived with [`arrival::TRANSFER`].
    pub(super) unsafe fn take(message: *mut HandOver<Input>) -> Input {
        // SAFETY: the caller's promise.
        unsafe { ((*message).take)(message) }
    }
}

/// The message of a transfer, as the sender knows it.
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
    unsafe fn take(message: *mut HandOver<Input>) -> Input {
        let message = message.cast::<Self>();
        // SAFETY: the sender is suspended, its handle exists nowhere else, and it has these types. The
        // closure is moved out first, because with the handle it decides over the sender's stack; it
        // borrows nothing from there, being 'static.
        let (hand_over, from) =
            unsafe { ((&raw const (*message).hand_over).read(), (*message).from) };
        hand_over(Coroutine { control: from, marker: PhantomData })
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
