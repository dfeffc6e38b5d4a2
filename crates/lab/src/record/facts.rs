//! How a run went.

use serde::{Deserialize, Serialize};

use crate::noise::Load;
use crate::targets::Facts;

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    /// Fixes the order of the samples and the draws of the bootstrap.
    pub seed: u64,
    /// Samples asked for of each subject.
    pub samples: u32,
    /// Whether the crowds were the smaller ones of `--quick`.
    pub quick: bool,
    /// Whether every workload, and not `switch` alone, stayed on one core.
    pub pinned: bool,
    /// Whether it was broken off, or has not come to its end yet.
    pub interrupted: bool,
    /// What else the machine did.
    pub load: Load,
    /// The command line, as a person would type it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// What it is of, as a commit's name, where that was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The runtimes that took part, our own aside: what is to be said of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<Facts>,
}

impl RunFacts {
    /// Whether the command line names the number of samples.
    pub(crate) fn asks_samples(&self) -> bool {
        self.command.split_whitespace().any(|word| word.split('=').next() == Some("--samples"))
    }
}
