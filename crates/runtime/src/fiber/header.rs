//! A fiber: what the runtime knows of it. ([`Thread`](crate::Thread) is the handle its users hold.)

use std::fmt;
#[cfg(not(loom))]
use std::mem;
use std::ptr::{self, NonNull};

use carefree_context::arch::{self, ThreadContext};
use carefree_context::extent::Place;

use crate::fiber::furnish::FiberStack;
pub(crate) use crate::fiber::glimpse::Kind;
use crate::fiber::glimpse::{Opaque, Pointer, SharedKind};
use crate::fiber::names::Names;
use crate::protocol::episode::Episode;
#[cfg(not(loom))]
use crate::protocol::injector::Linked;
use crate::protocol::reason::Reason;
use crate::protocol::signal::Signal;
use crate::protocol::sync::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Cell, Ordering, UnsafeCell,
};

/// The part of a fiber that outlives its stack: two cache lines, the first of them what a switch
/// and a wait touch.
///
/// Headers live in slabs that are never given back ([`crate::fiber::registry`]), so that a late timer or
/// a dump may look at one whose fiber has ended; the episode's number tells them so.
///
/// A plain thread that parks has a header too, of kind [`Kind::Thread`].
#[repr(C, align(64))]
pub(crate) struct Header {
    /// Where the fiber goes on. Written by the switch away from it, read by the switch to it.
    pub(crate) context: UnsafeCell<ThreadContext>,
    /// The carrier that runs it, or ran it last, or (not yet started) where it was spawned: see
    /// `carrier::of`. Of a thread: null.
    pub(crate) carrier: Pointer<Opaque>,
    pub(crate) episode: Episode,
    /// What it waits for, for dumps.
    pub(crate) key: AtomicUsize,
    /// Links of the list of waiters for one key, under the lock of the key's bucket; or, when the
    /// fiber is ready, of the list of those submitted ([`crate::protocol::injector`]).
    pub(crate) next: Cell<Option<FiberRef>>,
    pub(crate) previous: Cell<Option<FiberRef>>,
    /// Whether it is in such a list; written under the lock.
    pub(crate) linked: AtomicBool,
    pub(crate) kind: SharedKind,
    /// Above 0: what it calls of libc is the plain call. Always so in a thread; in a fiber, while
    /// the runtime's own code runs on its stack. See [`crate::wait::park::without_parking`].
    pub(crate) plain: Cell<u8>,
    /// `park`'s token: sent by `unpark`.
    pub(crate) token: Signal,
    /// Sent by `cancel`, and never taken back.
    pub(crate) cancel: Signal,
    pub(crate) reason: AtomicU8,

    pub(crate) id: AtomicU64,
    pub(crate) references: AtomicU32,
    /// [`FINISHED`], [`AWAITED`], [`DETACHED`], [`STORED`], [`PINNED`].
    pub(crate) join: AtomicU32,
    /// In the list of waiters for a key: by what a waker may tell it from others (see
    /// [`crate::wait::lot`]).
    pub(crate) tag: Cell<u32>,
    /// [`FREE`] or [`ALIVE`].
    pub(crate) run: AtomicU8,
    /// Of a fiber that has one: its stack. Of a thread: its `Bed`.
    pub(crate) stack: AtomicPtr<FiberStack>,
    /// What it is called, or null.
    pub(crate) names: AtomicPtr<Names>,
    /// The innermost time limit or shield it is within, or null: see [`crate::wait::limits`].
    pub(crate) limits: Place,
    /// What the fiber's function returned, or a box of it: see [`crate::handle::join`].
    pub(crate) result: UnsafeCell<[usize; 2]>,
}

// Where a sanitizer is built in, contexts are larger.
#[cfg(not(loom))]
const _: () = assert!(
    mem::size_of::<Header>() == 128 && mem::offset_of!(Header, id) == 64
        || mem::size_of::<ThreadContext>() > 16
);

// SAFETY: which party may touch which field when is said at each; what is shared is atomic, what
// is not belongs to the running fiber or is handed over by the episode's or a lock's ordering.
unsafe impl Sync for Header {}
// SAFETY: as above.
unsafe impl Send for Header {}

/// Bits of [`Header::join`]. The fiber has ended, its result is there.
pub(crate) const FINISHED: u32 = 1;
/// A fiber or thread waits for the end and must be unparked.
pub(crate) const AWAITED: u32 = 2;
/// The handle is gone: the result is not asked for.
pub(crate) const DETACHED: u32 = 4;
/// The result, which needs a destructor, is there for the handle to take or drop.
pub(crate) const STORED: u32 = 8;
/// Its stack stays with the header until the last counted reference is gone: see [`crate::handle::pthread`].
pub(crate) const PINNED: u32 = 16;

