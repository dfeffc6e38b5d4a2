//! A fiber's life: its closure and first frame, what it does first, and how it ends.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering;

use carefree_context::arch;
use carefree_context::backtrace::__rust_begin_short_backtrace;
use carefree_context::tls;

use crate::carrier::carrier::{self, Next};
use crate::carrier::switch;
use crate::fiber::current::set_current;
use crate::fiber::furnish::{self, FiberStack, Furnished};
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::unstarted;
use crate::handle::join::{self, drop_quietly};
use crate::protocol::generation;
use crate::protocol::reason::Reason;

/// Where a closure lies on a fiber's stack.
#[inline(always)]
pub(crate) fn closure<F>(stack: *mut FiberStack) -> *mut F {
    let top = stack.cast::<u8>();
    let address = (top as usize - size_of::<F>()) & !(align_of::<F>().max(16) - 1);
    top.wrapping_sub(top as usize - address).cast()
}

/// Writes the closure and the first frame to the fiber's stack.
///
/// # Safety
/// The fiber is new, has a stack, and is known to the caller alone.
#[inline(always)]
pub(crate) unsafe fn place<F, T>(fiber: FiberRef, f: F)
where
    F: FnOnce() -> T,
{
    // SAFETY: this function demands the same; the stack was reset when it was taken.
    unsafe { place_on::<F, T, false>(fiber, f) };
}

/// [`place`] on a stack that the fiber [resets](furnish::reset_variables) if so `RESETS`.
///
/// # Safety
/// The fiber has a stack and has not begun, and no other party accesses its context and its closure.
#[inline(always)]
unsafe fn place_on<F, T, const RESETS: bool>(fiber: FiberRef, f: F)
where
    F: FnOnce() -> T,
{
    let stack = fiber.stack.load(Ordering::Relaxed);
    let place = closure::<F>(stack);
    // SAFETY: nothing else has the stack of the new fiber, and there is room for the closure (`size::of`).
    // The context begins on it, below the closure, with the fiber's own thread pointer.
    unsafe {
        place.write(f);
        let furnished = Furnished::from_raw(stack);
        let tp = furnished.thread_pointer();
        // The stack stays the fiber's.
        let _ = furnished.into_raw();
        let context = arch::prepare_thread(place.cast(), tp, entry::<F, T, RESETS>, fiber.as_ptr());
        fiber.context.get().write(context);
    }
}

/// Leaves the closure for a fiber that gets its stack when it starts.
///
/// # Safety
/// The fiber is new and known to the caller alone.
#[inline(always)]
pub(crate) unsafe fn place_later<F, T>(fiber: FiberRef, f: F)
where
    F: FnOnce() -> T,
{
    // SAFETY: this function demands the same, and `place_left` takes the closure.
    unsafe { unstarted::leave(fiber, f, place_left::<F, T>) };
}

/// [Places](place) the closure that [`place_later`] has left.
///
/// # Safety
/// To be called once for a fiber that was given to `place_later` with the same types, when it has its stack.
unsafe fn place_left<F, T>(fiber: FiberRef)
where
    F: FnOnce() -> T,
{
    // SAFETY: as this function demands; no other party knows the fiber but by handles, which do not access these.
    unsafe { place_on::<F, T, true>(fiber, unstarted::take(fiber)) };
}

/// A fiber's first function.
///
/// # Safety
/// To be entered by the switch to a context that [`place`] has made for the same types, once.
unsafe extern "C" fn entry<F, T, const RESETS: bool>(data: *mut u8) -> !
where
    F: FnOnce() -> T,
{
    // SAFETY: `place` has passed the fiber's `as_ptr`.
    let me = unsafe { FiberRef::from_ptr(data) };
    arrive_on::<RESETS>(me);
    begin_float();
    // SAFETY: the calling fiber is `me`, which `place` has made for the same types, and this is its only call.
    unsafe { __rust_begin_short_backtrace_of_fiber::<F, T>(me) };
    finish(me)
}

