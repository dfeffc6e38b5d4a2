//! Kernel threads that the runtime starts: for carriers, for offloaded calls, in place of fibers.
//!
//! They are threads of std's, which knows their names and reports their stack overflows. But a thread of
//! std's takes a lock of std's when it begins and when it ends (of the table in which the report of an
//! overflow finds stacks), and no handler of `fork` takes care of that lock. If a process is forked while a
//! thread begins or ends, the lock stays taken in the child, and threads of std's hang there. So in the
//! child of a fork, threads are libc's alone: std does not know their names, nor report their overflows.
//!
//! Nor are the monitor's and those of carriers that it adds (`launch_bare`). A fiber with a name takes that lock, too, and
//! asks for memory meanwhile; where the program's allocator makes it wait, it is queued with the lock, maybe
//! behind a fiber that keeps its carrier. A carrier that is added to run it must not wait for the lock first;
//! nor for one of the allocator's own, with which a fiber may be queued as well. So nothing is allocated there.
//! (libc's `pthread_create` allocates, by the `malloc` that the program has in libc's place, if any.)
//!
//! Once a library was loaded while there were fibers, the offload pool's are not either (`launch_without_std`): std's
//! begin by a call for which libc takes the loader's lock, and a fiber may have that which waits for the new thread.

use std::ffi::c_void;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::thread;

use crate::fiber::names;
use crate::protocol::generation;

/// Bytes of stack where none are asked for: std's default.
const STACK: usize = 2 << 20;

/// The `pthread_t` of a thread that was started. Dropping it detaches the thread.
#[derive(Debug)]
#[must_use]
pub struct Launched(usize);

impl Launched {
    /// Waits until the thread has ended.
    pub(crate) fn join(self) {
        // SAFETY: the thread was neither joined nor detached, and `into_raw` has given up this handle.
        unsafe { libc::pthread_join(self.into_raw() as libc::pthread_t, ptr::null_mut()) };
    }

    /// The thread, by what [`into_raw`](Self::into_raw) has returned.
    ///
    /// # Safety
    /// It was neither joined nor detached since, and is given back once.
    pub(crate) unsafe fn from_raw(thread: usize) -> Launched {
        Launched(thread)
    }

    /// The thread's `pthread_t`, for the caller to join or detach.
    pub(crate) fn into_raw(self) -> usize {
        let thread = self.0;
        mem::forget(self);
        thread
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // SAFETY: a handle that is dropped was not joined, and there is no other to the thread.
        unsafe { libc::pthread_detach(self.0 as libc::pthread_t) };
    }
}

