//! The host: what makes the threads of a program that knows no fibers fibers. The crate `carefree-preload`
//! is one; without it, threads are threads.
//!
//! Stand-ins that concern threads ask it first. And each call on a fiber that may wait lets it do what has
//! come for the thread meanwhile: signals and cancellation, for which the kernel would interrupt a thread.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use carefree_runtime::Reason;
use carefree_runtime::hosted::{self, HostedThread};
use carefree_runtime::standard::StartRoutine;

use crate::call::fiber;
use crate::call::user::User;

/// Computes the deadline of a call, or the `errno` of a wrong one.
pub type Deadline<'a> = &'a mut dyn FnMut() -> Result<u64, c_int>;

/// A wait, as it is told to wait or only to look.
pub type Wait<'a> = &'a mut dyn FnMut(bool) -> Result<usize, c_int>;

/// The processor time that a hosted thread has used.
#[derive(Clone, Copy, Debug)]
pub struct TimeUsed {
    /// Nanoseconds.
    pub nanos: u64,
    /// Whether it is the caller's.
    pub by_caller: bool,
}

/// The functions of a host. Each `Option` is `None` where the thread is none of the host's.
#[derive(Debug)]
pub struct Host {
    /// `pthread_create`.
    pub create: unsafe fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        StartRoutine,
        *mut c_void,
    ) -> Option<c_int>,
    /// `pthread_join` until a deadline, which is asked for only if the thread has not ended; 0 is now.
    pub join: unsafe fn(libc::pthread_t, *mut *mut c_void, Deadline<'_>) -> Option<c_int>,
    /// `pthread_detach`.
    pub detach: unsafe fn(libc::pthread_t) -> Option<c_int>,
    /// `pthread_setname_np`.
    pub set_name: unsafe fn(libc::pthread_t, *const c_char) -> Option<c_int>,
    /// `pthread_getname_np`.
    pub get_name: unsafe fn(libc::pthread_t, *mut c_char, usize) -> Option<c_int>,
    /// `sigaltstack`: an `errno`, or 0.
    pub alternate_stack: unsafe fn(*const libc::stack_t, *mut libc::stack_t) -> Option<c_int>,
    /// A system call by its number that no stand-in knows, or a `prctl`.
    pub call: unsafe fn(c_long, [usize; 6]) -> Option<c_long>,
    /// What a clock of processor time shows the calling hosted thread.
    pub time_used: fn(libc::clockid_t) -> Option<TimeUsed>,
    /// To be called by a hosted thread before a system call that it makes by its number (`true`), and after it: unless
    /// its cancellation is asynchronous, it is not cancelled meanwhile. Returns whether that was so before.
    pub within_syscall: fn(bool) -> bool,
    /// Whether cancellation of the calling hosted thread is asynchronous.
    pub ends_anywhere: fn() -> bool,
    /// Takes a signal of a set that was sent to the calling hosted thread, which blocks it. Until the next
    /// call, those of the set interrupt the thread; with an empty set, none does.
    pub take_signal: fn(u64) -> Option<libc::siginfo_t>,
    /// Signals that the host uses itself, as a set of the kernel's: no thread is told of them.
    pub own_signals: u64,
    /// The signals that the calling hosted thread blocks: programs that it starts inherit that.
    pub mask: fn() -> u64,
    /// Gives the calling hosted thread another mask, and handles what that lets through.
    pub set_mask: fn(u64),
    /// Waits until the calling hosted thread has called a handler of signals, with this mask or its own.
    pub suspend: fn(Option<u64>),
    /// Calls a wait of the calling hosted thread with this mask of signals in force, again where it was
    /// interrupted for nothing; `EINTR` if a handler has run. The wait is told whether it may wait.
    pub wait_with_mask: fn(u64, Wait<'_>) -> Result<usize, c_int>,
    /// To be called by a hosted thread amid a call that waits on: handles signals, and cancels the thread if
    /// that may be done anywhere.
    pub handle_signals: unsafe extern "C-unwind" fn(),
    /// Whether `after_call` has something to do for the caller, at the end of a call that was not interrupted.
    pub has_come: fn() -> bool,
    /// To be called by a hosted thread at the end of a call: handles signals, and cancels the thread. The
    /// arguments say whether the call was interrupted, and whether the thread can be cancelled at it. Returns
    /// whether it is to be made again.
    pub after_call: unsafe extern "C-unwind" fn(bool, bool) -> bool,
    /// To be called by a hosted thread after a call for which the kernel sends this signal to the process: when this
    /// returns, the signal is with the thread that handles it. `after_call` has it handled.
    pub settle: fn(c_int),
}

static HOST: AtomicPtr<Host> = AtomicPtr::new(ptr::null_mut());

/// Makes `host` the process's host. Its threads must be [`hosted`].
pub fn set(host: &'static Host) {
    HOST.store(ptr::from_ref(host).cast_mut(), Ordering::Release);
}

/// The process's host.
#[inline(always)]
pub(crate) fn get() -> Option<&'static Host> {
    // SAFETY: null, or what `set` was given.
    unsafe { HOST.load(Ordering::Relaxed).as_ref() }
}

/// Whether the caller is a hosted thread.
#[inline(always)]
pub(crate) fn is_hosted() -> bool {
    get().is_some() && hosted::current().is_some()
}

/// Whether a wait of the caller's that is not a point of cancellation can be interrupted by signals. Not
/// while it is cancelled: all waits would end at once.
#[inline(always)]
pub(crate) fn is_interruptible() -> bool {
    let Some(host) = get() else { return false };
    hosted::current().is_some_and(|me| !me.is_cancelled() || (host.ends_anywhere)())
}

