//! The control block: what a coroutine and its resumer know of each other.
//!
//! It lies near the top of the coroutine's own stack, with the closure below it:
//!
//! ```text
//! +------------------+ <- top of the stack
//! |  colour          |  up to 2 KiB, see `colour`
//! +------------------+
//! |  Control         |
//! +------------------+
//! |  the closure     |  until the first resume moves it out
//! +------------------+
//! |  frames          |
//! ~                  ~
//! ```
//!
//! At any time a coroutine is one of
//!
//! * *suspended*: its one handle (a `Coroutine`) points to the control block, and `pair.own` holds
//!   it. Who has the handle may enter it or take it down.
//! * *running*, or waiting for a coroutine that it resumed itself: its resumer waits in
//!   [`enter`], with its handle mutably borrowed, and `pair.resumer` holds the resumer. Only the
//!   coroutine itself acts.
//! * *complete*: its handle is null, and the stack is given back.
//!
//! So every field has one owner at a time, and the switch passes the ownership on.
//!
//! A message is two words. The first brings a value (see `word.rs`), which may lie in the sender's
//! frame: the receiver moves it out before it does anything else, the sender is suspended and forgets
//! it. The second says what it is: to a coroutine, one of the [`arrival`]s; to a resumer, the control
//! block of the sender, which is what the resumer has a handle of from now on (null: the sender is
//! complete).

use std::any::Any;
use std::io;
use std::mem::{ManuallyDrop, align_of, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::thread;

use super::scope::Links;
use super::symmetric::HandOver;
use super::unwind;
use super::word::{self, Word};
use crate::arch::{self, Context, Message, Pair};
use crate::extent;
use crate::sanitizer::{self, Mark, MarkRef};
use crate::stack::Stack;

/// See the page above. The two contexts fill a cache line; the rest is rarely needed.
#[repr(C)]
pub(crate) struct Control {
    /// The coroutine when it is suspended, its resumer when it is running.
    pub(super) pair: Pair,
    /// The closure was moved out.
    pub(super) started: bool,
    /// What sanitizers know of the coroutine, and of its resumer.
    pub(super) mark: Mark,
    pub(super) resumer_mark: MarkRef,
    /// The coroutine is being taken down: there is nothing for it to do but unwind.
    pub(super) unwinding: bool,
    /// The resumer was panicking when it resumed the coroutine, and has not heard of it since.
    pub(super) resumer_panics: bool,
    /// [`unwind::dispose`] for this coroutine's types.
    pub(super) dispose: unsafe fn(*mut Control),
    /// Its neighbours among the coroutines of its scope, if it is in one.
    pub(super) links: Links,
    /// The stack all this lies on.
    stack: ManuallyDrop<Stack>,
}

// The contexts, and all else in one more cache line. (A sanitizer's marks take more.)
#[cfg(not(any(carefree_asan, carefree_tsan)))]
const _: () = assert!(size_of::<Control>() == 128);

/// What the first word of a message to a coroutine is.
pub(super) mod arrival {
    /// An input.
    pub(in super::super) const INPUT: usize = 0;
    /// The address of a [`HandOver`](super::HandOver), which makes an input.
    pub(in super::super) const TRANSFER: usize = 1;
    /// Nothing: the coroutine is to unwind.
    pub(in super::super) const UNWIND: usize = 2;
}

/// What the last message of a coroutine brings to its resumer.
pub(super) struct Finished<Return> {
    control: *mut Control,
    result: Result<Return, Box<dyn Any + Send>>,
}

/// Enough for the frames of a coroutine that does next to nothing, and for a panic that says so.
const LEAST_FRAMES: usize = 8 * 1024;

/// Lays out a new coroutine on `stack`.
pub(super) fn create<Input, Yield, Return, F>(stack: Stack, f: F) -> io::Result<*mut Control>
where
    F: FnOnce(*mut Control, Input) -> Return,
{
    let needed =
        colour(&stack) + size_of::<Control>() + size_of::<F>() + align_of::<F>() + LEAST_FRAMES;
    let usable = stack.size().usable();
    if needed > usable {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the closure of a coroutine captures {} bytes, which do not fit the {usable} usable \
                 bytes of its stack: give it a larger one, or box what it captures",
                size_of::<F>(),
            ),
        ));
    }
    // SAFETY: what is written lies within the stack, as was just computed, which nobody else uses.
    unsafe {
        let top = stack.top();
        let control = top
            .sub(colour(&stack) + size_of::<Control>())
            .map_addr(|address| address & !63)
            .cast::<Control>();
        let closure = closure::<F>(control);
        closure.write(f);
        control.write(Control {
            pair: Pair {
                own: arch::prepare(closure.cast(), entry::<Input, Return, F>, control.cast()),
                resumer: Context::empty(),
            },
            mark: Mark::new(top),
            resumer_mark: MarkRef::none(),
            started: false,
            unwinding: false,
            resumer_panics: false,
            dispose: unwind::dispose::<Yield, Return, F>,
            links: Links::none(),
            stack: ManuallyDrop::new(stack),
        });
        Ok(control)
    }
}

