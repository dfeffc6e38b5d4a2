//! What is measured: the workloads, their sizes, and the figures each one yields.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::sample::Sample;
use crate::stats;

/// An experiment of the fiber-vs-thread benchmark. All of them run the same program (see
/// [`crate::unit`]) at different sizes; they differ in which part of it they time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Many units with two switches each: what it costs to have one, in time and memory.
    Alloc,
    /// Two units with many switches each, on one core: what it costs to switch.
    Switch,
    /// `alloc` with one switch, over and over in one process: what a warm start saves.
    Warm,
    /// A crowd of units with a hundred switches each, over and over: requests per second.
    Throughput,
    /// Many units parked at once: memory and nothing else.
    Parked,
    /// People who are fed bite by bite, a unit each: see [`crate::feed`].
    Feed,
    /// Some dozens of HTTP GETs at a time: see [`crate::fetch`].
    Fetch,
}

impl Workload {
    /// Every workload, in the order in which reports show them.
    pub const ALL: [Workload; 7] = [
        Workload::Alloc,
        Workload::Switch,
        Workload::Warm,
        Workload::Throughput,
        Workload::Parked,
        Workload::Feed,
        Workload::Fetch,
    ];

    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Alloc => "alloc",
            Workload::Switch => "switch",
            Workload::Warm => "warm",
            Workload::Throughput => "throughput",
            Workload::Parked => "parked",
            Workload::Feed => "feed",
            Workload::Fetch => "fetch",
        }
    }

    /// One line for `--help`.
    pub fn summary(self) -> &'static str {
        match self {
            Workload::Alloc => "10,000 units with 2 switches each: time and memory of a unit",
            Workload::Switch => "2 units with 10,000 switches each, on one core: time of a switch",
            Workload::Warm => {
                "10,000 units (1,000 threads) with 1 switch each, 10 times over: first and last time"
            }
            Workload::Throughput => "1,000 units with 100 switches each, 10 times over: units/s",
            Workload::Parked => "10,000 units parked at once: memory of a unit",
            Workload::Feed => "up to 2,048 people fed bite by bite, a unit each: total time",
            Workload::Fetch => "50 HTTP GETs from a server on this machine: time and memory",
        }
    }

    /// The sizes this workload runs at on `cores` cores.
    pub fn parameters(self, size: Size, cores: usize) -> Parameters {
        let (units, switches, rounds) = match (self, size) {
            (Workload::Alloc, Size::Full) => (10_000, 2, 1),
            (Workload::Switch, _) => (2, 10_000, 1),
            (Workload::Warm, Size::Full) => (10_000, 1, 10),
            (Workload::Throughput, Size::Full) => (1_000, 100, 10),
            (Workload::Parked, Size::Full) => (10_000, 1, 1),
            // Rounds stay as they are: "first and last of ten" is what `warm` means. The crowds
            // shrink, because it is the kernel's threads that would take minutes.
            (Workload::Alloc | Workload::Parked, Size::Quick) => (1_000, self.switches(), 1),
            (Workload::Warm, Size::Quick) => (500, 1, 10),
            (Workload::Throughput, Size::Quick) => (100, 100, 10),
            // The points of the sweep, and the ways to fetch, fill in theirs.
            (Workload::Feed | Workload::Fetch, _) => (1, 0, 1),
        };
        Parameters { units, switches, rounds, cores, orders: BTreeMap::new() }
    }

    /// How many of the kernel's threads it runs with at most. Ten rounds of 10,000 would be half
    /// a minute to three minutes for one sample: docs/methodology.md says what the difference is.
    pub(crate) fn most_threads(self) -> u64 {
        if self == Workload::Warm { 1_000 } else { u64::MAX }
    }

    fn switches(self) -> u64 {
        if self == Workload::Alloc { 2 } else { 1 }
    }

    /// Whether its units run the gated program of [`crate::unit`].
    pub fn is_gated(self) -> bool {
        match self {
            Workload::Alloc
            | Workload::Switch
            | Workload::Warm
            | Workload::Throughput
            | Workload::Parked => true,
            Workload::Feed | Workload::Fetch => false,
        }
    }

    /// Whether runtimes that compile as they go are warmed up for it. `warm` shows the warming
    /// itself, and `parked` measures memory, which a heap that has grown before would hide.
    pub(crate) fn warms_up(self) -> bool {
        !matches!(self, Workload::Warm | Workload::Parked)
    }

    /// Whether its program talks to a server of the lab's.
    pub(crate) fn needs_network(self) -> bool {
        self == Workload::Fetch
    }

    /// Whether the workload runs on one core even where more are to be had. A switch is defined
    /// only between units that share a core: two threads on two cores yield to nobody.
    pub fn is_pinned(self) -> bool {
        self == Workload::Switch
    }

    /// The figures this workload yields, in the order in which records list them.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Workload::Alloc => {
                &[Metric::TimePerUnit, Metric::MemoryPerUnit, Metric::WholeMemoryPerUnit]
            }
            Workload::Switch => &[Metric::TimePerSwitch, Metric::SwitchesPerSecond],
            Workload::Warm => &[Metric::FirstTimePerUnit, Metric::LastTimePerUnit],
            Workload::Throughput => &[Metric::Time, Metric::UnitsPerSecond],
            Workload::Parked => &[Metric::MemoryPerUnit, Metric::WholeMemoryPerUnit],
            Workload::Feed => &[Metric::Time],
            // What it allocates, each program says where its runtime tells.
            Workload::Fetch => &[Metric::Time, Metric::RequestsPerSecond, Metric::PeakMemory],
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    /// Finds a workload by its name.
    ///
    /// # Errors
    /// One line that names the right ones.
    fn from_str(name: &str) -> Result<Workload, String> {
        Workload::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
            .ok_or_else(|| unknown("workload", name, Workload::ALL.map(Workload::name)))
    }
}

