//! What a plain thread has where a fiber has its stack: where it sleeps.
//!
//! A bed is made with a thread's header and stays with it for good: a late wake-up may still reach a
//! thread that has ended, or the next one with the same header, which looks whether its wait was ended.

use std::ptr;

use carefree_ground::own::Own;

use crate::fiber::header::{FiberRef, Kind};
use crate::protocol::sync::{AtomicBool, AtomicUsize, Idle, Ordering};

/// Where a thread sleeps while it waits, and how it came to be.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) idle: Idle,
    /// Whether the runtime has started the thread in place of a fiber.
    spawned: AtomicBool,
    /// The `pthread_t` of such a thread until it is joined or detached; else 0. It is set before the
    /// thread's one [`JoinHandle`](crate::JoinHandle) is made, and then used by that handle only.
    joinable: AtomicUsize,
}

/// Gives a header a bed: one that no other thread accesses yet.
pub(crate) fn make(fiber: FiberRef) {
    put(fiber, Box::into_raw(Box::new(Bed::new())));
}

/// The same in the child of a fork, where the program's allocator may still be locked.
pub(crate) fn make_in_child(fiber: FiberRef) {
    put(fiber, Own::new(Bed::new()).into_raw());
}

fn put(fiber: FiberRef, bed: *mut Bed) {
    fiber.stack.store(bed.cast(), Ordering::Release);
}

/// The bed of `thread`, which is or was of kind [`Kind::Thread`].
pub(crate) fn of(thread: FiberRef) -> &'static Bed {
    let bed = thread.stack.load(Ordering::Acquire).cast::<Bed>();
    debug_assert!(!bed.is_null(), "a thread has a bed");
    // SAFETY: `put` has set it when the header became a thread's, which it stays. A bed is never freed,
    // and only shared references to it are made.
    unsafe { &*bed }
}

impl Bed {
    fn new() -> Bed {
        Bed { idle: Idle::new(), spawned: AtomicBool::new(false), joinable: AtomicUsize::new(0) }
    }

    /// Notes whether the header's next thread is started in place of a fiber.
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

    /// Leaves it to the caller to join or detach the thread.
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

/// Waits until a thread that has FINISHED has ended, and with it its thread-local variables. Nothing to do
/// for a fiber, which finishes after its variables.
#[inline]
pub(crate) fn join(fiber: FiberRef) {
    if fiber.kind.get() == Kind::Thread {
        end(fiber, |thread| {
            // SAFETY: the `pthread_t` was not joined or detached before, for taking it from the bed has
            // cleared it.
            let failed = unsafe { libc::pthread_join(thread, ptr::null_mut()) };
            if failed != 0 {
                // The thread joins itself, in a destructor of its own.
                // SAFETY: the join has failed, so the `pthread_t` is still good.
                unsafe { libc::pthread_detach(thread) };
            }
        });
    }
}

/// Detaches a thread. Nothing to do for a fiber.
#[inline]
pub(crate) fn detach(fiber: FiberRef) {
    if fiber.kind.get() == Kind::Thread {
        // SAFETY: the `pthread_t` was not joined or detached before: taking it from the bed has cleared it.
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
