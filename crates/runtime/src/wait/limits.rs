//! What limits a fiber's waits: the time limits and the shields that it is within.
//!
//! Each lies in the frame that set it, as an [`Extent`]: so those of a coroutine are out of force while it
//! is suspended.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use carefree_context::extent::Extent;

use crate::carrier::clock::{self, NEVER};
use crate::fiber::current::try_current;
use crate::fiber::furnish;
use crate::fiber::header::{FiberRef, Kind as FiberKind};

/// A time limit, or a shield.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Limit {
    /// First, so that the list's extents are limits.
    extent: Extent,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Time {
        /// When it ends.
        at: u64,
        /// A call has told its caller that it was cut short by it.
        told: Cell<bool>,
    },
    Shield,
}

impl Limit {
    /// A time limit.
    pub(crate) fn until(at: u64) -> Limit {
        Limit { extent: Extent::new(), kind: Kind::Time { at, told: Cell::new(false) } }
    }

    /// Defers cancellation and time limits.
    pub(crate) fn shield() -> Limit {
        Limit { extent: Extent::new(), kind: Kind::Shield }
    }

    /// Runs `f`, which is called by `me`, within it.
    pub(crate) fn during<T>(&self, me: FiberRef, f: impl FnOnce() -> T) -> T {
        /// Takes it out of force, also when `f` panics.
        struct End<'a>(&'a Extent);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                // SAFETY: put in force by this frame, whose callees have ended.
                unsafe { self.0.end() };
            }
        }
        // SAFETY: `End` takes it out of force in this frame, which has it borrowed until then.
        unsafe { self.extent.begin(!is_on_own_stack(me, self)) };
        let _end = End(&self.extent);
        f()
    }

    /// Whether a call has told its caller that it was cut short by this time limit.
    pub(crate) fn is_told(&self) -> bool {
        matches!(&self.kind, Kind::Time { told, .. } if told.get())
    }
}

/// Whether a limit lies on the stack of the fiber itself.
fn is_on_own_stack(me: FiberRef, limit: &Limit) -> bool {
    if me.kind.get() != FiberKind::Fiber {
        return false;
    }
    let stack = me.stack.load(Ordering::Relaxed);
    // SAFETY: a fiber that runs has its stack.
    let base = unsafe { furnish::base_of(stack) };
    // Frames lie beneath what is known of the stack.
    (base..stack as usize).contains(&((&raw const *limit) as usize))
}

/// Calls `f` with all that `me` is within, innermost first.
fn for_each(me: FiberRef, mut f: impl FnMut(&Limit)) {
    let mut next = me.limits.get();
    // SAFETY: extents in force lie in frames that are there.
    while let Some(extent) = unsafe { next.as_ref() } {
        if !extent.is_boundary() {
            // SAFETY: nothing else of this process's puts extents in force, and an extent is a limit's
            // first field.
            f(unsafe { &*next.cast::<Limit>() });
        }
        next = extent.outer();
    }
}

/// Whether waits of the fiber that runs here may be cut short, and when they are.
#[inline]
pub(crate) fn of(me: FiberRef) -> Option<u64> {
    if me.limits.get().is_null() { Some(NEVER) } else { look(me) }
}

#[cold]
fn look(me: FiberRef) -> Option<u64> {
    let mut earliest = Some(NEVER);
    for_each(me, |limit| match limit.kind {
        Kind::Time { at, .. } => earliest = earliest.map(|earliest| earliest.min(at)),
        Kind::Shield => earliest = None,
    });
    earliest
}

/// A call of `me` tells its caller that it was cut short: by the earliest limit, if that has ended.
#[cold]
fn tell(me: FiberRef) {
    let Some(earliest) = of(me).filter(|&at| at <= clock::now()) else { return };
    for_each(me, |limit| {
        if let Kind::Time { at, told } = &limit.kind {
            if *at <= earliest {
                told.set(true);
            }
        }
    });
}

/// Takes note that a call of the running fiber tells its caller that it was cut short by a limit: every
/// [`timeout`](crate::timeout()) that ends at the limit's time returns `Err`.
///
/// For calls that are built on [`park`](crate::wait::park::park) and [`operation`](crate::wait::operation): a wait that was
/// cut short is not the end of a call that has something to return all the same. So the waits do not
/// take note themselves; the call does, when nothing but the limit is left to be told.
#[cold]
pub fn tell_timed_out() {
    if let Some(me) = try_current() {
        tell(me);
    }
}
