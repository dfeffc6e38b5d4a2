//! What is in force for as long as a frame is on the stack: its *dynamic extent*.
//!
//! A time limit set by a function holds for all that the function calls. Such things are noted in a
//! list of [`Extent`]s, innermost first, each in the frame that it belongs to. A plain list would be wrong
//! for coroutines: one that is suspended within a limit leaves its frames, and its resumer, which goes on,
//! is not within that limit. So a coroutine takes its extents out of the list when it is suspended, and
//! puts them back, inside those of its resumer at that time, when it is resumed.
//!
//! What the extents mean is the business of the room above, which [says where](set_place) the running
//! fiber or thread keeps its list.
//!
//! # Which are the coroutine's own
//!
//! Only extents in frames of coroutines matter to a switch, and there are hardly ever any. So those
//! that do not lie on their fiber's own stack, and may lie on a coroutine's, are counted for the
//! whole process (`AWAY`), boundaries (see below) among them; as long as there are none, a switch
//! of coroutines asks for that number and nothing else.
//!
//! Otherwise a resumer that is within an extent puts a *boundary* into the list, in its own frame,
//! which names the coroutine that it resumes. All up to there are the coroutine's: its own, and
//! those of coroutines that it waits for. Where a coroutine hands over to another, the boundary is
//! the other's from then on. Without a boundary the list was empty when the coroutine was resumed,
//! or held extents on the fiber's own stack alone: then all are the coroutine's up to the first of
//! those.
//!
//! *The list is in order*: an extent that begins is innermost. When it ends it is innermost again, for
//! frames that were entered since are gone or belong to coroutines that are suspended.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::coroutine::Control;

/// Something in force while the frame runs in which it lies. For the first field of what says more.
#[derive(Debug)]
#[repr(C)]
pub struct Extent {
    outer: Cell<*const Extent>,
    /// Of a boundary: the control block of the coroutine that was resumed there.
    resumed: Cell<*const Control>,
    /// It may lie on the stack of a coroutine.
    away: Cell<bool>,
}

/// Extents in force that may lie on the stacks of coroutines. What a thread asks for are its own, so no
/// order among threads is needed.
static AWAY: AtomicUsize = AtomicUsize::new(0);

/// Whether a switch of coroutines must look after extents.
#[inline(always)]
pub(crate) fn are_away() -> bool {
    AWAY.load(Ordering::Relaxed) != 0
}

/// Where a fiber or thread keeps its innermost extent, or null.
pub type Place = Cell<*const Extent>;

thread_local! {
    /// The place of what runs here; null if nothing was ever in force.
    static PLACE: Cell<*const Place> = const { Cell::new(ptr::null()) };
}

/// Says where the list of what runs here is from now on; null for one that has none.
///
/// # Safety
/// The place is there, and written by nothing else, until another one is set.
#[inline(always)]
pub unsafe fn set_place(place: *const Place) {
    PLACE.set(place);
}

/// The list of what runs here, if it has one.
#[inline(always)]
fn place() -> Option<&'static Place> {
    // SAFETY: the caller of `set_place` has promised it; used at once.
    unsafe { PLACE.get().as_ref() }
}

/// The innermost extent, or null.
#[inline(always)]
fn innermost() -> *const Extent {
    place().map_or(ptr::null(), Cell::get)
}

impl Extent {
    /// One that is not in force.
    pub const fn new() -> Extent {
        Extent {
            outer: Cell::new(ptr::null()),
            resumed: Cell::new(ptr::null()),
            away: Cell::new(false),
        }
    }

    /// The next one further out, or null.
    pub fn outer(&self) -> *const Extent {
        self.outer.get()
    }

    /// Whether it is none but a boundary of a coroutine's.
    pub fn is_boundary(&self) -> bool {
        !self.resumed.get().is_null()
    }

