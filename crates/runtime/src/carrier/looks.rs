//! What the monitor has seen of a carrier.

use crate::protocol::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What the monitor saw of a carrier at its last look. The monitor alone writes it.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// One more than the number of the carrier's switches; 0 before the first look.
    switches: AtomicU64,
    /// A fiber kept it.
    pub(crate) is_kept: AtomicBool,
    /// It had no processor since the look before.
    pub(crate) is_unscheduled: AtomicBool,
    /// The processor time of its thread, if that was up.
    pub(crate) time: AtomicU64,
    /// The processor time of its thread when it was first seen with that number of switches, or to spawn since.
    pub(crate) time_first: AtomicU64,
    /// How many fibers it had spawned.
    pub(crate) spawned: AtomicU64,
    /// Looks in a row that saw no switch, but more fibers spawned.
    pub(crate) spawning: AtomicU32,
}

impl Looks {
    /// At a look: notes the number of switches; returns whether it has changed since the last look.
    pub(crate) fn note_switches(&self, switches: u64) -> bool {
        self.switches.swap(switches + 1, Ordering::Relaxed) != switches + 1
    }

    /// Whether the last look saw another number of switches than this.
    pub(crate) fn saw_other_than(&self, switches: u64) -> bool {
        self.switches.load(Ordering::Relaxed) != switches + 1
    }
}
