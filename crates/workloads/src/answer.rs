//! What a sample's process prints last. `docs/targets.md` has the protocol.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
        // A program may say anything.
        self.create_ns.saturating_add(self.run_ns)
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