    /// Puts it in force. `away`: it may lie on the stack of a coroutine.
    ///
    /// # Safety
    /// `away` is true if it does. There is a [place](set_place) for it. The extent is
    /// [ended](Self::end) before the calling frame is left and stays where it is until then, which is
    /// also how extents are nested.
    pub unsafe fn begin(&self, away: bool) {
        if away {
            AWAY.fetch_add(1, Ordering::Relaxed);
        }
        self.away.set(away);
        self.enter();
    }

    fn enter(&self) {
        if let Some(place) = place() {
            self.outer.set(place.get());
            place.set(self);
        }
    }

    fn leave(&self) {
        if let Some(place) = place() {
            debug_assert!(ptr::eq(place.get(), self), "extents end in the order of their frames");
            place.set(self.outer.get());
        }
    }

    /// Takes it out of force.
    ///
    /// # Safety
    /// It is in force, and the innermost one of the running fiber, thread or coroutine.
    pub unsafe fn end(&self) {
        self.leave();
        if self.away.get() {
            AWAY.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Default for Extent {
    fn default() -> Self {
        Extent::new()
    }
}

/// What a resumer puts into the list while it waits for a coroutine, if there is anything in it.
pub(crate) struct Boundary {
    extent: Extent,
    needed: Cell<bool>,
}

impl Boundary {
    pub(crate) fn new() -> Boundary {
        Boundary { extent: Extent::new(), needed: Cell::new(false) }
    }

    /// `coroutine` is about to be resumed.
    ///
    /// # Safety
    /// It [ends](Self::end) before the calling frame is left, and is not moved until then.
    pub(crate) unsafe fn begin(&self, coroutine: *const Control) {
        if !innermost().is_null() {
            self.needed.set(true);
            self.extent.resumed.set(coroutine);
            // Counted: what leaves from within must look for it even if, by then, there is nothing else
            // to look for in the process.
            // SAFETY: the caller's promise; there is a place, for something is in it.
            unsafe { self.extent.begin(true) };
        }
    }

    /// What was resumed is suspended, and has taken its extents along, or is complete.
    pub(crate) fn end(&self) {
        if self.needed.get() {
            // SAFETY: in force since `begin`, and the innermost again.
            unsafe { self.extent.end() };
        }
    }
}

/// The coroutine `from`, which has [detached](detach) its extents, hands over to `to`.
pub(crate) fn hand_over(from: *const Control, to: *const Control) {
    // SAFETY: extents in force lie in frames that are there.
    if let Some(extent) = unsafe { innermost().as_ref() } {
        if ptr::eq(extent.resumed.get(), from) {
            extent.resumed.set(to);
        }
    }
}

/// Takes the extents of the running coroutine out of the list; the innermost of them.
pub(crate) fn detach(coroutine: *const Control) -> *const Extent {
    let Some(place) = place() else { return ptr::null() };
    let first = place.get();
    let mut last: *const Extent = ptr::null();
    let mut next = first;
    // SAFETY: extents in force lie in frames that are there.
    while let Some(extent) = unsafe { next.as_ref() } {
        let own = extent.is_boundary() || extent.away.get();
        if !own || ptr::eq(extent.resumed.get(), coroutine) {
            break;
        }
        last = next;
        next = extent.outer.get();
    }
    place.set(next);
    // SAFETY: as above.
    let Some(last) = (unsafe { last.as_ref() }) else { return ptr::null() };
    last.outer.set(ptr::null());
    first
}

/// Puts back in the list what was [detached](detach) by the coroutine that was just resumed.
pub(crate) fn attach(first: *const Extent) {
    // SAFETY: the extents of a suspended coroutine lie in its frames.
    let (Some(place), Some(mut last)) = (place(), unsafe { first.as_ref() }) else { return };
    // SAFETY: as above.
    while let Some(outer) = unsafe { last.outer.get().as_ref() } {
        last = outer;
    }
    last.outer.set(place.get());
    place.set(first);
}