/// The line that answers a wrong name with the right ones.
pub(crate) fn unknown<const N: usize>(kind: &str, name: &str, right: [&str; N]) -> String {
    format!("there is no {kind} '{name}'; the {kind}s are {}", list(&right))
}

/// `a, b and c`.
pub(crate) fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// How large the workloads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As published: the sizes of the tables to compare with.
    Full,
    /// Smaller crowds, for a look within a minute.
    Quick,
}

/// The sizes one sample ran at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Parameters {
    /// Units (coroutines, fibers or threads) alive at once.
    pub units: u64,
    /// Switches each unit makes; the first of them waits until all units are alive.
    pub switches: u64,
    /// How often the whole was repeated in one process; 1 is left out of records.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub rounds: u64,
    /// Cores the sample was allowed to use.
    pub cores: usize,
    /// What else a workload orders, by the protocol's keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub orders: BTreeMap<String, String>,
}

impl Parameters {
    /// All switches a sample asks for, over all units and rounds.
    pub fn switches_asked(&self) -> u64 {
        self.units * self.switches * self.rounds
    }
}

fn once() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_once(rounds: &u64) -> bool {
    *rounds == 1
}

/// A figure that a workload yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Nanoseconds to create a unit, let it make its switches, end and join it.
    TimePerUnit,
    /// Bytes of the process's own memory a unit takes.
    MemoryPerUnit,
    /// Bytes of all memory a unit takes, the kernel's stacks, page tables and objects included.
    WholeMemoryPerUnit,
    /// Nanoseconds from one unit going on to the next one going on.
    TimePerSwitch,
    /// Switches made in a second.
    SwitchesPerSecond,
    /// `TimePerUnit` of the first round in a fresh process.
    FirstTimePerUnit,
    /// `TimePerUnit` of the last round in that process.
    LastTimePerUnit,
    /// Milliseconds the last round took; in `fetch`, where rounds are short, the median one.
    Time,
    /// Units finished in a second of the last round.
    UnitsPerSecond,
    /// Requests answered in a second of the median round.
    RequestsPerSecond,
    /// Bytes of the process's own memory when there was most of it, the runtime's included.
    PeakMemory,
}

