//! What is kept for each hosted thread.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use carefree_context::arch::FloatState;
use carefree_ground::lock::Lock;
use carefree_interpose::thread::alternate_stack::NO_STACK;
use carefree_runtime::hosted::{self, HostedThread};

use crate::signal::queue::Queue;
use crate::thread::alive;
use crate::thread::policy::Policy;
use crate::thread::settings::Settings;

/// The result of a thread that was cancelled.
pub(crate) const CANCELED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// What a thread runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) function: usize,
    pub(crate) argument: *mut c_void,
    /// Its result is an `int`, as C11's functions have it.
    pub(crate) c11: bool,
}

// SAFETY: the program passes the pointer on to its new thread.
unsafe impl Sync for Start {}
// SAFETY: as for Sync.
unsafe impl Send for Start {}

/// A bit of [`Record::state`]: no join will come.
pub(crate) const DETACHED: u32 = 1;
/// A bit of [`Record::state`]: its function has returned, and its variables are destroyed.
pub(crate) const ENDED: u32 = 2;
/// A bit of [`Record::state`]: a join waits for it.
pub(crate) const AWAITED: u32 = 4;

/// An alternate stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alternate(pub(crate) libc::stack_t);

// SAFETY: plain data: what a thread has set, to be told to it.
unsafe impl Send for Alternate {}

/// What is kept for a hosted thread, on its stack; for the first one, in [`MAIN`].
#[derive(Debug)]
pub(crate) struct Record {
    /// Its [`Start`], of which the parts take less room: the page has few bytes to spare.
    function: usize,
    argument: AtomicPtr<c_void>,
    c11: bool,
    /// The floating-point control words and exceptions, and the GS base, that it inherits.
    pub(crate) registers: Registers,
    /// Its result.
    pub(crate) value: AtomicPtr<c_void>,
    /// [`DETACHED`], [`ENDED`], [`AWAITED`].
    pub(crate) state: AtomicU32,
    pub(crate) cancellation: Lock<Cancellation>,
    /// Its cancellation takes effect anywhere, not only at calls that may wait. Changed under the lock of
    /// `cancellation`.
    pub(crate) asynchronous: AtomicBool,
    pub(crate) policy: Lock<Policy>,
    /// Numbers that have no effect on it, but on what it creates in the kernel.
    pub(crate) settings: Settings,
    /// The signals that it blocks.
    pub(crate) mask: AtomicU64,
    /// Signals that have come for it, and are not handled yet.
    pub(crate) pending: Queue,
    /// Signals that it waits for, though it blocks them.
    pub(crate) awaited: AtomicU64,
    /// Its function runs, on the frame of [`carefree_hosted_call`](crate::thread::frame).
    pub(crate) inside: AtomicBool,
    /// Where on its stack the address lies to which the innermost handler returns; 0 if none runs.
    pub(crate) handler: AtomicUsize,
    /// No handler is called now: the thread looks for signals itself.
    pub(crate) holds: AtomicBool,
    /// The alternate stack for handlers that it has set.
    pub(crate) alternate: Lock<Alternate>,
    /// Bytes of the guard that it has asked for.
    pub(crate) guard: usize,
}

/// Whether a thread was cancelled, and whether that can take effect.
#[derive(Debug)]
pub(crate) struct Cancellation {
    pub(crate) requested: bool,
    pub(crate) disabled: bool,
    /// The thread makes a system call by its number, at which no thread is cancelled.
    pub(crate) spared: bool,
    /// The thread ends, and takes no notice of it any more: cleanup handlers and destructors wait as others.
    pub(crate) ends: bool,
}

/// The record of the process's first thread.
pub(crate) static MAIN: Record = Record::new(
    Start { function: 0, argument: ptr::null_mut(), c11: false },
    Registers::NONE,
    0,
    false,
    0,
);

/// What a thread inherits of its creator's registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub(crate) float: FloatState,
    pub(crate) gs: usize,
}

impl Registers {
    pub(crate) const NONE: Registers = Registers { float: FloatState::DEFAULT, gs: 0 };
}

/// Threads that were created as fibers.
pub(crate) static CREATED: AtomicU64 = AtomicU64::new(0);
/// The most of them that were alive at once, the first thread left out.
pub(crate) static MOST: AtomicU64 = AtomicU64::new(0);

impl Record {
    pub(crate) const fn new(
        start: Start,
        registers: Registers,
        mask: u64,
        detached: bool,
        guard: usize,
    ) -> Record {
        Record {
            registers,
            function: start.function,
            argument: AtomicPtr::new(start.argument),
            c11: start.c11,
            value: AtomicPtr::new(CANCELED),
            state: AtomicU32::new(if detached { DETACHED } else { 0 }),
            cancellation: Lock::new(Cancellation {
                requested: false,
                disabled: false,
                spared: false,
                ends: false,
            }),
            asynchronous: AtomicBool::new(false),
            policy: Lock::new(Policy::USUAL),
            settings: Settings::new(),
            mask: AtomicU64::new(mask),
            pending: Queue::new(),
            awaited: AtomicU64::new(0),
            inside: AtomicBool::new(false),
            handler: AtomicUsize::new(0),
            holds: AtomicBool::new(false),
            alternate: Lock::new(Alternate(NO_STACK)),
            guard,
        }
    }

    /// What the thread runs.
    pub(crate) fn start(&self) -> Start {
        let argument = self.argument.load(Ordering::Relaxed);
        Start { function: self.function, argument, c11: self.c11 }
    }
}

/// The record of a hosted thread.
#[inline]
pub(crate) fn of<'a>(thread: HostedThread) -> &'a Record {
    // SAFETY: all hosted threads are created with a record.
    unsafe { thread.data() }
}

/// The calling hosted thread, with its record.
#[inline]
pub(crate) fn current<'a>() -> Option<(HostedThread, &'a Record)> {
    hosted::current().map(|me| (me, of(me)))
}

/// The hosted thread of a `pthread_t`, with its record.
///
/// # Safety
/// It is the `pthread_t` of a thread that was not joined.
#[inline]
pub(crate) unsafe fn find<'a>(thread: libc::pthread_t) -> Option<(HostedThread, &'a Record)> {
    // SAFETY: as this function demands.
    unsafe { hosted::find(thread as usize) }.map(|thread| (thread, of(thread)))
}

/// In the child of a fork: the caller is the only thread.
pub(crate) fn renew() {
    alive::renew();
    CREATED.store(0, Ordering::Relaxed);
    MOST.store(0, Ordering::Relaxed);
    MAIN.holds.store(false, Ordering::Relaxed);
    // SAFETY: the child of a fork has one thread, which is in a handler of forks.
    unsafe { MAIN.pending.renew() };
}

/// The `errno` of the caller.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the address of the caller's variable.
    unsafe { *libc::__errno_location() = errno };
}
