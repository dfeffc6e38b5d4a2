//! std's own handle for a fiber that has a name.
//!
//! By what name a panic calls a thread, what `std::thread::current` says, and which hooks run before
//! its function: std knows that from the handle that it makes when it spawns the thread, and puts in
//! thread-local storage when the thread begins. It takes no such handle from others. So a named fiber
//! is spawned by std: by a `std::thread::Builder` whose `pthread_create` is not libc's but the
//! stand-in of a crate above this one, which starts nothing and [`take`]s what was to be started. That
//! is what the fiber then runs, and within it the program's function.
//!
//! The stand-in knows such a call from others by its maker, which [is preparing](is_preparing) a fiber, and
//! by a stack size that no thread has, [`MARK`] (an allocator that std calls may start threads). It
//! answers with a `pthread_t` that no thread has, [`token`], by which it knows that std wants to join
//! or detach what was never a thread.
//!
//! What else std does on the fiber: it looks whether its thread has an alternate signal stack (a
//! carrier has), names it by `pthread_setname_np` (which on a fiber names the fiber), and notes the
//! bounds of its stack under a lock of std's, on which a fiber parks. Thread-local storage of the
//! fiber's own is required: std aborts where a thread that begins has a handle already.
//!
//! An unnamed fiber is spawned without std. Its handle of std's, if something asks for it, is the one
//! that std makes for threads it did not start, which has no name either.

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

/// The stack size of a thread that is not to be started. (The kernel would refuse it.)
pub const MARK: usize = (1 << 62) | 0xca4e_f4ee_0000;

/// What std wanted to start.
#[derive(Clone, Copy, Debug)]
struct Start {
    function: StartRoutine,
    data: *mut c_void,
}

thread_local! {
    /// What the stand-in has taken from the calling fiber or thread.
    static TAKEN: Cell<Option<Start>> = const { Cell::new(None) };
    /// Whether the calling fiber or thread is in [`prepare`].
    static PREPARING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a thread that the caller starts with a stack of [`MARK`] bytes is not to be started: a
/// program may ask std for exactly so much, and is refused it as ever.
pub fn is_preparing() -> bool {
    PREPARING.get()
}

/// Whether there is a stand-in that std's calls reach.
static STAND_IN: AtomicBool = AtomicBool::new(false);

/// Says that what std gives to `pthread_create`, `pthread_join` and `pthread_detach` reaches a
/// stand-in that looks for [`MARK`] and [`token`].
pub fn stand_in_is_there() {
    STAND_IN.store(true, Ordering::Relaxed);
}

/// The `pthread_t` of a thread that was not started.
pub fn token() -> usize {
    (&raw const STAND_IN) as usize
}

/// Takes what was to be started with a stack of [`MARK`] bytes. It is not started.
pub fn take(function: StartRoutine, data: *mut c_void) {
    TAKEN.set(Some(Start { function, data }));
}

/// What std would run on a thread named as a fiber is, and its handle.
#[derive(Debug)]
pub(crate) struct Prepared {
    start: Start,
    handle: thread::JoinHandle<()>,
}

/// What the fiber is to run within std's function.
type Body<'a> = &'a mut dyn FnMut();

thread_local! {
    /// The calling fiber's, while std's function has not got to it.
    static BODY: Cell<*mut Body<'static>> = const { Cell::new(ptr::null_mut()) };
}

/// Has std make ready what a thread named `name` would run. `None` where there is no stand-in, or
/// fibers have no thread-local storage of their own, or in the child of a fork (see `launch`).
pub(crate) fn prepare(name: &str) -> Option<Prepared> {
    let stands_in = STAND_IN.load(Ordering::Relaxed) && tls::mode().layout().is_some();
    if !stands_in || generation::is_child() {
        return None;
    }
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(MARK);
    PREPARING.set(true);
    let handle = builder.spawn(run_body);
    PREPARING.set(false);
    let (handle, start) = (handle.ok()?, TAKEN.take()?);
    Some(Prepared { start, handle })
}

/// What std believes to be the thread's function.
fn run_body() {
    let body = BODY.replace(ptr::null_mut());
    // SAFETY: `Prepared::run` has put it there, on this fiber, and waits for this function to return.
    unsafe { (*body)() }
}

impl Prepared {
    /// std's handle.
    pub(crate) fn thread(&self) -> &thread::Thread {
        self.handle.thread()
    }

    /// Runs `f` on the calling fiber, as the function of std's thread. The fiber has run nothing of
    /// std's before.
    pub(crate) fn run<T>(self, f: impl FnOnce() -> T) -> T {
        let (mut f, mut value) = (Some(f), None);
        let mut run = || value = f.take().map(|f| f());
        let mut body: Body<'_> = &mut run;
        BODY.set((&raw mut body).cast());
        (self.start.function)(self.start.data);
        // It has ended, and this takes what it left: the stand-in answers in libc's place.
        match self.handle.join() {
            Ok(()) => value.expect("std has run the function"),
            Err(payload) => panic::resume_unwind(payload),
        }
    }
}
