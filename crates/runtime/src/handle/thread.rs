//! The handle to a fiber or plain thread, and its number.

use std::fmt;
use std::num::NonZero;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::carrier::carrier;
use crate::fiber::header::FiberRef;
use crate::protocol::sync::Ordering;
use crate::wait::cancel;
use crate::wait::park;

/// A handle to a fiber, as `std::thread::Thread` is one to a thread.
///
/// It may be kept as long as the program likes: it keeps a few words of memory, not the fiber's stack. On a
/// plain thread, [`current`](crate::current) returns a handle to that thread, which works alike.
///
/// ```
/// let handle = carefree_runtime::spawn(|| carefree_runtime::park());
/// handle.thread().unpark();
/// handle.join().unwrap();
/// ```
pub struct Thread(FiberRef);

// A panic leaves nothing half done in a header: all that a handle accesses is atomic.
impl UnwindSafe for Thread {}
impl RefUnwindSafe for Thread {}

impl Thread {
    /// Takes over one counted reference.
    pub(crate) fn from_counted(fiber: FiberRef) -> Self {
        Thread(fiber)
    }

    /// Counts a new reference.
    pub(crate) fn from_ref(fiber: FiberRef) -> Self {
        // As `Arc` does: ends the process before forgotten handles make the count overflow.
        if fiber.references.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
        Thread(fiber)
    }

    /// The header.
    pub(crate) fn as_ref(&self) -> FiberRef {
        self.0
    }

    /// The fiber's number, which no other fiber of this process has or will have.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        let id = NonZero::new(self.0.id.load(Ordering::Relaxed));
        ThreadId(id.expect("fibers are numbered from 1"))
    }

    /// The name given by [`Builder::name`](crate::Builder::name), if any; of the main thread, `main`.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name()
    }

    /// Wakes the fiber from [`park`](crate::park), or lets its next `park` return at once, as
    /// `std::thread::Thread::unpark` does. The fiber then sees what the caller wrote before.
    pub fn unpark(&self) {
        park::unpark(self.0);
    }

    /// Asks the fiber to end soon: see [`JoinHandle::cancel`](crate::JoinHandle::cancel).
    pub fn cancel(&self) {
        cancel::cancel(self.0);
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.has_finished()
    }
}

/// A handle to the calling fiber or plain thread.
pub fn current() -> Thread {
    Thread::from_ref(crate::fiber::current::current())
}

impl Clone for Thread {
    fn clone(&self) -> Self {
        Thread::from_ref(self.0)
    }
}

impl Drop for Thread {
    #[inline]
    fn drop(&mut self) {
        carrier::release(self.0);
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Thread")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The number of a fiber: see [`Thread::id`].
///
/// As std's, an `Option` of it takes no more room than the number itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(NonZero<u64>);

impl fmt::Display for ThreadId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