/// Starts a thread that runs `body`.
///
/// # Errors
/// When the kernel or libc refuses another thread.
pub fn launch(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Launched> {
    // SAFETY: the body is 'static, so it borrows nothing that could end.
    unsafe { launch_unchecked(Some(name), None, body) }
}

/// [`launch`] of a thread that std does not know: one that waits for no lock of std's or the loader's when it begins.
///
/// # Errors
/// As for [`launch`].
pub(crate) fn launch_without_std(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<Launched> {
    // SAFETY: the body is 'static, so it borrows nothing that could end.
    unsafe { launch_by_libc(Some(name), None, Box::new(body)) }
}

/// Starts a thread by libc, without std and without the program's allocator (see the module): it calls `run`
/// with `argument`, on a stack of [`stack_bytes`].
///
/// # Errors
/// As for [`launch`].
///
/// # Safety
/// `run` may be called with `argument` on another thread, once, at any later time.
pub(crate) unsafe fn launch_bare(
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
    bytes: usize,
) -> io::Result<Launched> {
    // SAFETY: the attributes are initialised before they are used, and destroyed after. The thread calls `run`
    // as this function's caller permits.
    let (code, thread) = unsafe {
        let mut attributes = mem::zeroed::<libc::pthread_attr_t>();
        let mut thread = mem::zeroed::<libc::pthread_t>();
        libc::pthread_attr_init(&raw mut attributes);
        let mut code = libc::pthread_attr_setstacksize(&raw mut attributes, bytes);
        if code == 0 {
            code = libc::pthread_create(&raw mut thread, &raw const attributes, run, argument);
        }
        libc::pthread_attr_destroy(&raw mut attributes);
        (code, thread)
    };
    if code == 0 { Ok(Launched(thread as usize)) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Bytes of stack of a thread for which so many are asked, or what std gives its threads by default.
pub(crate) fn stack_bytes(asked: Option<usize>) -> usize {
    // SAFETY: `sysconf` may be called at any time.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let by_default = || carefree_settings::text("RUST_MIN_STACK")?.parse().ok();
    let bytes = asked.or_else(by_default).unwrap_or(STACK).max(libc::PTHREAD_STACK_MIN);
    bytes.checked_next_multiple_of(page).unwrap_or(usize::MAX & !(page - 1))
}

/// Has the kernel know the calling thread by this name.
pub(crate) fn set_name(name: names::KernelName) {
    // SAFETY: the kernel reads a C string, which is there until the call returns.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Starts a thread that runs `body` and handles no signals but faults of its own: a handler of the
/// program's may ask for memory, or wait.
///
/// # Errors
/// As for [`launch`].
pub fn launch_undisturbed(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<Launched> {
    let body = move || {
        block_all_but_faults();
        body();
    };
    // SAFETY: the body borrows nothing.
    unsafe { launch_unchecked(Some(name), Some(UNDISTURBED), body) }
}

/// Bytes of stack of a thread that is to be undisturbed. Not what the program gives its threads, which may be little:
/// `RUST_MIN_STACK` is for fibers too.
pub(crate) const UNDISTURBED: usize = 2 << 20;

/// Has the calling thread handle no signals but faults of its own.
pub(crate) fn block_all_but_faults() {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: `signals` is written by the first call, and changed or read by the others.
    unsafe {
        libc::sigfillset(signals.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
            libc::sigdelset(signals.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, signals.as_ptr(), ptr::null_mut());
    }
}

/// The signals that a thread blocks.
#[derive(Clone, Copy)]
pub(crate) struct Signals(libc::sigset_t);

impl Signals {
    /// Those of the calling thread.
    pub(crate) fn blocked() -> Signals {
        let mut signals = MaybeUninit::zeroed();
        // SAFETY: it writes a set of signals, of which zeros are one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), signals.as_mut_ptr());
            Signals(signals.assume_init())
        }
    }

    /// Has the calling thread block these.
    pub(crate) fn block(&self) {
        // SAFETY: libc reads the set, and returns none (the third argument is null).
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Signals").finish_non_exhaustive()
    }
}

/// Starts a thread that runs `body`, with `stack_size` bytes of stack at least.
///
/// # Errors
/// As for [`launch`].
///
/// # Safety
/// What `body` borrows outlives the thread's use of it.
pub(crate) unsafe fn launch_unchecked(
    name: Option<&str>,
    stack_size: Option<usize>,
    body: impl FnOnce() + Send,
) -> io::Result<Launched> {
    if generation::is_child() {
        // SAFETY: both functions demand that what `body` borrows outlives its use.
        return unsafe { launch_by_libc(name, stack_size, Box::new(body)) };
    }
    let mut builder = thread::Builder::new();
    if let Some(name) = name {
        builder = builder.name(name.to_owned());
    }
    if let Some(bytes) = stack_size {
        builder = builder.stack_size(bytes);
    }
    // SAFETY: what `body` borrows outlives the thread's use of it, as this function demands.
    let thread = unsafe { builder.spawn_unchecked(body) }?;
    Ok(Launched(thread.into_pthread_t() as usize))
}

/// What a thread of libc's alone runs, and the name that the kernel is to know it by.
struct Start<'a> {
    name: Option<names::KernelName>,
    body: Box<dyn FnOnce() + Send + 'a>,
}

/// Starts a thread by libc, without std.
///
/// # Errors
/// As for [`launch`].
///
/// # Safety
/// As for [`launch_unchecked`].
unsafe fn launch_by_libc<'a>(
    name: Option<&str>,
    stack_size: Option<usize>,
    body: Box<dyn FnOnce() + Send + 'a>,
) -> io::Result<Launched> {
    let start = Box::into_raw(Box::new(Start { name: name.map(names::cut), body }));
    // SAFETY: `start` points to a `Start`, which `run` takes if the thread is started.
    let launched = unsafe { launch_bare(run, start.cast(), stack_bytes(stack_size)) };
    if launched.is_err() {
        // SAFETY: `into_raw` has made this pointer, and there is no thread that would take it.
        drop(unsafe { Box::from_raw(start) });
    }
    launched
}

/// The start function of a thread of libc's alone.
extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `launch_by_libc` has made it by `Box::into_raw`, and gives it to this thread alone.
    let Start { name, body } = *unsafe { Box::from_raw(start.cast::<Start<'_>>()) };
    if let Some(name) = name {
        set_name(name);
    }
    body();
    ptr::null_mut()
}
