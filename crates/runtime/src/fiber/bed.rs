//! What the runtime notes of a plain thread beside its header.
//!
//! A bed is made when a thread first needs a header and stays with that header for good: a late
//! wake-up may still reach a thread that has ended, or the next one with its header, which looks
//! whether it was meant.

use crate::fiber::header::{FiberRef, Kind};
use crate::protocol::sync::{AtomicBool, AtomicUsize, Idle, Ordering};
use std::ptr;

/// Where a thread sleeps while it waits, and how it came to be.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) idle: Idle,
    /// Whether the runtime has started the thread, in place of a fiber.
    spawned: AtomicBool,
    /// The thread's `pthread_t`, until it is joined or detached; else 0. Written before the thread's
    /// one [`JoinHandle`](crate::JoinHandle) is made, and then that handle's.
    joinable: AtomicUsize,
}

/// Gives `fiber`, a header of its own caller's, a bed.
pub(crate) fn make(fiber: FiberRef) {
    let bed =
        Bed { idle: Idle::new(), spawned: AtomicBool::new(false), joinable: AtomicUsize::new(0) };
    fiber.stack.store(Box::into_raw(Box::new(bed)).cast(), Ordering::Release);
}

/// The bed of a thread. `thread` is, or was, of kind [`Kind::Thread`].
pub(crate) fn of(thread: FiberRef) -> &'static Bed {
    let bed = thread.stack.load(Ordering::Acquire).cast::<Bed>();
    debug_assert!(!bed.is_null(), "a thread has a bed");
    // SAFETY: `make` has put it there when the header became a thread's, which it then stays; beds are
    // never freed, and are only ever shared.
    unsafe { &*bed }
}

impl Bed {
    /// Notes whether the header's next thread is one that the runtime starts.
    pub(crate) fn begin(&self, spawned: bool) {
        self.spawned.store(spawned, Ordering::Relaxed);
    }

    /// Notes the thread's `pthread_t`, for [`join`] or [`detach`].
    pub(crate) fn set_joinable(&self, thread: usize) {
        self.joinable.store(thread, Ordering::Relaxed);
    }

    /// The thread's `pthread_t`; 0 once it was joined or detached.
    pub(crate) fn joinable(&self) -> usize {
        self.joinable.load(Ordering::Relaxed)
    }

    /// Leaves it to the caller of this to join or detach the thread.
    pub(crate) fn give_up(&self) {
        self.take_joinable();
    }

    fn take_joinable(&self) -> Option<libc::pthread_t> {
        let thread = self.joinable.swap(0, Ordering::Relaxed);
        (thread != 0).then_some(thread as libc::pthread_t)
    }
}

/// Whether `fiber` is a thread that the runtime has started in place of a fiber.
pub(crate) fn is_spawned(fiber: FiberRef) -> bool {
    fiber.kind.get() == Kind::Thread && of(fiber).spawned.load(Ordering::Relaxed)
}

/// Waits until a thread that has FINISHED is gone, its thread-local variables with it. Nothing to do
/// for a fiber, which finishes last.
#[inline]
pub(crate) fn join(fiber: FiberRef) {
    if fiber.kind.get() == Kind::Thread {
        end(fiber, |thread| {
            // SAFETY: the thread was neither joined nor detached.
            let failed = unsafe { libc::pthread_join(thread, ptr::null_mut()) };
            if failed != 0 {
                // A destructor of its own joins it.
                // SAFETY: as above, still.
                unsafe { libc::pthread_detach(thread) };
            }
        });
    }
}

/// Lets a thread go on by itself, and libc clean up after it.
#[inline]
pub(crate) fn detach(fiber: FiberRef) {
    if fiber.kind.get() == Kind::Thread {
        // SAFETY: the thread was neither joined nor detached.
        end(fiber, |thread| unsafe {
            libc::pthread_detach(thread);
        });
    }
}

#[cold]
fn end(fiber: FiberRef, how: impl FnOnce(libc::pthread_t)) {
    if let Some(thread) = of(fiber).take_joinable() {
        how(thread);
    }
}
