//! State that is in force for as long as a frame is on the stack: its *dynamic extent*.
//!
//! A time limit set by a function holds for everything that the function calls. Such state is kept
//! in a list of [`Extent`]s, innermost first, each in the frame that it belongs to. A plain list
//! would be wrong for coroutines: a coroutine that is suspended within a limit leaves its frames,
//! and its resumer continues outside of that limit. So a coroutine takes its extents out of the
//! list when it is suspended, and puts them back, inside those of its resumer at that time, when it
//! is resumed.
//!
//! What an extent means is up to the crate above, which [tells](set_place) where the running fiber or
//! thread keeps its list.
//!
//! # Which extents are the coroutine's own
//!
//! Only extents in frames of coroutines matter to a switch, and they are rare. So extents that may
//! lie on a coroutine's stack are counted for the whole process (`AWAY`), boundaries (see below)
//! among them. As long as there are none, a switch of coroutines only reads that count.
//!
//! Otherwise a resumer that is within an extent puts a *boundary* into the list, in its own frame,
//! which names the coroutine that it resumes. All extents before the boundary are the coroutine's: its
//! own, and those of coroutines that it waits for. When a coroutine transfers to another, the boundary
//! becomes the other's. Without a boundary the list was empty when the coroutine was resumed,
//! or held extents on the fiber's own stack alone: then all extents before the first of those are the
//! coroutine's.
//!
//! *The list is in order*: an extent that begins is innermost. When it ends it is innermost again,
//! because frames that were entered since are gone or belong to coroutines that are suspended.
//!
//! # Coroutines of other crates
//!
//! These are suspended without a word to this crate. The extents in their frames stay in the list, in
//! force for the resumer, and end in an order of their own: while others have begun since, and even while
//! a coroutine of this crate, in which they began, is suspended with them. So an extent knows which word
//! points to it, and can leave the list wherever it is.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The identity of a coroutine: the address of its control block, which is never accessed through
/// this.
pub(crate) type CoroutineId = *const ();

/// State in force while the frame in which it lies is on the stack. It is to be the first field of
/// a type that says more.
#[derive(Debug)]
#[repr(C)]
pub struct Extent {
    outer: Cell<*const Extent>,
    /// The word that points to this extent while it is in force: the [`Place`] that has the list, or the
    /// `outer` of the next extent inwards.
    inner: Cell<*const Place>,
    /// In a boundary: the coroutine that was resumed there; else null.
    resumed: Cell<CoroutineId>,
    /// Whether it may lie on the stack of a coroutine.
    away: Cell<bool>,
}

/// The number of extents in force that may lie on the stacks of coroutines. A thread only relies on
/// having counted its own, so no order among threads is needed.
static AWAY: AtomicUsize = AtomicUsize::new(0);

/// Whether a switch of coroutines must move extents.
#[inline(always)]
pub(crate) fn are_away() -> bool {
    AWAY.load(Ordering::Relaxed) != 0
}

/// Where a fiber or thread keeps its innermost extent, or null.
pub type Place = Cell<*const Extent>;

crate::thread_word! {
    /// The [`Place`] of the running fiber or thread; null if it has none.
    PLACE, "carefree_context_place"
}

/// Sets where the running fiber or thread keeps its list; null if it has none.
///
/// # Safety
/// The place stays alive, and nothing else writes to it, until another one is set.
#[inline(always)]
pub unsafe fn set_place(place: *const Place) {
    PLACE.set(place.cast_mut().cast());
}

/// The place of the running fiber or thread, if it has one.
#[inline(always)]
fn place() -> Option<&'static Place> {
    // SAFETY: the word is null or the pointer that `set_place` was given last, which requires that place
    // to stay alive until another is set; callers use it at once.
    unsafe { PLACE.get().cast::<Place>().as_ref() }
}

/// The innermost extent, or null.
#[inline(always)]
fn innermost() -> *const Extent {
    place().map_or(ptr::null(), Cell::get)
}

impl Extent {
    /// An extent that is not in force.
    pub const fn new() -> Extent {
        Extent {
            outer: Cell::new(ptr::null()),
            inner: Cell::new(ptr::null()),
            resumed: Cell::new(ptr::null()),
            away: Cell::new(false),
        }
    }

    /// The next extent outwards, or null.
    pub fn outer(&self) -> *const Extent {
        self.outer.get()
    }

    /// Whether this is the boundary of a coroutine, not an extent of the crate above.
    pub fn is_boundary(&self) -> bool {
        !self.resumed.get().is_null()
    }

    /// Puts the extent in force. `away`: it may lie on the stack of a coroutine.
    ///
    /// # Safety
    /// `away` is true if it does lie on one. A [place](set_place) is set. The extent is not moved, and
    /// is [ended](Self::end) before the calling frame is left, by the same fiber or thread.
    pub unsafe fn begin(&self, away: bool) {
        if away {
            AWAY.fetch_add(1, Ordering::Relaxed);
        }
        self.away.set(away);
        if let Some(place) = place() {
            // SAFETY: what is in force lies in frames that have not been left, and so does this extent.
            unsafe {
                link(&self.outer, place.get());
                link(place, self);
            }
        }
    }

