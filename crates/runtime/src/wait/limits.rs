//! The time limits that cut a fiber's waits short, and the shields that defer them.
//!
//! Each limit and shield lies in the frame of the call that set it. They are linked as [`Extent`]s, which
//! takes those of a coroutine out of force while it is suspended.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use carefree_context::extent::Extent;
use carefree_context::stack;

use crate::carrier::clock::{self, NEVER};
use crate::fiber::current::try_current;
use crate::fiber::furnish;
use crate::fiber::header::{FiberRef, Kind as FiberKind};

/// A time limit, or a shield.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Limit {
    /// The first field: a reference to it is one to the limit.
    extent: Extent,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Time {
        /// When it is over.
        at: u64,
        /// Whether a call has told its caller that this limit has cut it short.
        told: Cell<bool>,
    },
    Shield,
}

impl Limit {
    /// A time limit.
    pub(crate) fn until(at: u64) -> Limit {
        Limit { extent: Extent::new(), kind: Kind::Time { at, told: Cell::new(false) } }
    }

    /// A shield: cancellation, and the time limits that it is within, are deferred until it ends.
    pub(crate) fn shield() -> Limit {
        Limit { extent: Extent::new(), kind: Kind::Shield }
    }

    /// Runs `f` within this limit. `me` is the caller.
    pub(crate) fn during<T>(&self, me: FiberRef, f: impl FnOnce() -> T) -> T {
        /// Takes it out of force, also when `f` panics.
        struct End<'a>(&'a Extent);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                // SAFETY: this frame has put it in force; `f`, and all that it put in force, has ended.
                unsafe { self.0.end() };
            }
        }
        // SAFETY: `self` is borrowed until this frame ends, and `End` takes it out of force before that.
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
    if stack.is_null() {
        // The process's first thread, as a fiber: coroutines have stacks of the runtime's.
        return stack::find((&raw const *limit) as usize).is_none();
    }
    // SAFETY: `me` is the calling fiber, so it is alive and has its stack.
    let base = unsafe { furnish::base_of(stack) };
    // Frames lie below the stack's record.
    (base..stack as usize).contains(&((&raw const *limit) as usize))
}

/// Calls `f` with all limits and shields that `me` is within, innermost first.
fn for_each(me: FiberRef, mut f: impl FnMut(&Limit)) {
    let mut next = me.limits.get();
    // SAFETY: an extent in force lies in a frame of `me`'s, or of a coroutine's that it runs, that has not
    // ended.
    while let Some(extent) = unsafe { next.as_ref() } {
        if !extent.is_boundary() {
            // SAFETY: all extents but boundaries are put in force by `during`, as the first fields of
            // limits.
            f(unsafe { &*next.cast::<Limit>() });
        }
        next = extent.outer();
    }
}

/// What may cut a wait short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    /// When the first time limit is over: [`NEVER`] without one.
    pub(crate) until: u64,
    /// Whether cancellation is deferred. So are the limits outside the shield, which `until` leaves out.
    pub(crate) shielded: bool,
}

impl InForce {
    /// Where there is neither a limit nor a shield.
    pub(crate) const NOTHING: InForce = InForce { until: NEVER, shielded: false };
}

/// What may cut a wait of `me`, the caller, short.
#[inline]
pub(crate) fn of(me: FiberRef) -> InForce {
    if me.limits.get().is_null() { InForce::NOTHING } else { look(me, |_| {}) }
}

/// [`of`], which calls `f` with each time limit that counts.
#[cold]
fn look(me: FiberRef, mut f: impl FnMut(&Limit)) -> InForce {
    let mut found = InForce::NOTHING;
    for_each(me, |limit| match limit.kind {
        _ if found.shielded => {}
        Kind::Time { at, .. } => {
            found.until = found.until.min(at);
            f(limit);
        }
        Kind::Shield => found.shielded = true,
    });
    found
}

/// Marks the limits that have passed, those that passed first, because a call of `me` reports to its caller
/// that it was cut short.
#[cold]
fn tell(me: FiberRef) {
    let earliest = of(me).until;
    if earliest > clock::now() {
        return;
    }
    look(me, |limit| {
        if let Kind::Time { at, told } = &limit.kind {
            if *at <= earliest {
                told.set(true);
            }
        }
    });
}

/// Notes that a call of the running fiber tells its caller that a time limit has cut it short. The
/// [`timeout`](crate::timeout()) that was over first returns `Err` then.
///
/// For calls that are built on [`park`](crate::wait::park::park) and
/// [`operation`](crate::wait::operation). Such a call may have something to return even if a wait of its
/// own was cut short: then the `timeout` is to return that, too. So the waits themselves note nothing. A
/// call does so once it has nothing else to return.
#[cold]
pub fn tell_timed_out() {
    if let Some(me) = try_current() {
        tell(me);
    }
}
