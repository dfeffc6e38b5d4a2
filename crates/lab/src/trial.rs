//! The orders of one sample.

use std::fmt;

use carefree_workloads::parameters::Parameters;
use carefree_workloads::role::Role;
use carefree_workloads::workload::Workload;
use serde::{Deserialize, Serialize};

use crate::connections;
use crate::hosted;
use crate::metric::{self, Figure, Quantity};

/// A sample's orders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Trial {
    /// The runtime of the unit.
    pub runtime: String,
    /// That runtime's version.
    pub version: String,
    /// What runs, by the runtime's own name for it.
    pub unit: String,
    /// Which side of the comparison that stands on.
    pub role: Role,
    /// Whether each of its switches is one of the kernel's.
    pub kernel: bool,
    /// A fingerprint of the program that takes the sample; samples of another program are not used
    /// again.
    pub program: String,
    /// A fingerprint of that program as it is written, whatever builds or runs it; none of our own.
    pub source: String,
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
            format!("unit={}", hosted::asked_unit(self.asked_unit())),
            format!("workload={}", self.workload),
            format!("rounds={}", self.parameters.rounds()),
            format!("warmup={}", self.warmup),
            format!("phases={}", u8::from(self.weighs())),
        ];
        if hosted::is_hosted(self.asked_unit()) {
            arguments.push("kernel=0".into());
        }
        let others = self.parameters.iter().filter(|(name, _)| *name != "rounds");
        arguments.extend(others.map(|(name, value)| format!("{name}={value}")));
        arguments
    }

    /// The unit by the name that its target gives it. (In `fetch` the name that records have tells
    /// of the connections as well.)
    pub(crate) fn asked_unit(&self) -> &str {
        match self.workload {
            Workload::Fetch => connections::asked_unit(&self.unit),
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
