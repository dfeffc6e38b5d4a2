//! The header of a fiber: what the runtime knows of it. ([`Thread`](crate::Thread) is what programs hold.)

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

/// The part of a fiber that outlives its stack: two cache lines, of which a switch and a wait access the
/// first only.
///
/// Headers lie in slabs that are never unmapped ([`crate::fiber::registry`]), for a late timer or a dump may
/// access one whose fiber has ended. (By the number of the wait or of the fiber they find out.)
///
/// A plain thread that parks has a header too, of kind [`Kind::Thread`].
#[repr(C, align(64))]
pub(crate) struct Header {
    /// The fiber's context while it does not run: written by the switch away from it, read by the switch
    /// to it.
    pub(crate) context: UnsafeCell<ThreadContext>,
    /// The carrier that runs it, ran it last, or is to start it: see `carrier::of`. Null for a thread; a mark for a
    /// fiber [that has no stack yet](crate::fiber::unstarted).
    pub(crate) carrier: Pointer<Opaque>,
    pub(crate) episode: Episode,
    /// The key that it waits for in the parking lot, or 0; before the start see [`crate::fiber::unstarted`].
    pub(crate) key: AtomicUsize,
    /// Links in a bucket of the parking lot, under that bucket's lock. When the fiber is ready, `next` is
    /// its link in an [`injector`](crate::protocol::injector).
    pub(crate) next: Cell<Option<FiberRef>>,
    pub(crate) previous: Cell<Option<FiberRef>>,
    /// Whether it is in a bucket: see [`crate::wait::lot`]. Written under the bucket's lock.
    pub(crate) linked: AtomicBool,
    pub(crate) kind: SharedKind,
    /// Above 0: what it calls of libc is libc's own. Always so for a thread; for a fiber, while the
    /// runtime's own code runs on its stack: see [`without_parking`](crate::fiber::current::without_parking).
    pub(crate) plain: Cell<u8>,
    /// `park`'s token: sent by `unpark`.
    pub(crate) token: Signal,
    /// Sent by `cancel`, and never taken back.
    pub(crate) cancel: Signal,
    /// A [`Reason`]: what it waits for, for dumps.
    pub(crate) reason: AtomicU8,

    /// Its number, which no other fiber of the process has.
    pub(crate) id: AtomicU64,
    /// Counted references: the fiber's own, and those of handles.
    pub(crate) references: AtomicU32,
    /// [`FINISHED`], [`AWAITED`], [`DETACHED`], [`STORED`], [`PINNED`].
    pub(crate) join: AtomicU32,
    /// Its tag in the parking lot: see [`crate::wait::lot`].
    pub(crate) tag: Cell<u32>,
    /// [`FREE`] or [`ALIVE`].
    pub(crate) run: AtomicU8,
    /// A [`Reason`]: what the wait was for that a cancellation or a signal has cut short, until it is
    /// [asked](crate::hosted::HostedThread::take_cut). The fiber's own.
    pub(crate) cut: AtomicU8,
    /// The fiber's stack, or null; of a thread, its `Bed`.
    pub(crate) stack: AtomicPtr<FiberStack>,
    /// Its names, or null.
    pub(crate) names: AtomicPtr<Names>,
    /// The innermost time limit or shield it is within, or null: see [`crate::wait::limits`].
    pub(crate) limits: Place,
    /// What the fiber's function returned, or a box of it: see [`crate::handle::join`]. Before the start, its
    /// [closure](crate::fiber::unstarted).
    pub(crate) result: UnsafeCell<[usize; 2]>,
}

// Two cache lines. (Where a sanitizer is built in, contexts are larger.)
#[cfg(not(loom))]
const _: () = assert!(
    mem::size_of::<Header>() == 128 && mem::offset_of!(Header, id) == 64
        || mem::size_of::<ThreadContext>() > 16
);