/// How far below the top a control block lies.
///
/// Stacks start at multiples of their size. Were control blocks and first frames all at the same
/// distance from there, those of a thousand coroutines would compete for the same few sets of the
/// processor's caches, while the others stay empty. So neighbours differ, which made rounds of a
/// hundred or a thousand coroutines faster by a fifth and more. (Fibers, whose switch touches more,
/// gained nothing from it: see the runtime's `furnish.rs`.) Half of the first page at
/// most is given to it, so that the frames of a coroutine which does little still fit on that page.
fn colour(stack: &Stack) -> usize {
    stack.top().addr() / stack.size().bytes() % COLOURS * align_of::<Control>()
}

/// See [`colour`].
const COLOURS: usize = 32;

/// Where the closure lies: right below the control block.
fn closure<F>(control: *mut Control) -> *mut F {
    control
        .cast::<u8>()
        .wrapping_sub(size_of::<F>())
        .map_addr(|address| address & !(align_of::<F>() - 1))
        .cast()
}

/// Takes down a coroutine that was never started, whose closure is an `F`.
///
/// # Safety
///
/// The coroutine is suspended and was never started.
pub(super) unsafe fn discard<F>(control: *mut Control) {
    /// Gives the stack back even if the closure's destructor panics.
    struct Release(*mut Control);
    impl Drop for Release {
        fn drop(&mut self) {
            // SAFETY: the closure is dropped, as far as it can be, and the coroutine never started.
            unsafe { release(self.0) };
        }
    }
    let release = Release(control);
    // SAFETY: the coroutine never started, so the closure is where `create` put it.
    unsafe { closure::<F>(release.0).drop_in_place() };
}

/// Gives the stack back, and with it the control block.
///
/// # Safety
///
/// The coroutine is complete, or never started and its closure dropped.
unsafe fn release(control: *mut Control) {
    // SAFETY: the coroutine's own, and its neighbours' are those of coroutines that are not released.
    unsafe { (*control).links.remove() };
    // SAFETY: nothing looks at the stack any more; it is moved out of itself before it goes.
    drop(unsafe {
        (*control).mark.forget();
        (&raw const (*control).stack).cast::<Stack>().read()
    });
}

/// Passes control to a suspended coroutine and waits for a message to its resumer, which because of
/// transfers need not be from this one.
///
/// # Safety
///
/// `control` is a suspended coroutine's, and `word` is what `arrival` says.
#[inline(always)]
pub(super) unsafe fn enter(
    control: *mut Control,
    word: Word,
    arrival: usize,
) -> (Word, *mut Control) {
    // SAFETY: the coroutine is suspended, so its control block is the caller's to write.
    let message = unsafe {
        if thread::panicking() {
            resumed_while_panicking(control);
        }
        let kind = arrival;
        if extent::are_away() {
            enter_within_extents(control, Message { word, kind })
        } else {
            switch_to(control, Message { word, kind })
        }
    };
    (message.word, ptr::with_exposed_provenance_mut(message.kind))
}

/// Passes control back to the resumer and waits for a message to this coroutine.
///
/// # Safety
///
/// `control` is the running coroutine's and `word` brings a value that it yields.
#[inline(always)]
pub(super) unsafe fn leave(control: *mut Control, word: Word) -> Message {
    control.expose_provenance();
    // SAFETY: the coroutine is running. The pair's address, which the resumer gets, is that of the
    // control block.
    unsafe {
        if extent::are_away() {
            leave_without_extents(control, word)
        } else {
            switch_back(control, word)
        }
    }
}

/// The switch to a coroutine, and back.
#[inline(always)]
unsafe fn switch_to(control: *mut Control, message: Message) -> Message {
    // SAFETY: the caller's promise, as in `enter`.
    unsafe {
        let mut mark = Mark::running();
        (*control).resumer_mark = MarkRef::to(&mut mark);
        sanitizer::leave(&raw mut mark, &raw const (*control).mark);
        let message = arch::resume(&raw mut (*control).pair, message);
        sanitizer::arrive(&raw const mark);
        message
    }
}

/// The switch from a coroutine to its resumer, and back.
#[inline(always)]
unsafe fn switch_back(control: *mut Control, word: Word) -> Message {
    // SAFETY: the caller's promise, as in `leave`.
    unsafe {
        sanitizer::leave(&raw mut (*control).mark, (*control).resumer_mark.get());
        let message = arch::suspend(&raw mut (*control).pair, word);
        sanitizer::arrive(&raw const (*control).mark);
        message
    }
}

