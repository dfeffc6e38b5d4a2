//! One sample: what its process did.
//!
//! A sample has a process of its own, so that none starts on the warm stacks, the grown heap or
//! the high-water mark of another. The lab passes it its orders, a [`Trial`](crate::trial::Trial),
//! as arguments; the process prints one line of JSON, an [`Answer`](carefree_workloads::answer::Answer),
//! and ends. `docs/targets.md` has the protocol.

use carefree_workloads::answer::{Account, Failure};
use serde::Serialize;

use crate::memory::Memory;

/// A failure of a program that did not keep to the protocol.
pub(crate) fn astray(message: String) -> Failure {
    Failure { message, advice: Some("see docs/targets.md for what a program has to do".into()) }
}

/// What one process did, and what it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The process it ran in, which ran nothing else.
    pub process: u32,
    /// What the first round took of memory, in workloads that measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What the program says it did, checked. Counts that it left out are the lab's own; of the
    /// kernel's threads no more switches count than the kernel counted.
    #[serde(flatten)]
    pub account: Account,
}

impl Sample {
    /// The switches that a rate may rest on: those that were made, and no more than were asked for.
    pub fn switches_counted(&self) -> u64 {
        self.account.switches_made.min(self.account.switches_asked)
    }

    /// What the crowd took of memory; `None` after a warm-up, which leaves a larger heap: what the
    /// units add to that is not what they take.
    pub(crate) fn crowd_memory(&self) -> Option<&Memory> {
        self.memory.as_ref().filter(|_| self.account.warmup.is_none())
    }
}
