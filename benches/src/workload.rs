//! The rows: what is done, in which process, how often, and what it should cost.

use crate::machine;
use crate::memory::Memory;
use crate::peer::Peer;
use carefree_workloads::limits;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

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
        sample: coroutine,
    },
    Workload {
        name: "yield",
        lines: &[Line { name: "fiber yield, own TLS", unit: "ns", target: Target::AtMost(26.0) }],
        process: Process::Same,
        environment: &[],
        only: None,
        rounds: 15,
        flag: None,
        sample: yields,
    },
    Workload {
        name: "yield-shared",
        lines: &[Line { name: "fiber yield, shared TLS", unit: "ns", target: Target::None }],
        process: Process::Fresh,
        environment: SHARED_TLS,
        only: Some("carefree"),
        rounds: 9,
        flag: None,
        sample: yields,
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
        sample: |peer, scale| hand_overs(peer, peer.channel?, scale),
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
        sample: |peer, scale| hand_overs(peer, peer.crossbeam?, scale),
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
        sample: warm_spawns,
    },
    Workload {
        name: "warm-shared",
        lines: &[Line { name: "the same, shared TLS", unit: "ns", target: Target::None }],
        process: Process::Fresh,
        environment: SHARED_TLS,
        only: Some("carefree"),
        rounds: 9,
        flag: None,
        sample: warm_spawns,
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
        sample: spawns,
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
        sample: throughput,
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
        sample: sleepers,
    },
    Workload {
        name: "parked",
        lines: &[
            Line { name: "parked unit, whole memory", unit: "KiB", target: Target::AtMost(4.7) },
            Line { name: "parked unit, resident memory alone", unit: "KiB", target: Target::None },
        ],
        process: Process::Fresh,
        environment: &[],
        only: None,
        rounds: 5,
        flag: None,
        sample: parked,
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
        sample: reading,
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
        sample: million,
    },
];

/// How much work is done, and the clock that times it.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Smaller crowds and fewer rounds.
    pub quick: bool,
    /// Count this process's processor time, not the time that passed: see the README.
    pub cpu: bool,
}

impl Scale {
    /// The scale that these arguments ask for, which are taken out of them.
    pub fn take(arguments: &mut Vec<String>) -> Scale {
        let mut has = |flag: &str| {
            let before = arguments.len();
            arguments.retain(|argument| argument != flag);
            arguments.len() < before
        };
        Scale { quick: has("--quick"), cpu: has("--cpu") }
    }

    /// The arguments that ask for this scale.
    pub fn flags(self) -> impl Iterator<Item = &'static str> {
        let flags = [(self.quick, "--quick"), (self.cpu, "--cpu")];
        flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag)
    }

    /// Nanoseconds of `work`, with what it returned.
    fn timed<T>(self, work: impl FnOnce() -> T) -> (f64, T) {
        let (start, cpu) = (Instant::now(), machine::cpu_time());
        let result = work();
        let (passed, used) = (start.elapsed(), machine::cpu_time() - cpu);
        let time = if self.cpu { used } else { passed };
        (time.as_nanos() as f64, result)
    }
}

fn coroutine(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.coroutine?;
    let rounds: u64 = if scale.quick { 500_000 } else { 5_000_000 };
    let (nanos, sum) = scale.timed(|| run(rounds));
    assert_eq!(sum, rounds * (rounds + 1) / 2, "{}: a ball was lost", peer.name);
    Some(Ok(vec![nanos / (2 * rounds) as f64]))
}

fn yields(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.crowd?;
    let yields = if scale.quick { 100_000 } else { 1_000_000 } / peer.fewer;
    let (nanos, answer) = scale.timed(|| run(2, yields));
    assert_eq!(answer.yields, 2 * yields, "{}: yields are missing", peer.name);
    // A yield that lets no other unit run is none. (Half suffices because of tokio: it wakes tasks in
    // the reverse order of their yields, so that of two tasks every other yield returns to its task.)
    let share = answer.switched as f64 / answer.yields as f64;
    assert!(share > 0.49, "{}: {share} of the yields switched", peer.name);
    Some(Ok(vec![nanos / answer.yields as f64]))
}