/// Passes control to a coroutine that may be suspended within extents of its own.
#[cold]
#[inline(never)]
unsafe fn enter_within_extents(control: *mut Control, message: Message) -> Message {
    let boundary = extent::Boundary::new();
    // SAFETY: the caller's promise. Nothing panics between the two.
    unsafe {
        boundary.begin(control);
        let message = switch_to(control, message);
        boundary.end();
        message
    }
}

/// Passes control back from a coroutine that may be within extents of its own.
#[cold]
#[inline(never)]
unsafe fn leave_without_extents(control: *mut Control, word: Word) -> Message {
    let own = extent::detach(control);
    // SAFETY: the caller's promise.
    let message = unsafe { switch_back(control, word) };
    extent::attach(own);
    message
}

#[cold]
unsafe fn resumed_while_panicking(control: *mut Control) {
    // SAFETY: as in `enter`.
    unsafe { (*control).resumer_panics = true };
}

/// Sees to it that a coroutine may suspend itself now, as far as panics go.
///
/// The thread counts its panics, and `catch_unwind` counts down the one it has caught. A coroutine
/// that suspended itself while it is panicking (in a destructor) would leave its count to its resumer,
/// which would take itself to be panicking: it would poison mutexes, and later the count would be
/// wrong for good.
///
/// If the *resumer* is panicking (it resumed the coroutine in a destructor), the coroutine may suspend
/// itself: the count is then the resumer's. Should the coroutine be panicking on top of that, it gets
/// away with it, because one cannot ask for the count, only whether it is zero.
///
/// # Safety
///
/// `control` is the running coroutine's.
#[inline(always)]
pub(super) unsafe fn check_panics(control: *mut Control) {
    if thread::panicking() {
        // SAFETY: the caller's promise.
        unsafe { leave_while_panicking(control) };
    }
}

#[cold]
unsafe fn leave_while_panicking(control: *mut Control) {
    // SAFETY: the caller's promise.
    unsafe {
        if !(*control).resumer_panics {
            unwind::abort(
                "a coroutine was suspended in a destructor while it was unwinding, \
                 which would leave its panic to its resumer: do not suspend in Drop",
            );
        }
        (*control).resumer_panics = false;
    }
}

/// Takes what a message to the coroutine brings.
///
/// # Safety
///
/// The message has just arrived at a coroutine that is resumed with an `Input`.
#[inline(always)]
pub(super) unsafe fn receive<Input>(message: Message) -> Input {
    // SAFETY: the second word says what the first is, and the sender waits.
    unsafe {
        if message.kind == arrival::INPUT {
            word::unpack(message.word)
        } else {
            receive_other(message)
        }
    }
}

#[cold]
unsafe fn receive_other<Input>(message: Message) -> Input {
    if message.kind == arrival::UNWIND {
        unwind::throw();
    }
    // SAFETY: it is a transfer then.
    unsafe {
        {
            let hand_over = message.word.assume_init();
            HandOver::take(ptr::with_exposed_provenance_mut::<HandOver<Input>>(hand_over))
        }
    }
}

/// Where a coroutine starts, on its own stack.
unsafe extern "C" fn entry<Input, Return, F>(word: Word, kind: usize, data: *mut u8) -> !
where
    F: FnOnce(*mut Control, Input) -> Return,
{
    // SAFETY: this is the computation's first function.
    unsafe { sanitizer::arrive(ptr::null()) };
    let control = data.cast::<Control>();
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: this is the first time that the coroutine is entered, so the closure is where
        // `create` put it, and it is marked as moved out.
        let (f, input) = unsafe {
            (*control).started = true;
            let f = closure::<F>(control).read();
            (f, receive::<Input>(Message { word, kind }))
        };
        f(control, input)
    }));
    let finished = ManuallyDrop::new(Finished { control, result });
    let mut nobody = Context::empty();
    // SAFETY: the coroutine is running, so `pair.resumer` holds its resumer. Nothing on this stack needs a
    // destructor any more but `finished`, which the resumer takes.
    unsafe {
        (*control).mark.end();
        sanitizer::leave(&raw mut (*control).mark, (*control).resumer_mark.get());
        arch::switch(
            &raw mut nobody,
            &raw const (*control).pair.resumer,
            Message { word: Word::new((&raw const finished).expose_provenance()), kind: 0 },
        );
    }
    unwind::abort("a coroutine was entered after it had completed");
}

impl<Return> Finished<Return> {
    /// Takes the result from a completed coroutine and gives its stack back.
    ///
    /// # Safety
    ///
    /// `word` is of the last message of a coroutine that returns a `Return`.
    #[inline(never)]
    pub(super) unsafe fn take(word: Word) -> Result<Return, Box<dyn Any + Send>> {
        // SAFETY: the coroutine has left `finished` behind in its last frame.
        unsafe {
            let finished =
                ptr::with_exposed_provenance::<Finished<Return>>(word.assume_init()).read();
            release(finished.control);
            finished.result
        }
    }
}
