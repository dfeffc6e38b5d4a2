//! A sample, as a record keeps it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Subject;

/// What one process measured, with its proof of the work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// What it is about.
    #[serde(flatten)]
    pub subject: Subject,
    /// Which side of the comparison the unit stands on: `fiber`, switched by its runtime, or
    /// `thread`, switched by the kernel. Where it is not told, the unit's name tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// When the run began that took it, as in its environment. Another run that uses it again
    /// leaves this as it is.
    pub run: String,
    /// Its place in that run's order, from 0.
    pub position: usize,
    /// The core it was kept on, if it was.
    pub pin: Option<usize>,
    /// A fingerprint of the program that took it ([`super::fingerprint`]): another program, and
    /// the sample is none of its.
    pub program: String,
    /// A fingerprint of that program as it is written, the same for each version of the runtime; none of our own
    /// program, nor in records of before the end of November 2026.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Values by metric.
    pub figures: BTreeMap<String, f64>,
    /// What the process said of its work: switches asked for and made, rounds, memory.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub proof: serde_json::Map<String, serde_json::Value>,
}

impl Reading {
    /// A whole number that the process said of its work.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.proof.get(name)?.as_u64()
    }
}
