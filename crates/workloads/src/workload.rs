//! The workloads and their sizes.

use crate::named;
use crate::parameters::Parameters;

named! {
    /// An experiment of the fiber-vs-thread benchmark. All of them run the same program (see
    /// [`crate::unit`]) at different sizes; they differ in which part of it they time.
    pub enum Workload as "workload" {
        /// Many units with two switches each: what it costs to have one, in time and memory.
        Alloc = "alloc",
        /// Two units with many switches each, on one core: what it costs to switch.
        Switch = "switch",
        /// `alloc` with one switch, over and over in one process: what a warm start saves.
        Warm = "warm",
        /// A crowd of units with a hundred switches each, over and over: requests per second.
        Throughput = "throughput",
        /// Many units parked at once: memory and nothing else.
        Parked = "parked",
        /// People who are fed bite by bite, a unit each: see [`crate::feed`].
        Feed = "feed",
        /// Some dozens of HTTP GETs at a time: see [`crate::fetch`].
        Fetch = "fetch",
        /// An HTTP server under a load of requests that does not wait for it: see [`crate::serve`].
        Serve = "serve",
    }
}

impl Workload {
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
            Workload::Serve => {
                "an HTTP server, asked 1,000 times a second: latency, processor time and memory"
            }
        }
    }

    /// A line for the page of a report.
    pub fn about(self) -> &'static str {
        match self {
            Workload::Alloc => "Many units at once, two switches each: what it costs to have one.",
            Workload::Switch => {
                "Two units on one core, many switches: what it costs to go from one to the other."
            }
            Workload::Warm => {
                "The same again ten times in one process: what caches and pools save."
            }
            Workload::Throughput => {
                "A crowd of units, a hundred switches each, as if each served a request."
            }
            Workload::Parked => "Many units that all wait: memory and nothing else.",
            Workload::Feed => {
                "People who each have to eat a number of nutrients, a unit for each of them."
            }
            Workload::Fetch => "Pages fetched from a server that takes its time.",
            Workload::Serve => {
                "An HTTP server whose clients ask at a fixed rate, whether it keeps up or not."
            }
        }
    }

    /// The sizes this workload runs at on `cores` cores: `units` (coroutines, fibers or threads)
    /// alive at once; `switches` that each makes, the first of which waits until all units are
    /// alive; `rounds`, where the whole is repeated in one process; `cores` it may use.
    pub fn parameters(self, size: Size, cores: usize) -> Parameters {
        let (units, switches, rounds) = match (self, size) {
            (Workload::Alloc, Size::Full) => (10_000, 2, 1),
            (Workload::Switch, _) => (2, 10_000, 1),
            (Workload::Warm, Size::Full) => (10_000, 1, 10),
            (Workload::Throughput, Size::Full) => (1_000, 100, 10),
            (Workload::Parked, Size::Full) => (10_000, 1, 1),
            // Rounds stay as they are: "first and last of ten" is what `warm` means. The crowds
            // shrink, because it is the kernel's threads that would take minutes.
            (Workload::Alloc, Size::Quick) => (1_000, 2, 1),
            (Workload::Parked, Size::Quick) => (1_000, 1, 1),
            (Workload::Warm, Size::Quick) => (500, 1, 10),
            (Workload::Throughput, Size::Quick) => (100, 100, 10),
            // The points of the sweep, the ways to fetch and the loads fill in theirs.
            (Workload::Feed | Workload::Fetch | Workload::Serve, _) => (1, 0, 1_u64),
        };
        let sizes = [("units", units), ("switches", switches), ("cores", cores as u64)];
        let mut parameters = Parameters::of(sizes);
        if rounds > 1 {
            parameters.set("rounds", rounds);
        }
        parameters
    }

    /// The most threads it runs with, of the kernel's or the same ones on fibers. Ten rounds of 10,000 would take half a minute to three
    /// minutes a sample; docs/methodology.md says what difference the smaller number makes.
    pub fn most_threads(self) -> u64 {
        if self == Workload::Warm { 1_000 } else { u64::MAX }
    }

    /// Whether its units run the gated program of [`crate::unit`], and share the tables of the
    /// fiber-vs-thread benchmark.
    pub fn is_gated(self) -> bool {
        !matches!(self, Workload::Feed | Workload::Fetch | Workload::Serve)
    }

    /// Whether runtimes that compile as they run are warmed up for it. `warm` shows the warming
    /// itself, `parked` measures memory, which a heap that has already grown would hide, and the
    /// load of `serve` warms its server by itself.
    pub fn warms_up(self) -> bool {
        !matches!(self, Workload::Warm | Workload::Parked | Workload::Serve)
    }

    /// Whether its program talks to the lab over a socket.
    pub fn needs_network(self) -> bool {
        matches!(self, Workload::Fetch | Workload::Serve)
    }

    /// Whether the workload runs on one core even where there are more. A switch is defined only
    /// between units that share a core: two threads on two cores have no other to yield to.
    pub fn is_pinned(self) -> bool {
        self == Workload::Switch
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