fn hand_overs(
    peer: &Peer,
    run: fn(rounds: u64) -> u64,
    scale: Scale,
) -> Option<io::Result<Vec<f64>>> {
    let rounds = if scale.quick { 10_000 } else { 100_000 } / peer.fewer;
    let (nanos, sum) = scale.timed(|| run(rounds));
    assert_eq!(sum, rounds * (rounds + 1) / 2, "{}: a ball was lost", peer.name);
    Some(Ok(vec![nanos / (2 * rounds) as f64]))
}

fn spawns(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.crowd?;
    let units = if scale.quick { 2_000 } else { 10_000 } / peer.fewer as usize;
    let (nanos, answer) = scale.timed(|| run(units, 2));
    assert_eq!(answer.yields, 2 * units as u64, "{}: yields are missing", peer.name);
    Some(Ok(vec![nanos / units as f64]))
}

fn warm_spawns(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let _ = spawns(peer, scale)?;
    spawns(peer, scale)
}

fn throughput(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.crowd?;
    let _ = run(1_000, 100);
    let (nanos, answer) = scale.timed(|| run(1_000, 100));
    assert_eq!(answer.yields, 100_000, "{}: yields are missing", peer.name);
    Some(Ok(vec![nanos / 1e6]))
}

fn sleepers(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let run = peer.sleepers?;
    let units = if scale.quick { 1_000 } else { 10_000 };
    let _ = run(units, Duration::from_millis(1));
    let (start, cpu) = (Instant::now(), machine::cpu_time());
    let slept = run(units, Duration::from_millis(100));
    let (passed, used) = (start.elapsed(), machine::cpu_time() - cpu);
    assert_eq!(slept, units, "{}: some slept too short", peer.name);
    Some(Ok([passed, used].map(|time| time.as_nanos() as f64 / 1e6).to_vec()))
}

/// Memory grown while `units` wait, whole and resident, and the time until they all did. `prepare`
/// makes what a number of units needs, which does not count, and `run` has them wait.
fn grown<N>(
    peer: &Peer,
    units: usize,
    prepare: impl Fn(usize) -> io::Result<N>,
    run: impl Fn(N, &mut dyn FnMut()) -> io::Result<usize>,
) -> io::Result<(f64, f64, Duration)> {
    // One unit first: starting the runtime is not the unit's cost.
    run(prepare(1)?, &mut || ())?;
    let needs = prepare(units)?;
    let before = Memory::now()?;
    let start = Instant::now();
    let mut after = Err(io::Error::other("memory was not looked at"));
    let mut took = Duration::ZERO;
    let waited = run(needs, &mut || {
        took = start.elapsed();
        after = Memory::now();
    })?;
    let after = after?;
    assert_eq!(waited, units, "{}: some did not wait", peer.name);
    let whole = after.whole() as f64 - before.whole() as f64;
    let resident = after.resident as f64 - before.resident as f64;
    Ok((whole, resident, took))
}

fn parked(peer: &Peer, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let units = if scale.quick { 5_000 } else { 10_000 };
    let kib = 1024.0 * units as f64;
    let grown = grown(peer, units, Ok, peer.parked?);
    Some(grown.map(|(whole, resident, _)| vec![whole / kib, resident / kib]))
}

fn reading(peer: &Peer, _: Scale) -> Option<io::Result<Vec<f64>>> {
    // Each unit needs two descriptors.
    const UNITS: usize = 8_000;
    let pairs = |units| {
        limits::raise_open_files(2 * units as u64 + 100)?;
        (0..units).map(|_| UnixStream::pair()).collect()
    };
    let grown = grown(peer, UNITS, pairs, peer.readers?);
    Some(grown.map(|(whole, _, _)| vec![whole / (1024.0 * UNITS as f64)]))
}

fn million(peer: &Peer, _: Scale) -> Option<io::Result<Vec<f64>>> {
    let gib = (1u64 << 30) as f64;
    let grown = grown(peer, 1_000_000, Ok, peer.parked?);
    Some(grown.map(|(whole, _, took)| vec![whole / gib, took.as_secs_f64()]))
}