impl Metric {
    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Metric::TimePerUnit => "time_per_unit",
            Metric::MemoryPerUnit => "memory_per_unit",
            Metric::WholeMemoryPerUnit => "whole_memory_per_unit",
            Metric::TimePerSwitch => "time_per_switch",
            Metric::SwitchesPerSecond => "switches_per_second",
            Metric::FirstTimePerUnit => "first_time_per_unit",
            Metric::LastTimePerUnit => "last_time_per_unit",
            Metric::Time => "time",
            Metric::UnitsPerSecond => "units_per_second",
            Metric::RequestsPerSecond => "requests_per_second",
            Metric::PeakMemory => "peak_memory",
        }
    }

    /// The unit its values are in.
    pub fn value_unit(self) -> &'static str {
        match self {
            Metric::TimePerUnit
            | Metric::TimePerSwitch
            | Metric::FirstTimePerUnit
            | Metric::LastTimePerUnit => "ns",
            Metric::Time => "ms",
            Metric::MemoryPerUnit | Metric::WholeMemoryPerUnit | Metric::PeakMemory => "bytes",
            Metric::SwitchesPerSecond => "switches/s",
            Metric::UnitsPerSecond => "units/s",
            Metric::RequestsPerSecond => "requests/s",
        }
    }

    /// The value of this figure in one sample of `workload`, or `None` where the sample did not
    /// measure it.
    pub fn value(self, workload: Workload, sample: &Sample) -> Option<f64> {
        let units = sample.parameters.units as f64;
        let first = sample.rounds.first()?;
        let last = sample.rounds.last()?;
        // `parked` is the state of rest at the gate; `alloc` is the high-water mark of the whole.
        let at_rest = workload == Workload::Parked;
        let per_unit = |bytes: u64| bytes as f64 / units;
        // A crowd that warmed the process up has left it a larger heap: what the units add to that
        // is not what they take.
        let memory = || sample.memory.as_ref().filter(|_| sample.warmup.is_none());
        let median_ns = || {
            let times: Vec<f64> =
                sample.rounds.iter().map(|round| round.total_ns() as f64).collect();
            stats::median(&times)
        };
        Some(match self {
            Metric::TimePerUnit | Metric::FirstTimePerUnit => first.total_ns() as f64 / units,
            Metric::LastTimePerUnit => last.total_ns() as f64 / units,
            Metric::Time if workload == Workload::Fetch => median_ns() / 1e6,
            Metric::Time => last.total_ns() as f64 / 1e6,
            Metric::RequestsPerSecond => units / (median_ns() / 1e9),
            // What the runtime itself takes is part of what one pays, warm-up or not.
            Metric::PeakMemory => sample.memory.as_ref()?.own.peak as f64,
            Metric::UnitsPerSecond => units / (last.total_ns() as f64 / 1e9),
            // A unit that yields to nobody returns at once and has not switched; dividing by what
            // was asked for would count it all the same, so divide by what was made.
            Metric::TimePerSwitch => first.run_ns as f64 / sample.switches_counted() as f64,
            Metric::SwitchesPerSecond => {
                sample.switches_counted() as f64 / (first.run_ns as f64 / 1e9)
            }
            Metric::MemoryPerUnit if at_rest => per_unit(memory()?.own.at_rest()),
            Metric::MemoryPerUnit => per_unit(memory()?.own.at_peak()),
            Metric::WholeMemoryPerUnit if at_rest => per_unit(memory()?.whole.as_ref()?.at_rest()),
            Metric::WholeMemoryPerUnit => per_unit(memory()?.whole.as_ref()?.at_peak()),
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
