//! A coroutine's beginning: its layout on a stack, and the function in which it starts.

use std::io;
use std::mem::{ManuallyDrop, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::fatal;

use super::control::Control;
use super::dispose::dispose;
use super::links::Links;
use super::message::Finished;
use super::switch::receive;
use super::word::Word;
use crate::arch::{self, Context, Message, Pair};
use crate::backtrace::__rust_begin_short_backtrace;
use crate::overflow;
use crate::sanitizer::{self, Mark, MarkRef};
use crate::stack::Stack;

/// Enough for the frames of a coroutine that does next to nothing, and for a panic that says so.
const LEAST_FRAMES: usize = 8 * 1024;

/// Lays out a new coroutine on `stack`. The first call in the process also installs the handler that
/// reports stack overflows.
pub(super) fn create<Input, Yield, Return, F>(stack: Stack, f: F) -> io::Result<*mut Control>
where
    F: FnOnce(*mut Control, Input) -> Return,
{
    report_overflows()?;
    let usable = stack.size().usable();
    if Control::room::<F>(&stack) + LEAST_FRAMES > usable {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the closure of a coroutine captures {} bytes, which do not fit the {usable} usable \
                 bytes of its stack: give it a larger one, or box what it captures",
                size_of::<F>(),
            ),
        ));
    }
    let top = stack.top();
    let control = Control::place(&stack);
    let closure = Control::closure::<F>(control);
    // SAFETY: both lie within the stack, as was just checked, which this function owns; both are
    // aligned.
    unsafe {
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
            dispose: dispose::<Yield, Return, F>,
            links: Links::none(),
            stack: ManuallyDrop::new(stack),
        });
    }
    Ok(control)
}

/// Installs the handler that reports stack overflows, once.
#[inline]
fn report_overflows() -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    #[cold]
    fn first_time() -> io::Result<()> {
        overflow::install()?;
        DONE.store(true, Ordering::Release);
        Ok(())
    }
    if DONE.load(Ordering::Acquire) { Ok(()) } else { first_time() }
}

/// The first function on a coroutine's stack.
unsafe extern "C" fn entry<Input, Return, F>(word: Word, kind: usize, data: *mut u8) -> !
where
    F: FnOnce(*mut Control, Input) -> Return,
{
    // SAFETY: nothing has announced this computation to the sanitizer before.
    unsafe { sanitizer::arrive(ptr::null()) };
    let control = data.cast::<Control>();
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the trampoline calls this function once, at the first switch to the coroutine. So
        // the closure is where `create` put it, and `started` keeps `dispose` from dropping it. The
        // message has just arrived.
        let (f, input) = unsafe {
            (*control).started = true;
            let f = Control::closure::<F>(control).read();
            (f, receive::<Input>(Message { word, kind }))
        };
        __rust_begin_short_backtrace(|| f(control, input))
    }));
    let finished = ManuallyDrop::new(Finished { control, result });
    let mut unused = Context::empty();
    // SAFETY: the coroutine is running, so `pair.resumer` holds its resumer. Nothing on this stack
    // needs a destructor any more but `finished`, which the resumer takes.
    unsafe {
        (*control).mark.end();
        sanitizer::leave(&raw mut (*control).mark, (*control).resumer_mark.get());
        arch::switch(
            &raw mut unused,
            &raw const (*control).pair.resumer,
            Message { word: Word::new((&raw const finished).expose_provenance()), kind: 0 },
        );
    }
    fatal::abort(format_args!("a coroutine was entered after it had completed"));
}