    /// Takes the extent out of force.
    ///
    /// # Safety
    /// It is in force.
    pub unsafe fn end(&self) {
        // SAFETY: the word is that of a place, which outlives what is in force, or lies in an extent that is
        // in force or detached, whose frame has not been left.
        if let Some(inner) = unsafe { self.inner.replace(ptr::null()).as_ref() } {
            // SAFETY: the next extent outwards is in force or detached as well, so its frame has not been left.
            unsafe { link(inner, self.outer.get()) };
        }
        if self.away.get() {
            AWAY.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Has `word` point to `extent`.
///
/// # Safety
/// `extent` is null or lies in a frame that has not been left.
unsafe fn link(word: &Place, extent: *const Extent) {
    word.set(extent);
    // SAFETY: as this function demands.
    if let Some(extent) = unsafe { extent.as_ref() } {
        extent.inner.set(word);
    }
}

/// Takes all extents out of the list at `place`, which is about to end: those of suspended coroutines of other crates,
/// which may end later, when the place is another thread's.
///
/// # Safety
/// They lie in frames that have not been left.
pub unsafe fn abandon(place: &Place) {
    let mut next = place.replace(ptr::null());
    // SAFETY: as this function demands.
    while let Some(extent) = unsafe { next.as_ref() } {
        extent.inner.set(ptr::null());
        next = extent.outer.replace(ptr::null());
    }
}

impl Default for Extent {
    fn default() -> Self {
        Extent::new()
    }
}

/// What a resumer puts into the list while it waits for a coroutine, unless the list is empty.
pub(crate) struct Boundary {
    extent: Extent,
    needed: Cell<bool>,
}

impl Boundary {
    pub(crate) fn new() -> Boundary {
        Boundary { extent: Extent::new(), needed: Cell::new(false) }
    }

    /// To be called before `coroutine` is resumed.
    ///
    /// # Safety
    /// The boundary is not moved, and [ends](Self::end) before the calling frame is left.
    pub(crate) unsafe fn begin(&self, coroutine: CoroutineId) {
        if !innermost().is_null() {
            self.needed.set(true);
            self.extent.resumed.set(coroutine);
            // Counted as away: a coroutine that leaves from within must look for the boundary even
            // if, by then, nothing else in the process is away.
            // SAFETY: there is a place, since the list is not empty. The boundary neither moves nor
            // outlives the frame until `end`.
            unsafe { self.extent.begin(true) };
        }
    }

    /// To be called when the resumed coroutine is suspended, and has taken its extents along, or is
    /// complete.
    pub(crate) fn end(&self) {
        if self.needed.get() {
            // SAFETY: in force since `begin`, and innermost again: extents that began since have
            // ended, or were detached.
            unsafe { self.extent.end() };
        }
    }
}

/// To be called when the coroutine `from`, which has [detached](detach) its extents, transfers to
/// `to`.
pub(crate) fn hand_over(from: CoroutineId, to: CoroutineId) {
    // SAFETY: extents in force lie in frames that have not been left.
    if let Some(extent) = unsafe { innermost().as_ref() } {
        if ptr::eq(extent.resumed.get(), from) {
            extent.resumed.set(to);
        }
    }
}

/// Takes the extents of the running coroutine out of the list and into `own`, which is empty.
pub(crate) fn detach(coroutine: CoroutineId, own: &Place) {
    let Some(place) = place() else { return };
    let first = place.get();
    let mut last: *const Extent = ptr::null();
    let mut next = first;
    // SAFETY: extents in force lie in frames that have not been left.
    while let Some(extent) = unsafe { next.as_ref() } {
        let is_own = extent.is_boundary() || extent.away.get();
        if !is_own || ptr::eq(extent.resumed.get(), coroutine) {
            break;
        }
        last = next;
        next = extent.outer.get();
    }
    // SAFETY: the last one visited by the loop, or null.
    let Some(last) = (unsafe { last.as_ref() }) else { return };
    // SAFETY: as in the loop: they lie in frames that have not been left.
    unsafe {
        link(place, next);
        link(own, first);
    }
    last.outer.set(ptr::null());
}

/// Puts the extents back in the list that the coroutine which was just resumed had [detached](detach).
pub(crate) fn attach(own: &Place) {
    let Some(place) = place() else { return };
    let first = own.get();
    // SAFETY: the extents lie in frames of the resumed coroutine, which have not been left.
    let Some(mut last) = (unsafe { first.as_ref() }) else { return };
    // SAFETY: as for the first; `detach` ended the list with null.
    while let Some(outer) = unsafe { last.outer.get().as_ref() } {
        last = outer;
    }
    // SAFETY: as above; and what is in force lies in frames that have not been left.
    unsafe {
        link(&last.outer, place.get());
        link(place, first);
    }
}