/// Whether a wait that was cut short just now goes on, because the calling hosted thread has nothing to handle. The sender
/// of a signal may find the thread in one wait and interrupt the next one, before which the thread has handled the signal.
///
/// (Where a call ends with `EINTR` for that, it is made again, but with all of its time.)
pub(crate) fn waits_on() -> bool {
    let (Some(host), Some(me)) = (get(), hosted::current()) else { return false };
    let cut = me.take_cut();
    let has_come = (host.has_come)();
    if has_come {
        me.note_cut(cut);
    }
    !has_come
}

/// Whether a wait of the caller's can be cut short: by a signal, and by cancellation unless its call is `steady`,
/// which is to say that no hosted thread is cancelled at it.
pub(crate) fn can_be_cut(steady: bool) -> bool {
    !steady || !is_hosted() || is_interruptible()
}

/// What a stand-in returns: whether that says that the call was interrupted.
pub(crate) trait Told {
    fn is_minus_one(&self) -> bool {
        false
    }

    /// Whether it has brought something: bytes, a file, a child, what is ready. Then the thread is not cancelled at this
    /// call, but at the next one: what was received is not lost.
    fn has_brought(&self) -> bool {
        false
    }
}

macro_rules! told {
    ($($type:ty),*) => {
        $(impl Told for $type {
            #[inline(always)]
            fn is_minus_one(&self) -> bool {
                *self == -1
            }

            #[inline(always)]
            fn has_brought(&self) -> bool {
                *self > 0
            }
        })*
    };
}
told!(i32, i64, isize);
impl Told for u32 {}
impl Told for () {}

impl Told for usize {
    #[inline(always)]
    fn has_brought(&self) -> bool {
        *self > 0
    }
}

impl<T> Told for *mut T {
    #[inline(always)]
    fn has_brought(&self) -> bool {
        !self.is_null()
    }
}

impl<T> Told for User<'_, T> {
    #[inline(always)]
    fn has_brought(&self) -> bool {
        !self.is_null()
    }
}

/// The calling fiber makes a system call by its number, up to [`end_number`].
pub(crate) fn begin_number() {
    if let Some(host) = get() {
        (host.within_syscall)(true);
    }
}

/// The system call of [`begin_number`] is over.
pub(crate) fn end_number() {
    if let Some(host) = get() {
        (host.within_syscall)(false);
    }
}

/// Makes a call at which no thread is cancelled by others that could be cut short by cancellation.
pub(crate) fn steadily<R>(call: impl FnOnce() -> R) -> R {
    let Some(host) = get() else { return call() };
    let before = (host.within_syscall)(true);
    let result = call();
    (host.within_syscall)(before);
    result
}

/// Ends the calling hosted thread at the beginning of a call, if it was cancelled: the call is not made then.
#[inline(always)]
pub(crate) fn begin() {
    if get().is_some() && hosted::current().is_some_and(HostedThread::is_cancelled) {
        after_begin();
    }
}

#[cold]
#[inline(never)]
fn after_begin() {
    if let Some(host) = get() {
        // SAFETY: the calling fiber is a hosted thread, whose frames from here to its own have nothing to drop.
        unsafe { (host.after_call)(false, true) };
    }
}

/// [`begin`] for a call at which no thread is cancelled.
#[inline(always)]
pub(crate) fn begin_steady() {}

/// Whether a call is to be made again, after the host has done what has come for the calling thread.
#[inline(always)]
pub(crate) fn again(result: &impl Told) -> bool {
    match get() {
        None => false,
        Some(host) if result.is_minus_one() || (host.has_come)() => {
            after(host, result.is_minus_one(), !result.has_brought())
        }
        Some(_) => false,
    }
}

/// [`again`] for a call at which no thread is cancelled.
#[inline(always)]
pub(crate) fn again_steady(result: &impl Told) -> bool {
    match get() {
        None => false,
        Some(host) if result.is_minus_one() || (host.has_come)() => {
            after(host, result.is_minus_one(), false)
        }
        Some(_) => false,
    }
}

/// [`again_steady`] for a call that has left the caller's floating-point control words in force.
#[inline(always)]
pub(crate) fn again_quick(result: &impl Told) -> bool {
    match get() {
        None => false,
        Some(host) if result.is_minus_one() || (host.has_come)() => {
            // What the host does may park.
            fiber::guarded(|| after(host, result.is_minus_one(), false))
        }
        Some(_) => false,
    }
}

#[cold]
#[inline(never)]
fn after(host: &Host, failed: bool, cancels: bool) -> bool {
    if hosted::current().is_none() {
        return false;
    }
    // SAFETY: the address of the caller's `errno`.
    let interrupted = failed && unsafe { *libc::__errno_location() } == libc::EINTR;
    // SAFETY: the calling fiber is a hosted thread, whose frames from here to its own have nothing to drop.
    unsafe { (host.after_call)(interrupted, cancels) }
}

/// The calling hosted thread's call, which was interrupted, is not begun again, though others that wait for the same
/// are.
#[cold]
pub(crate) fn ends_by_signal() {
    if let Some(me) = hosted::current() {
        me.take_cut();
    }
}

/// [`Host::settle`], where there is a host.
pub(crate) fn settle(signal: c_int) {
    if let Some(host) = get().filter(|_| hosted::current().is_some()) {
        (host.settle)(signal);
    }
}

/// A signal has interrupted a call of the caller's amid a wait for `reason`, of which the runtime does not know.
#[cold]
pub(crate) fn interrupted(reason: Reason) {
    if let Some(me) = hosted::current() {
        me.note_cut(reason);
    }
}

/// Lets the host handle signals for the calling hosted thread.
#[cold]
pub(crate) fn handle_signals() {
    if let Some(host) = get() {
        // SAFETY: the calling fiber's frames from here to its own have nothing to drop.
        unsafe { (host.handle_signals)() };
    }
}
