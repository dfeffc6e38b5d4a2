//! Glances at fibers, and at threads that wait for them.

use std::fmt;

use carefree_context::stack::{self, StackInfo};

use crate::fiber::bed;
use crate::fiber::current;
use crate::fiber::furnish;
use crate::fiber::header::{ALIVE, FiberRef, Kind};
use crate::fiber::registry;
use crate::inspect::carriers::CarrierGlance;
use crate::protocol::reason::Reason;
use crate::protocol::sync::Ordering;

/// A fiber, or a thread that waits as fibers do, by its header. The header may become that of another:
/// [`is`](Self::is) tells, by the number.
#[derive(Clone, Copy, Debug)]
pub struct FiberGlance(FiberRef);

/// Calls `visit` for each fiber that has not been forgotten, and each thread that has waited as fibers
/// do, in no order. The registry of headers is locked meanwhile: `visit` must neither allocate nor wait.
pub fn for_each_fiber(mut visit: impl FnMut(FiberGlance)) {
    registry::for_each_alive(|fiber| visit(FiberGlance(fiber)));
}

impl FiberGlance {
    /// The number of its [`ThreadId`](crate::ThreadId).
    pub fn number(self) -> u64 {
        self.0.id.load(Ordering::Relaxed)
    }

    /// Whether the header is in use, and that of fiber `number`.
    pub fn is(self, number: u64) -> bool {
        self.0.run.load(Ordering::Acquire) == ALIVE && self.number() == number
    }

    /// Whether it is a thread: a plain one, or one in place of a fiber.
    pub fn is_thread(self) -> bool {
        self.0.episode.is_of_thread() || self.0.kind.get() == Kind::Thread
    }

    /// Whether the program spawned it here: false for a plain thread.
    pub fn is_spawned(self) -> bool {
        self.0.kind.get() == Kind::Fiber || bed::is_spawned(self.0)
    }

    /// Whether it waits, and nothing has ended the wait yet.
    pub fn is_waiting(self) -> bool {
        self.0.episode.is_waiting()
    }

    /// What it waits for; else that it runs, or has not begun to.
    pub fn reason(self) -> Reason {
        match Reason::from_code(self.0.reason.load(Ordering::Relaxed)) {
            // The reason stays when the wait has been ended, until the fiber goes on.
            reason if self.is_waiting() || reason == Reason::NotStarted => reason,
            _ => Reason::Runs,
        }
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(self) -> bool {
        self.0.cancel.peek()
    }

    /// Whether its function has returned. (A handle to it has been neither joined nor dropped then.)
    pub fn has_ended(self) -> bool {
        self.0.has_finished()
    }

    /// Writes the name that fiber `number` was given, with `before` and `after` around it; nothing if it
    /// has none, or if the header is another's by now.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_name(
        self,
        number: u64,
        [before, after]: [&str; 2],
        out: &mut impl fmt::Write,
    ) -> fmt::Result {
        self.0.write_name(number, [before, after], out)
    }
}

/// The fiber that runs on `carrier` and on the stack that begins at `base`, and its number.
pub fn fiber_on(carrier: CarrierGlance<'_>, base: usize) -> Option<(FiberGlance, u64)> {
    let mut found = None;
    for_each_fiber(|fiber| {
        let header = fiber.0;
        let carriers = header.carrier.get() as usize == carrier.address();
        if header.kind.get() != Kind::Fiber || !carriers || fiber.is_waiting() {
            return;
        }
        // Its record is not read, for the stack may have been unmapped by now.
        let own = header.stack.load(Ordering::Relaxed) as usize;
        if stack::find(own).is_some_and(|own| own.base == base) {
            found = Some((fiber, fiber.number()));
        }
    });
    found
}

/// The fiber whose code the calling thread runs, if `stack_pointer` is on the fiber's own stack, and that
/// stack. May be called by a signal handler, of whatever it has interrupted.
pub fn running_at(stack_pointer: usize) -> Option<(FiberGlance, StackInfo)> {
    // Of the fiber or of the carrier, whichever's thread pointer is in force just now: between two
    // fibers it does not fit the stack.
    let fiber = current::try_current().filter(|me| me.kind.get() == Kind::Fiber)?;
    let found = stack::find(stack_pointer)?;
    let own = fiber.stack.load(Ordering::Relaxed);
    // SAFETY: the fiber runs on this thread, which the caller holds up, so it is alive and has a stack.
    if own.is_null() || unsafe { furnish::base_of(own) } != found.base {
        return None;
    }
    (!found.is_guard(stack_pointer)).then_some((FiberGlance(fiber), found))
}