/// Runs a fiber's closure, and leaves its result for the handle. This is a function of its own for two
/// reasons. In unoptimized programs a large value makes this frame large, and not that of `entry`, so an
/// overflow comes when the report can name the fiber. And what ends the fiber runs where this frame was: it
/// touches no lines of the stack that the fiber has not touched before. Its name ends std's short backtraces where
/// there is no debug information, which would have that of the function called in it.
///
/// # Safety
/// The calling fiber is `me`, it was made by [`place`] for the same types, and this is its first
/// call.
#[inline(never)]
unsafe fn __rust_begin_short_backtrace_of_fiber<F, T>(me: FiberRef)
where
    F: FnOnce() -> T,
{
    let f = closure::<F>(me.stack.load(Ordering::Relaxed));
    let run = || {
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `place` has written the closure there, and this first call of the fiber reads it out once.
            let f = unsafe { f.read() };
            __rust_begin_short_backtrace(f)
        }));
        if me.kind.get() == Kind::Thread {
            // `f` has forked, and this is the child, in which this is the only thread. It must not return
            // to std's function, which could wait for ever: see `launch`.
            drop_quietly(result);
            end_thread_locals(me);
            generation::end();
        }
        result
    };
    let result = if me.names().is_none() { run() } else { run_named(me, run) };
    fetch_end(me);
    // While a destructor of the result still finds the fiber's thread-local variables.
    // SAFETY: the caller is `me`, calls this once, and FINISHED is set later.
    unsafe { join::leave(me, result) };
}

/// Calls `run` as std would on a thread with the fiber's name. Not inlined, for a fiber without a name should
/// not have this frame.
#[inline(never)]
fn run_named<R>(me: FiberRef, run: impl FnOnce() -> R) -> R {
    match me.take_prepared() {
        None => run(),
        Some(prepared) => prepared.run(run),
    }
}

/// Does what comes first when a fiber begins.
pub(crate) fn arrive(me: FiberRef) {
    arrive_on::<false>(me);
}

/// [`arrive`], on a stack that is to be reset if so `RESETS`. (Not inlined: its frame should not stay.)
#[inline(never)]
fn arrive_on<const RESETS: bool>(me: FiberRef) {
    let carrier = carrier::of(me);
    // Before the first thread-local variable is used: the loader allocates it then, in a library that was loaded
    // later.
    // SAFETY: the calling fiber is `me`, which that carrier has just entered.
    unsafe { carrier.lend_malloc(me) };
    if RESETS {
        // SAFETY: the calling fiber is `me`, which has just begun, and has a stack.
        unsafe { furnish::reset_variables(me.stack.load(Ordering::Relaxed)) };
    }
    set_current(Some(me));
    carrier.entered(me);
    me.reason.store(Reason::Runs as u8, Ordering::Relaxed);
    if let Some(layout) = tls::mode().layout() {
        // SAFETY: the calling fiber has just begun, on a block of this layout.
        unsafe { layout.enter() };
    }
}

/// Gives a new fiber the floating-point environment that a thread begins with: the fiber that ran here before it may
/// have ended with another one (flush-to-zero, say), and has raised exceptions. (Not inlined: its frame should not stay.)
#[inline(never)]
fn begin_float() {
    arch::FloatState::reset();
}

/// Ends the calling fiber.
///
/// Once [`end_thread_locals`] has returned, nothing here may access a thread-local variable with a
/// destructor: that would be registered again, and run by the next fiber on this storage.
pub(crate) fn finish(me: FiberRef) -> ! {
    end_thread_locals(me);
    join::finish(me);
    // The next fiber on this storage resets that when it has started: until then a handler of a signal must not take
    // it for this one.
    set_current(None);
    // SAFETY: the caller is `me`, and nothing on its stack is needed any more.
    unsafe { switch::leave(me, Next::End) };
    unreachable!("a fiber that has ended was run again")
}

/// Fetches what the end of the fiber's thread-local storage accesses into the cache.
#[inline(always)]
fn fetch_end(me: FiberRef) {
    if let Some(layout) = tls::mode().layout() {
        // SAFETY: the calling fiber's own context, which nothing writes while it runs.
        layout.prefetch_end(unsafe { (*me.context.get()).thread_pointer() });
    }
}

/// Runs the destructors of the fiber's thread-local variables.
pub(crate) fn end_thread_locals(me: FiberRef) {
    if let Some(layout) = tls::mode().layout() {
        // SAFETY: the calling fiber runs on its block, of this layout, and is about to end. Nothing writes
        // its context while it runs.
        unsafe {
            let context = &*me.context.get();
            layout.run_destructors(context.thread_pointer());
        }
    }
}
