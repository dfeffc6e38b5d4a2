//! What a carrier keeps for its next fibers, and of ended ones.

use carefree_ground::mapped::Mapped;

use crate::fiber::furnish::Furnished;
use crate::fiber::header::FiberRef;
use crate::fiber::names;
use crate::fiber::registry;
use crate::fiber::stock::Stock;
use crate::protocol::episode::Ticket;

/// What a carrier keeps. Its own thread alone accesses it: see `Carrier::with_local`.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) headers: registry::Local,
    pub(crate) stacks: Stock,
    /// Names that are to be freed in the carrier's own context.
    pub(crate) ended: names::Ended,
    /// Where waits go whose deadlines have passed, when they are looked for; empty otherwise.
    pub(crate) due: Mapped<(FiberRef, Ticket)>,
}

impl Local {
    /// Takes back a fiber's header that was cleared, and the stack that was pinned in it.
    pub(crate) fn take_back(&mut self, fiber: FiberRef, pinned: Option<Furnished>) {
        if let Some(pinned) = pinned {
            self.stacks.put(pinned);
        }
        self.headers.put(fiber);
    }
}
