//! std's own handle to a fiber that has a name.
//!
//! When std spawns a thread, it makes a handle, and when the thread begins, std puts that into thread-local
//! storage. From there come the name in a panic's message and the answer of `std::thread::current`. std
//! takes no such handle from others. So a named fiber is spawned by std, by a `std::thread::Builder`. The
//! `pthread_create` that std calls then is not libc's, but the stand-in of a crate above this one. It starts
//! nothing, but [`take`]s std's start function. The fiber runs that, and within it the program's function.
//!
//! The stand-in recognises the call by its caller, which [is preparing](is_preparing) a fiber, and by a
//! stack size that no thread has, [`MARK`]. (An allocator that std calls meanwhile may start threads.) It
//! returns a `pthread_t` that no thread has, [`token`], by which it also recognises std's later call to join
//! or detach that thread.
//!
//! std's start function also looks whether the thread has an alternate signal stack (a carrier has), names
//! it by `pthread_setname_np` (which names the fiber, on a fiber), and notes the bounds of its stack under a
//! lock of std's, for which a fiber parks. The fiber needs thread-local storage of its own: std aborts if a
//! thread that begins has a handle already.
//!
//! An unnamed fiber is spawned without std. If something asks std for its handle, std makes one, as for any
//! thread that it did not start, without a name.

use std::cell::Cell;
use std::ffi::c_void;
use std::panic;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use carefree_context::tls;

use crate::protocol::generation;

/// A function that libc would run on a new thread.
pub type StartRoutine = extern "C" fn(*mut c_void) -> *mut c_void;

/// The stack size by which the stand-in recognises a thread that is not to be started. (The kernel would
/// refuse it.)
pub const MARK: usize = (1 << 62) | 0xca4e_f4ee_0000;

/// What std has given to `pthread_create`.
#[derive(Clone, Copy, Debug)]
struct Start {
    function: StartRoutine,
    data: *mut c_void,
}

/// What a caller of std has left in its frame for a function of this module that std calls.
enum Left<'a> {
    /// For the stand-in, which puts there what it has taken: see [`prepare`].
    Start(Option<Start>),
    /// For [`run_body`].
    Body(Body<'a>),
}

thread_local! {
    /// What the calling fiber or thread has left, or null. (One pointer: every fiber has a copy of this.)
    static LEFT: Cell<*mut Left<'static>> = const { Cell::new(ptr::null_mut()) };
}

/// Whether the caller is within the preparation of a fiber: only then is a thread with a stack of [`MARK`]
/// bytes not to be started. (A program that asks std for just so much is refused, as ever.)
pub fn is_preparing() -> bool {
    // SAFETY: null, or what `prepare` or `Prepared::run` has in its frame, which this was called from.
    matches!(unsafe { LEFT.get().as_ref() }, Some(Left::Start(_)))
}

/// Whether std's calls reach a stand-in.
static STAND_IN: AtomicBool = AtomicBool::new(false);

/// To be called if std's calls of `pthread_create`, `pthread_join` and `pthread_detach` reach a stand-in
/// that knows [`MARK`] and [`token`].
pub fn stand_in_is_there() {
    STAND_IN.store(true, Ordering::Relaxed);
}

/// The `pthread_t` that the stand-in returns for a thread that it did not start.
pub fn token() -> usize {
    (&raw const STAND_IN) as usize
}

/// To be called by the stand-in in place of starting a thread, where [`is_preparing`].
pub fn take(function: StartRoutine, data: *mut c_void) {
    // SAFETY: as in `is_preparing`; nothing else uses it just now.
    if let Some(Left::Start(start)) = unsafe { LEFT.get().as_mut() } {
        *start = Some(Start { function, data });
    }
}

/// std's start function for a thread with a fiber's name, and std's handle to that thread.
#[derive(Debug)]
pub(crate) struct Prepared {
    start: Start,
    handle: thread::JoinHandle<()>,
}

/// The program's function, which the fiber runs within std's.
type Body<'a> = &'a mut dyn FnMut();

/// Has std prepare a thread with this name. `None` where there is no stand-in, where fibers have no
/// thread-local storage of their own, and in the child of a fork (see `launch`).
pub(crate) fn prepare(name: &str) -> Option<Prepared> {
    let stands_in = STAND_IN.load(Ordering::Relaxed) && tls::mode().layout().is_some();
    if !stands_in || generation::is_child() {
        return None;
    }
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(MARK);
    let mut left = Left::Start(None);
    let handle = while_left(&mut left, || builder.spawn(run_body));
    match (handle, left) {
        (Ok(handle), Left::Start(Some(start))) => Some(Prepared { start, handle }),
        _ => None,
    }
}

/// Calls `f`, which finds `left`.
fn while_left<'a, R>(left: &mut Left<'a>, f: impl FnOnce() -> R) -> R {
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            LEFT.set(ptr::null_mut());
        }
    }
    LEFT.set(ptr::from_mut(left).cast());
    // Even if `f` panics: the frame that it points into ends.
    let _forget = Forget;
    f()
}

/// The function that std is given for the thread.
fn run_body() {
    // SAFETY: `Prepared::run`, which has called this by std's function on the same fiber, has it in its frame.
    if let Some(Left::Body(body)) = unsafe { LEFT.replace(ptr::null_mut()).as_mut() } {
        body();
    }
}

impl Prepared {
    /// std's handle.
    pub(crate) fn thread(&self) -> &thread::Thread {
        self.handle.thread()
    }

    /// Runs `f` within std's function on the calling fiber, which has not used std before.
    pub(crate) fn run<T>(self, f: impl FnOnce() -> T) -> T {
        let (mut f, mut value) = (Some(f), None);
        let mut run = || value = f.take().map(|f| f());
        while_left(&mut Left::Body(&mut run), || (self.start.function)(self.start.data));
        // std's thread has ended: this gets its result. (The stand-in answers std's `pthread_join`.)
        match self.handle.join() {
            Ok(()) => value.expect("std has run the function"),
            Err(payload) => panic::resume_unwind(payload),
        }
    }
}