/// Values of [`Header::run`]: whether the header is in use, for a look at all of them.
pub(crate) const FREE: u8 = 0;
pub(crate) const ALIVE: u8 = 1;

impl Header {
    /// A header that is not in use yet.
    pub(crate) fn new() -> Self {
        Header {
            context: UnsafeCell::new(ThreadContext::of_this_thread()),
            carrier: Pointer::new(ptr::null()),
            episode: Episode::new(),
            key: AtomicUsize::new(0),
            next: Cell::new(None),
            previous: Cell::new(None),
            linked: AtomicBool::new(false),
            kind: SharedKind::new(Kind::Fiber),
            plain: Cell::new(1),
            token: Signal::new(),
            cancel: Signal::new(),
            reason: AtomicU8::new(0),
            run: AtomicU8::new(FREE),
            id: AtomicU64::new(0),
            references: AtomicU32::new(0),
            join: AtomicU32::new(0),
            tag: Cell::new(0),
            stack: AtomicPtr::new(ptr::null_mut()),
            names: AtomicPtr::new(ptr::null_mut()),
            limits: Place::new(ptr::null()),
            result: UnsafeCell::new([0; 2]),
        }
    }

    /// Prepares the header for a new fiber or thread with `references` counted references.
    pub(crate) fn begin(&self, kind: Kind, id: u64, name: Option<Box<str>>, references: u32) {
        self.kind.set(kind);
        self.plain.set(u8::from(kind == Kind::Thread));
        self.token.clear();
        self.cancel.clear();
        self.limits.set(ptr::null());
        self.id.store(id, Ordering::Relaxed);
        self.references.store(references, Ordering::Relaxed);
        self.join.store(0, Ordering::Relaxed);
        self.reason.store(Reason::NotStarted as u8, Ordering::Relaxed);
        if let Some(name) = name {
            self.names.store(Names::given(name), Ordering::Release);
        }
        self.run.store(ALIVE, Ordering::Release);
    }
}

/// An uncounted reference to a header: for queues and lists, which hold a fiber only while it is
/// alive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FiberRef(NonNull<Header>);

// SAFETY: a header may be looked at from anywhere; see `Header`.
unsafe impl Send for FiberRef {}
// SAFETY: as above.
unsafe impl Sync for FiberRef {}

impl FiberRef {
    pub(crate) fn new(header: &'static Header) -> Self {
        FiberRef(NonNull::from(header))
    }

    /// # Safety
    /// `pointer` comes from [`as_ptr`](Self::as_ptr).
    #[inline(always)]
    pub(crate) unsafe fn from_ptr(pointer: *mut u8) -> Self {
        // SAFETY: the caller's promise.
        FiberRef(unsafe { NonNull::new_unchecked(pointer.cast()) })
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    /// The header. (Headers are never freed.)
    #[inline(always)]
    pub(crate) fn header(self) -> &'static Header {
        // SAFETY: headers are never freed, and are only ever shared.
        unsafe { self.0.as_ref() }
    }

    /// Brings the header into the cache.
    #[inline(always)]
    pub(crate) fn prefetch_header(self) {
        arch::prefetch(self.as_ptr());
    }

    /// Gives one counted reference back. Whether it was the last: then all that was done under the others
    /// has come before.
    #[inline]
    pub(crate) fn give_back(self) -> bool {
        if self.references.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // Reads from the other references' decrements. (A fence would do as well, but ThreadSanitizer
        // does not know fences.)
        self.references.load(Ordering::Acquire);
        true
    }

    /// A key for waits that concern this fiber.
    #[inline(always)]
    pub(crate) fn key(self) -> usize {
        self.0.as_ptr() as usize
    }
}

/// The link is that of the parking lot's lists: a fiber is out of those before it is made ready.
#[cfg(not(loom))]
impl Linked for FiberRef {
    #[inline]
    fn next(self) -> Option<Self> {
        self.header().next.get()
    }

    #[inline]
    fn set_next(self, next: Option<Self>) {
        self.header().next.set(next);
    }
}

impl std::ops::Deref for FiberRef {
    type Target = Header;

    #[inline(always)]
    fn deref(&self) -> &Header {
        self.header()
    }
}

impl fmt::Debug for FiberRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "fiber {}", self.id.load(Ordering::Relaxed))
    }
}
