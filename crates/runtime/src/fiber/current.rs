//! Which fiber, or plain thread, is the caller.

use std::cell::Cell;
use std::ptr;

use carefree_context::{arch, extent};

use crate::fiber::bed;
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::registry;

carefree_context::thread_word! {
    /// The header of the fiber that runs here; or of the plain thread, once it has waited. In own mode each
    /// fiber has this word to itself; in shared mode it is the carrier's, written at each switch.
    CURRENT, "carefree_runtime_current"
}

thread_local! {
    /// Gives back a thread's header when the thread ends.
    static THREAD: Cell<Option<ThreadHeader>> = const { Cell::new(None) };
}

/// Fetches what a switch to `fiber`, which is in a queue, reads first: the innermost frame on its stack, and
/// its `CURRENT`.
#[cfg_attr(feature = "rejected-deque", expect(dead_code, reason = "may be another's by then"))]
#[inline(always)]
pub(crate) fn prefetch_stack(fiber: FiberRef) {
    // SAFETY: a fiber in a queue has left its stack and is not entered before the caller, which has the
    // queue, takes it out: so its context is not written. Or it is the caller, which yields: the context is written
    // later, on this thread.
    let context = unsafe { &*fiber.context.get() };
    let sp = context.stack_pointer();
    for line in 0..3 {
        arch::prefetch(sp.wrapping_add(line * 64));
    }
    arch::prefetch(context.thread_pointer().wrapping_offset(CURRENT.offset()));
}

/// Notes which fiber runs here, or that none does.
#[inline(always)]
pub(crate) fn set_current(fiber: Option<FiberRef>) {
    CURRENT.set(fiber.map_or(ptr::null_mut(), FiberRef::as_ptr));
    let limits = fiber.map_or(ptr::null(), |fiber| &raw const fiber.header().limits);
    // SAFETY: headers are never unmapped, and the fiber writes `limits` of its own header only while it
    // runs here.
    unsafe { extent::set_place(limits) };
}

/// The calling fiber, or the calling thread if it has a header already.
#[inline(always)]
pub(crate) fn try_current() -> Option<FiberRef> {
    let current = CURRENT.get();
    // SAFETY: only `set_current` writes this variable, and what it writes is from `as_ptr`.
    (!current.is_null()).then(|| unsafe { FiberRef::from_ptr(current) })
}

/// The calling fiber; `None` on a plain thread and in a carrier's own context.
#[inline(always)]
pub(crate) fn current_fiber() -> Option<FiberRef> {
    try_current().filter(|me| me.kind.get() == Kind::Fiber)
}

/// Whether the caller is a fiber amid the runtime's own code: an allocator of the program's that calls Carefree.
#[inline(always)]
pub(crate) fn is_amid() -> bool {
    current_fiber().is_some_and(|me| me.plain.get() != 0)
}

/// Whether the caller is a fiber, or a thread that was started in place of one.
pub(crate) fn is_spawned() -> bool {
    try_current().is_some_and(|me| me.kind.get() == Kind::Fiber || bed::is_spawned(me))
}

/// The calling fiber or thread; a thread gets a header if it has none.
#[inline(always)]
pub(crate) fn current() -> FiberRef {
    try_current().unwrap_or_else(become_known)
}

/// Whether the caller is a fiber that may park here: one read of a thread-local, and one of the
/// fiber's header if it is a fiber.
///
/// For functions that stand in for libc's blocking calls. It is `false` on plain threads; and on a fiber
/// while the runtime's own code runs on its stack, whose calls of libc (for an allocator's lock, say) must
/// not lead back into the scheduler.
///
/// ```
/// use carefree_runtime::{run, wait::on_fiber};
/// assert!(!on_fiber());
/// assert!(run(on_fiber));
/// ```
#[inline(always)]
pub fn on_fiber() -> bool {
    try_current().is_some_and(|me| me.plain.get() == 0)
}

/// Runs `f` on the caller's stack. What `f` calls of libc is libc's own, and blocks the carrier.
///
/// For short code of the runtime's that must not be interrupted by a switch, but calls code of others, as a
/// rule the allocator. `f` must not park.
#[inline]
pub fn without_parking<T>(f: impl FnOnce() -> T) -> T {
    struct Leave(FiberRef);
    impl Drop for Leave {
        #[inline]
        fn drop(&mut self) {
            self.0.plain.set(self.0.plain.get() - 1);
        }
    }
    // In the carrier's own context and on plain threads, calls are plain anyway.
    let Some(me) = current_fiber() else { return f() };
    me.plain.set(me.plain.get() + 1);
    let _leave = Leave(me);
    f()
}

/// A thread's counted reference to its own header.
struct ThreadHeader(FiberRef);

impl Drop for ThreadHeader {
    fn drop(&mut self) {
        // SAFETY: what is still in the list lies in frames of coroutines that are suspended.
        unsafe { extent::abandon(&self.0.header().limits) };
        set_current(None);
        if self.0.give_back() {
            // Returns no stack: none is pinned in a thread's header.
            registry::clear(self.0);
            registry::put(self.0);
        }
    }
}

/// Gives the calling thread a header.
#[cold]
fn become_known() -> FiberRef {
    let header = registry::thread()
        .unwrap_or_else(|error| panic!("no memory to let a thread wait: {error}"));
    bed::of(header).begin(false);
    let standard = std::thread::current();
    header.begin(Kind::Thread, registry::number(), standard.name().map(Box::from), 1);
    header.note_standard(standard);
    adopt(header);
    header
}

/// Makes `header` that of the calling thread, which takes over one counted reference.
pub(crate) fn adopt(header: FiberRef) {
    header.carrier.set(ptr::null());
    set_current(Some(header));
    // If the thread has run its destructors already, the header is never given back.
    let _ = THREAD.try_with(|slot| slot.set(Some(ThreadHeader(header))));
}
