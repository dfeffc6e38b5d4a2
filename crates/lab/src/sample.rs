//! One sample: what its process did.
//!
//! A sample has a process of its own, so that none starts on the warm stacks, the grown heap or
//! the high-water mark of another. The lab passes it its orders, a [`Trial`](crate::trial::Trial),
//! as arguments; the process prints one line of JSON, an [`Answer`], and ends. `docs/targets.md` has
//! the protocol.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::memory::Memory;

/// What a sample's process prints last: its figures, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The work was done.
    Sample(Box<Account>),
    /// It could not be done.
    Failure(Failure),
}

/// What a program says it did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// Units that ran to their end in each round.
    pub units: u64,
    /// Switches the units were asked to make, over all rounds.
    pub switches_asked: u64,
    /// Switches they made, as the program counted.
    pub switches_made: u64,
    /// How long each round took.
    pub rounds: Vec<Round>,
    /// Times the kernel took a thread of the process off its core because it waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voluntary: Option<u64>,
    /// Times it did so although the thread could have gone on: the thread yielded, or its time
    /// slice was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub involuntary: Option<u64>,
    /// Processor time in the program, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_ns: Option<u64>,
    /// Processor time in the kernel, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ns: Option<u64>,
    /// The rounds that came before those that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// What the garbage collector did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gc: Option<Collector>,
    /// What else was counted; each name ends in its unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// What a reader of the figures should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the lab does not know.
    #[serde(flatten)]
    pub more: Map<String, Value>,
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
        self.account.switches_made.min(self.account.switches_asked).max(1)
    }

    /// What the crowd took of memory; `None` after a warm-up, which leaves a larger heap: what the
    /// units add to that is not what they take.
    pub(crate) fn crowd_memory(&self) -> Option<&Memory> {
        self.memory.as_ref().filter(|_| self.account.warmup.is_none())
    }
}

/// Rounds that are no figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmup {
    /// How many.
    pub rounds: u64,
    /// How long they took together, nanoseconds.
    pub ns: u64,
}

/// A garbage collector, during the rounds that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collector {
    /// Whether it was on.
    pub on: bool,
    /// How often it ran, where the runtime tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collections: Option<u64>,
    /// For how long, nanoseconds, where the runtime tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<u64>,
}

/// How long one round took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// From the first unit's creation until all were alive and waiting, nanoseconds.
    pub create_ns: u64,
    /// From their release until the last was joined, nanoseconds.
    pub run_ns: u64,
}

impl Round {
    /// Both parts, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.create_ns + self.run_ns
    }
}

/// Why a sample has no figures.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong.
    pub message: String,
    /// What would help, where that is known.
    #[serde(default)]
    pub advice: Option<String>,
}

impl Failure {
    /// A failure of which nothing is known that would help.
    pub fn new(message: impl ToString) -> Failure {
        Failure { message: message.to_string(), advice: None }
    }
}