// SAFETY: what several threads access at the same time is atomic. The other fields are the running fiber's,
// or are passed on by the orderings of the episode, of `join` or of a lock, as is said at each.
unsafe impl Sync for Header {}
// SAFETY: no field belongs to the thread that makes it.
unsafe impl Send for Header {}

/// A bit of [`Header::join`]: the fiber has ended, and its result is there.
pub(crate) const FINISHED: u32 = 1;
/// A bit of [`Header::join`]: a fiber or thread waits for the end, and must be unparked.
pub(crate) const AWAITED: u32 = 2;
/// A bit of [`Header::join`]: the handle was dropped.
pub(crate) const DETACHED: u32 = 4;
/// A bit of [`Header::join`]: the result, which needs a destructor, is there for the handle to take or drop.
pub(crate) const STORED: u32 = 8;
/// A bit of [`Header::join`]: the stack stays until the last counted reference is gone: see
/// [`crate::fiber::pin`].
pub(crate) const PINNED: u32 = 16;

/// A value of [`Header::run`]: the header is not in use.
pub(crate) const FREE: u8 = 0;
/// A value of [`Header::run`]: the header is a fiber's or thread's.
pub(crate) const ALIVE: u8 = 1;

impl Header {
    /// Whether the fiber's function has returned. What it wrote before is seen then.
    #[inline]
    pub(crate) fn has_finished(&self) -> bool {
        self.join.load(Ordering::Acquire) & FINISHED != 0
    }

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
            cut: AtomicU8::new(0),
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
        self.join.store(0, Ordering::Relaxed);
        // Released after `join`: see `pin::hold`.
        self.references.store(references, Ordering::Release);
        self.reason.store(Reason::NotStarted as u8, Ordering::Relaxed);
        self.cut.store(Reason::NotStarted as u8, Ordering::Relaxed);
        if let Some(name) = name {
            self.names.store(Names::given(name), Ordering::Release);
        }
        self.run.store(ALIVE, Ordering::Release);
    }
}

/// An uncounted reference to a header. Queues and lists have these, of fibers that have not ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FiberRef(NonNull<Header>);

// SAFETY: it is a shared reference to a `Header`, which is Sync.
unsafe impl Send for FiberRef {}
// SAFETY: as for Send.
unsafe impl Sync for FiberRef {}

impl FiberRef {
    pub(crate) fn new(header: &'static Header) -> Self {
        FiberRef(NonNull::from(header))
    }

    /// # Safety
    /// `pointer` comes from [`as_ptr`](Self::as_ptr).
    #[inline(always)]
    pub(crate) unsafe fn from_ptr(pointer: *mut u8) -> Self {
        // SAFETY: what `as_ptr` returns is not null.
        FiberRef(unsafe { NonNull::new_unchecked(pointer.cast()) })
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    /// The header. (Headers are never freed.)
    #[inline(always)]
    pub(crate) fn header(self) -> &'static Header {
        // SAFETY: headers are never unmapped, and only shared references to them are made.
        unsafe { self.0.as_ref() }
    }

    /// Fetches the header into the cache.
    #[inline(always)]
    pub(crate) fn prefetch_header(self) {
        arch::prefetch(self.as_ptr());
    }

    /// Fetches what the start of the fiber accesses of the header into the cache.
    #[cfg_attr(feature = "rejected-deque", expect(dead_code, reason = "it starts all in order"))]
    #[inline(always)]
    pub(crate) fn prefetch_to_start(self) {
        arch::prefetch(self.as_ptr());
        arch::prefetch(self.as_ptr().wrapping_add(64));
    }

    /// Gives back one counted reference; whether it was the last. If so, what was done under the others
    /// happens before this returns.
    #[inline]
    pub(crate) fn give_back(self) -> bool {
        if self.references.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // Acquires what the other decrements have released. (A fence would do so, too, but ThreadSanitizer
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

/// The link is that of the parking lot's lists: a fiber is taken out of them before it is made ready.
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
