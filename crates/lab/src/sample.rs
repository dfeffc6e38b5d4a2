//! One sample: its orders, and what one process did.
//!
//! A sample has a process of its own, so that none starts on the warm stacks, the grown heap or
//! the high-water mark of another. The lab starts it with its orders, a [`Trial`], as arguments;
//! it prints one line of JSON, an [`Answer`], and ends. `docs/targets.md` has the protocol.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fetch::course;
use crate::memory::Memory;
use crate::metric::{self, Figure, Quantity};
use crate::parameters::Parameters;
use crate::role::Role;
use crate::workload::Workload;

/// A sample's orders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Trial {
    /// Whose unit it is.
    pub runtime: String,
    /// That runtime's version.
    pub version: String,
    /// What runs, by the runtime's own name for it.
    pub unit: String,
    /// Which side of the comparison that stands on.
    pub role: Role,
    /// Whether each of its switches is one of the kernel's.
    pub kernel: bool,
    /// A fingerprint of the program that takes the sample: another program's samples are none of
    /// this one's.
    pub program: String,
    /// What is measured.
    pub workload: Workload,
    /// How large it is.
    pub parameters: Parameters,
    /// Rounds before those that count, for runtimes that compile as they go.
    pub warmup: u64,
    /// The core to stay on, if the sample is pinned.
    pub pin: Option<usize>,
}

impl Trial {
    /// The orders as arguments, `key=value`.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("unit={}", self.asked_unit()),
            format!("workload={}", self.workload),
            format!("rounds={}", self.parameters.rounds()),
            format!("warmup={}", self.warmup),
            format!("phases={}", u8::from(self.weighs())),
        ];
        let others = self.parameters.iter().filter(|(name, _)| *name != "rounds");
        arguments.extend(others.map(|(name, value)| format!("{name}={value}")));
        arguments
    }

    /// The unit by the word that its program knows. (In `fetch` the name that records have tells
    /// of the connections as well.)
    pub(crate) fn asked_unit(&self) -> &str {
        match self.workload {
            Workload::Fetch => course::asked_unit(&self.unit),
            _ => &self.unit,
        }
    }

    /// Whether memory is measured, and the program is to stop for it.
    pub fn weighs(&self) -> bool {
        let of_memory =
            |figure: &Figure| figure.value.is_some() && figure.metric.quantity == Quantity::Bytes;
        metric::of(self.workload).any(of_memory)
    }
}

impl fmt::Display for Trial {
    /// `ruby 3.3.8 thread alloc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.runtime, self.version, self.unit, self.workload)
    }
}

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
    /// Times it did so although the thread could have gone on.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The process it ran in, which ran nothing else.
    pub process: u32,
    /// Units it ran in each round.
    #[serde(skip)]
    pub units: u64,
    /// Switches the units were asked to make, over all rounds.
    pub switches_asked: u64,
    /// Switches they made: as the program counted, and of the kernel's threads no more than the
    /// kernel counted.
    pub switches_made: u64,
    /// Times the kernel took a thread of this process off its core because it waited.
    pub voluntary: u64,
    /// Times it did so although the thread could have gone on. A thread that yields to another is
    /// counted here, and so is one whose time was up.
    pub involuntary: u64,
    /// Processor time in the program, nanoseconds.
    pub user_ns: u64,
    /// Processor time in the kernel, nanoseconds.
    pub system_ns: u64,
    /// How long each round took.
    pub rounds: Vec<Round>,
    /// What the first round took of memory, in workloads that measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
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
    /// What the program said and the lab does not know.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Sample {
    /// The switches a rate may be quoted on: no more than were asked for, none that was not made.
    pub fn switches_counted(&self) -> u64 {
        self.switches_made.min(self.switches_asked).max(1)
    }

    /// What the crowd took of memory. A crowd that warmed the process up has left it a larger heap:
    /// what the units add to that is not what they take.
    pub(crate) fn crowd_memory(&self) -> Option<&Memory> {
        self.memory.as_ref().filter(|_| self.warmup.is_none())
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
