//! The rows: what is done, in which process, how often, and what it should cost.

use crate::peer::Peer;
use crate::sample;
use crate::scale::Scale;
use std::io;

/// One line of the table.
#[derive(Debug)]
pub struct Line {
    /// The line's name.
    pub name: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
    /// The target of ours.
    pub target: Target,
}

/// The target for a line's figure.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// At most this, in the line's unit.
    AtMost(f64),
    /// At most this share of a peer's figure, for each of these peers that is there.
    Relative(&'static [(&'static str, f64)]),
    /// None set; for scale.
    None,
}

/// Where samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// In this one. Where that is to be warm, each sample runs its crowd twice and counts the
    /// second: the peers have emptied the caches in between.
    Same,
    /// A new one for each sample.
    Fresh,
}

/// One thing measured, for every peer that can do it.
#[derive(Debug)]
pub struct Workload {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Its lines of the table.
    pub lines: &'static [Line],
    /// Where its samples are taken.
    pub process: Process,
    /// Added to a fresh process's environment.
    pub environment: &'static [(&'static str, &'static str)],
    /// The only peer this concerns.
    pub only: Option<&'static str>,
    /// Samples of each peer.
    pub rounds: usize,
    /// Left out unless asked for by this flag.
    pub flag: Option<&'static str>,
    /// Takes one sample: a figure for each line.
    pub sample: fn(&Peer, scale: Scale) -> Option<io::Result<Vec<f64>>>,
}

const SHARED_TLS: &[(&str, &str)] = &[("CAREFREE_TLS", "shared")];

/// All there are, in the order of the table.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "coroutine",
        lines: &[Line {
            name: "coroutine: resume or suspend",
            unit: "ns",
            target: Target::Relative(&[("corosensei", 1.0), ("Boost", 0.2)]),
        }],
        process: Process::Same,
        environment: &[],
        only: None,
        rounds: 21,
        flag: None,
        sample: sample::coroutine,
    },
    Workload {
        name: "yield",
        lines: &[Line { name: "fiber yield, own TLS", unit: "ns", target: Target::AtMost(26.0) }],
        process: Process::Same,
        environment: &[],
        only: None,
        rounds: 15,
        flag: None,
        sample: sample::yields,
    },
    Workload {
        name: "yield-shared",
        lines: &[Line { name: "fiber yield, shared TLS", unit: "ns", target: Target::None }],
        process: Process::Fresh,
        environment: SHARED_TLS,
        only: Some("carefree"),
        rounds: 9,
        flag: None,
        sample: sample::yields,
    },
    Workload {
        name: "channel",
        lines: &[Line {
            name: "hand-over by a channel (std's for us)",
            unit: "ns",
            target: Target::AtMost(90.0),
        }],
        process: Process::Same,
        environment: &[],
        only: None,
        rounds: 15,
        flag: None,
        sample: |peer, scale| sample::hand_overs(peer, peer.channel?, scale),
    },
    Workload {
        name: "crossbeam",
        lines: &[Line {
            name: "hand-over by crossbeam's channel",
            unit: "ns",
            target: Target::AtMost(90.0),
        }],
        process: Process::Same,
        environment: &[],
        only: None,
        rounds: 7,
        flag: None,
        sample: |peer, scale| sample::hand_overs(peer, peer.crossbeam?, scale),
    },
    Workload {
        name: "warm",
        lines: &[Line {
            name: "warm spawn + 2 yields + end, own TLS",
            unit: "ns",
            target: Target::AtMost(165.0),
        }],
        process: Process::Same,
        environment: &[],
        only: None,
        rounds: 21,
        flag: None,
        sample: sample::warm_spawns,
    },
    Workload {
        name: "warm-shared",
        lines: &[Line { name: "the same, shared TLS", unit: "ns", target: Target::None }],
        process: Process::Fresh,
        environment: SHARED_TLS,
        only: Some("carefree"),
        rounds: 9,
        flag: None,
        sample: sample::warm_spawns,
    },
    Workload {
        name: "cold",
        lines: &[Line {
            name: "cold spawn + 2 yields + end, own TLS",
            unit: "ns",
            target: Target::AtMost(2_000.0),
        }],
        process: Process::Fresh,
        environment: &[],
        only: None,
        rounds: 11,
        flag: None,
        sample: sample::spawns,
    },
    Workload {
        name: "throughput",
        lines: &[Line {
            name: "throughput, 1,000 x 100 yields",
            unit: "ms",
            target: Target::AtMost(4.0),
        }],
        process: Process::Same,
        environment: &[],
        only: None,
        rounds: 15,
        flag: None,
        sample: sample::throughput,
    },
    Workload {
        name: "sleepers",
        lines: &[
            Line {
                name: "10,000 sleepers of 100 ms: wall",
                unit: "ms",
                target: Target::AtMost(108.0),
            },
            Line {
                name: "10,000 sleepers of 100 ms: CPU",
                unit: "ms",
                target: Target::AtMost(15.0),
            },
        ],
        process: Process::Same,
        environment: &[],
        only: None,
        rounds: 7,
        flag: None,
        sample: sample::sleepers,
    },
    Workload {
        name: "cold-sleepers",
        lines: &[Line {
            name: "cold: each of 10,000 that sleep 100 ms, CPU",
            unit: "ns",
            target: Target::None,
        }],
        process: Process::Fresh,
        environment: &[],
        only: None,
        rounds: 7,
        flag: None,
        sample: sample::cold_sleepers,
    },
    Workload {
        name: "parked",
        lines: &[
            Line { name: "parked unit, whole memory", unit: "KiB", target: Target::AtMost(4.7) },
            Line { name: "of it resident pages", unit: "KiB", target: Target::None },
            Line { name: "page tables", unit: "KiB", target: Target::None },
            Line { name: "the kernel's stacks and objects", unit: "KiB", target: Target::None },
        ],
        process: Process::Fresh,
        environment: &[],
        only: None,
        rounds: 5,
        flag: None,
        sample: sample::parked,
    },
    Workload {
        name: "reading",
        lines: &[Line {
            name: "unit that waits in read, whole memory",
            unit: "KiB",
            target: Target::AtMost(5.2),
        }],
        process: Process::Fresh,
        environment: &[],
        only: None,
        rounds: 5,
        flag: None,
        sample: sample::reading,
    },
    Workload {
        name: "million",
        lines: &[
            Line {
                name: "1,000,000 parked at once, whole memory",
                unit: "GiB",
                target: Target::AtMost(6.0),
            },
            Line {
                name: "1,000,000 parked at once, time until all are",
                unit: "s",
                target: Target::None,
            },
        ],
        process: Process::Fresh,
        environment: &[],
        only: None,
        rounds: 1,
        flag: Some("--million"),
        sample: sample::million,
    },
];

impl Workload {
    /// Whether it is also done on all cores.
    pub fn uses_cores(&self) -> bool {
        self.only.is_none() && self.name != "coroutine"
    }
}

impl Line {
    /// Whether its figures are of memory, not of time.
    pub fn is_memory(&self) -> bool {
        self.unit.ends_with("iB")
    }
}
