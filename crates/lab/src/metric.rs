//! The metrics: what each is called, in which unit it is, how a sample yields it, and where reports
//! show it. A new one is a row of [`FIGURES`] and nothing else.

use carefree_workloads::workload::Workload;

use crate::number;
use crate::sample::Sample;
use crate::served::Served;
use crate::stats;

/// What a metric counts: its unit, which direction is better, and how a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A time, nanoseconds.
    Nanoseconds,
    /// A time, milliseconds.
    Milliseconds,
    /// A time in a unit that the lab does not know.
    Time,
    /// Memory.
    Bytes,
    /// A number of things, which are named.
    Count(&'static str),
    /// So many a second, with the unit's name; more is better, as of nothing else.
    Rate(&'static str),
}

/// A metric: the same in all workloads that yield it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name in records.
    pub name: &'static str,
    /// What it counts.
    pub quantity: Quantity,
}

const fn metric(name: &'static str, quantity: Quantity) -> Metric {
    Metric { name, quantity }
}

/// To create a unit, let it make its switches, end and join it.
pub const TIME_PER_UNIT: Metric = metric("time_per_unit", Quantity::Nanoseconds);
/// [`TIME_PER_UNIT`] of the first round in a fresh process.
pub const FIRST_TIME_PER_UNIT: Metric = metric("first_time_per_unit", Quantity::Nanoseconds);
/// [`TIME_PER_UNIT`] of the last round in that process.
pub const LAST_TIME_PER_UNIT: Metric = metric("last_time_per_unit", Quantity::Nanoseconds);
/// From one unit going on to the next one going on.
pub const TIME_PER_SWITCH: Metric = metric("time_per_switch", Quantity::Nanoseconds);
/// Switches made in a second.
pub const SWITCHES_PER_SECOND: Metric = metric("switches_per_second", Quantity::Rate("switches/s"));
/// The last round; in `fetch`, where rounds are short, the median one.
pub const TIME: Metric = metric("time", Quantity::Milliseconds);
/// Units finished in a second of the last round.
pub const UNITS_PER_SECOND: Metric = metric("units_per_second", Quantity::Rate("units/s"));
/// Requests answered in a second of the median round; in `serve`, when they are made as fast as
/// answers come.
pub const REQUESTS_PER_SECOND: Metric = metric("requests_per_second", Quantity::Rate("requests/s"));
/// Rounds in a second, as published.
pub const ITERATIONS_PER_SECOND: Metric = metric("iterations_per_second", Quantity::Rate("i/s"));
/// What a unit takes of the process's own memory.
pub const MEMORY_PER_UNIT: Metric = metric("memory_per_unit", Quantity::Bytes);
/// What a unit takes of all memory: the kernel's stacks, page tables and objects included.
pub const WHOLE_MEMORY_PER_UNIT: Metric = metric("whole_memory_per_unit", Quantity::Bytes);
/// From the time at which a request was due to its answer, of half of the requests at most.
pub const LATENCY_P50: Metric = metric("latency_p50", Quantity::Nanoseconds);
/// Of 99 of 100 requests.
pub const LATENCY_P99: Metric = metric("latency_p99", Quantity::Nanoseconds);
/// Of 999 of 1,000 requests.
pub const LATENCY_P999: Metric = metric("latency_p999", Quantity::Nanoseconds);
/// A server's processor time for a request.
pub const CPU_PER_REQUEST: Metric = metric("cpu_per_request", Quantity::Nanoseconds);
/// What an idle connection takes of the server's own memory.
pub const MEMORY_PER_CONNECTION: Metric = metric("memory_per_connection", Quantity::Bytes);
/// What it takes of all memory.
pub const WHOLE_MEMORY_PER_CONNECTION: Metric =
    metric("whole_memory_per_connection", Quantity::Bytes);
/// What a program allocated, by its runtime's own count.
pub const BYTES_ALLOCATED: Metric = metric("bytes_allocated", Quantity::Bytes);
/// How often it did.
pub const OBJECTS_ALLOCATED: Metric = metric("objects_allocated", Quantity::Count("objects"));
/// What it had not freed at the end.
pub const BYTES_RETAINED: Metric = metric("bytes_retained", Quantity::Bytes);
/// How many objects that were.
pub const OBJECTS_RETAINED: Metric = metric("objects_retained", Quantity::Count("objects"));
/// The most it had in use at one moment, by its runtime's own tracing.
pub const BYTES_TRACED_AT_MOST: Metric = metric("bytes_traced_at_most", Quantity::Bytes);
/// The process's own memory when there was most of it, the runtime's included.
pub const PEAK_MEMORY: Metric = metric("peak_memory", Quantity::Bytes);

/// A metric of a workload: how it is measured, and where reports show it. Every figure is in the
/// records and in the table of medians; what is empty here leaves it out elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The workload that yields it.
    pub workload: Workload,
    /// The metric.
    pub metric: Metric,
    /// Its value in a sample, if the sample has it; none where the program itself, or a published
    /// table, says what it is.
    pub(crate) value: Option<fn(&Sample) -> Option<f64>>,
    /// The title of its bars on the page.
    pub(crate) chart: &'static str,
    /// Whether these bars stand above those of the workload's other figures.
    pub(crate) leads: bool,
    /// The title of its curve over versions.
    pub(crate) curve: &'static str,
    /// The heading of its column in the picture.
    pub(crate) column: &'static str,
    /// What a history calls it in a sentence, where that is not workload and metric.
    pub(crate) spoken: &'static str,
    /// The sentence that compares units by it.
    pub(crate) claim: Option<Claim>,
    /// The figure of the same workload that it tells again, as a rate tells a time again: a change of
    /// both is one change.
    pub(crate) again: Option<Metric>,
}

impl Figure {
    /// The names of its workload and its metric.
    pub(crate) fn name(&self) -> (&'static str, &'static str) {
        (self.workload.name(), self.metric.name)
    }
}

/// A sentence that compares two units. `{w}` is the unit that did better, `{l}` the other one, `{how}`
/// what tells them apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) topic: Topic,
    pub(crate) sentence: &'static str,
    /// `{x}` is how many times.
    pub(crate) better: &'static str,
    /// What to say where the samples cannot tell them apart.
    pub(crate) equal: &'static str,
    /// What the figures in brackets need said.
    pub(crate) remark: &'static str,
}

/// A claim about times.
const FASTER: Claim = Claim {
    topic: Topic::Starting,
    sentence: "",
    better: "{x} faster than",
    equal: "as fast as",
    remark: "",
};

/// A claim about memory.
const LESS: Claim = Claim {
    better: "{x} less memory than",
    equal: "as much memory as",
    remark: ", all told",
    ..FASTER
};

/// What sentences are about, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    Starting,
    WarmStart,
    Switching,
    Serving,
    Memory,
}

impl Topic {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Topic::Starting => "Starting",
            Topic::WarmStart => "Starting, once warm",
            Topic::Switching => "Switching",
            Topic::Serving => "Serving requests",
            Topic::Memory => "Memory",
        }
    }
}

/// A figure that is in no chart and no sentence.
const fn plain(workload: Workload, metric: Metric) -> Figure {
    let [chart, curve, column, spoken] = [""; 4];
    let (value, leads, claim, again) = (None, false, None, None);
    Figure { workload, metric, value, chart, leads, curve, column, spoken, claim, again }
}

/// Every figure, in the order of reports.
pub static FIGURES: [Figure; 28] = [
    Figure {
        value: Some(|sample| per_unit(sample, sample.account.rounds.first()?.total_ns())),
        chart: "Time to create a unit, have it switch twice, end and join it",
        leads: true,
        curve: "time of a unit",
        column: "Time of a unit, to its end",
        spoken: "allocation",
        claim: Some(Claim {
            topic: Topic::Starting,
            sentence: "Here a {w} starts {how} a {l}",
            ..FASTER
        }),
        ..plain(Workload::Alloc, TIME_PER_UNIT)
    },
    // The high-water mark of the whole; of `parked` it is the state of rest at the gate.
    Figure {
        value: Some(|sample| per_unit(sample, sample.crowd_memory()?.own.at_peak())),
        chart: "Memory of a unit in the process alone",
        curve: "memory of a unit in the process",
        spoken: "memory",
        again: Some(WHOLE_MEMORY_PER_UNIT),
        ..plain(Workload::Alloc, MEMORY_PER_UNIT)
    },
    Figure {
        value: Some(|sample| per_unit(sample, sample.crowd_memory()?.whole.as_ref()?.at_peak())),
        chart: "Memory of a unit, with what the kernel keeps for it",
        leads: true,
        curve: "memory of a unit, all told",
        spoken: "memory, all told,",
        claim: Some(Claim {
            topic: Topic::Memory,
            sentence: "Here a {w} takes {how} a {l}",
            ..LESS
        }),
        ..plain(Workload::Alloc, WHOLE_MEMORY_PER_UNIT)
    },
    Figure {
        // A yield without another unit to yield to returns at once and is no switch: divide by the
        // switches that were made, not by those asked for.
        value: Some(|sample| {
            Some(sample.account.rounds.first()?.run_ns as f64 / sample.switches_counted() as f64)
        }),
        chart: "Time of a switch",
        curve: "time of a switch",
        column: "Time of a switch",
        spoken: "switch",
        claim: Some(Claim {
            topic: Topic::Switching,
            sentence: "Here a {w} switches {how} a {l}",
            ..FASTER
        }),
        ..plain(Workload::Switch, TIME_PER_SWITCH)
    },
    Figure {
        value: Some(|sample| {
            let seconds = sample.account.rounds.first()?.run_ns as f64 / 1e9;
            Some(sample.switches_counted() as f64 / seconds)
        }),
        chart: "Switches in a second",
        again: Some(TIME_PER_SWITCH),
        ..plain(Workload::Switch, SWITCHES_PER_SECOND)
    },
    Figure {
        value: Some(|sample| per_unit(sample, sample.account.rounds.first()?.total_ns())),
        chart: "Time of a unit in the first round, cold",
        spoken: "allocation, cold,",
        curve: "time of a unit, cold",
        ..plain(Workload::Warm, FIRST_TIME_PER_UNIT)
    },
    Figure {
        value: Some(|sample| per_unit(sample, sample.account.rounds.last()?.total_ns())),
        chart: "Time of a unit in the last round, warm",
        leads: true,
        curve: "time of a unit, warm",
        spoken: "allocation, warm,",
        claim: Some(Claim {
            topic: Topic::WarmStart,
            sentence: "Here, once warm, a {w} starts {how} a {l}",
            ..FASTER
        }),
        ..plain(Workload::Warm, LAST_TIME_PER_UNIT)
    },
    Figure {
        value: Some(last_round_ms),
        chart: "Time of a round",
        curve: "time of a round of requests",
        spoken: "throughput",
        claim: Some(Claim {
            topic: Topic::Serving,
            sentence: "Here {w}s serve requests {how} {l}s",
            ..FASTER
        }),
        ..plain(Workload::Throughput, TIME)
    },
    Figure {
        value: Some(|sample| Some(sample.account.units as f64 / (last_round_ms(sample)? / 1e3))),
        chart: "Units that come to their end in a second",
        leads: true,
        again: Some(TIME),
        ..plain(Workload::Throughput, UNITS_PER_SECOND)
    },
    Figure {
        value: Some(|sample| per_unit(sample, sample.crowd_memory()?.own.at_rest())),
        chart: "Memory of a parked unit in the process alone",
        spoken: "memory when parked",
        again: Some(WHOLE_MEMORY_PER_UNIT),
        ..plain(Workload::Parked, MEMORY_PER_UNIT)
    },
    Figure {
        value: Some(|sample| per_unit(sample, sample.crowd_memory()?.whole.as_ref()?.at_rest())),
        chart: "Memory of a parked unit, with what the kernel keeps for it",
        leads: true,
        column: "Memory of a unit",
        spoken: "memory when parked, all told,",
        ..plain(Workload::Parked, WHOLE_MEMORY_PER_UNIT)
    },
    Figure {
        value: Some(last_round_ms),
        chart: "Time to feed all people",
        spoken: "feeding",
        ..plain(Workload::Feed, TIME)
    },
    Figure {
        value: Some(median_round_ms),
        chart: "Time to fetch all pages",
        spoken: "fetching",
        ..plain(Workload::Fetch, TIME)
    },
    Figure {
        value: Some(|sample| Some(sample.account.units as f64 / (median_round_ms(sample)? / 1e3))),
        again: Some(TIME),
        ..plain(Workload::Fetch, REQUESTS_PER_SECOND)
    },
    Figure { again: Some(TIME), ..plain(Workload::Fetch, ITERATIONS_PER_SECOND) },
    Figure { chart: "Memory allocated on the way", ..plain(Workload::Fetch, BYTES_ALLOCATED) },
    plain(Workload::Fetch, OBJECTS_ALLOCATED),
    plain(Workload::Fetch, BYTES_RETAINED),
    plain(Workload::Fetch, OBJECTS_RETAINED),
    Figure {
        chart: "Most memory in use at one moment, by the runtime's tracing",
        ..plain(Workload::Fetch, BYTES_TRACED_AT_MOST)
    },
    Figure {
        // What the runtime itself takes is part of what one pays, warm-up or not.
        value: Some(|sample| Some(sample.memory.as_ref()?.most_resident() as f64)),
        chart: "Most memory in use",
        ..plain(Workload::Fetch, PEAK_MEMORY)
    },
    Figure {
        value: Some(|sample| Some(Served::of(sample)?.paced.p50_ns as f64)),
        spoken: "median latency",
        ..plain(Workload::Serve, LATENCY_P50)
    },
    Figure {
        value: Some(|sample| Some(Served::of(sample)?.paced.p99_ns as f64)),
        chart: "Latency of 99 of 100 requests",
        spoken: "latency of 99 of 100 requests",
        ..plain(Workload::Serve, LATENCY_P99)
    },
    Figure {
        value: Some(|sample| Some(Served::of(sample)?.paced.p999_ns? as f64)),
        spoken: "latency of 999 of 1,000 requests",
        ..plain(Workload::Serve, LATENCY_P999)
    },
    Figure {
        value: Some(|sample| Served::of(sample)?.cpu_per_request()),
        chart: "Processor time of a request",
        leads: true,
        spoken: "processor time of a request",
        ..plain(Workload::Serve, CPU_PER_REQUEST)
    },
    Figure {
        value: Some(|sample| Served::of(sample)?.rate()),
        chart: "Requests in a second, as fast as answers come",
        ..plain(Workload::Serve, REQUESTS_PER_SECOND)
    },
    Figure {
        value: Some(|sample| {
            Served::of(sample)?.per_connection(sample.memory.as_ref()?.own.at_rest())
        }),
        spoken: "memory of an idle connection",
        again: Some(WHOLE_MEMORY_PER_CONNECTION),
        ..plain(Workload::Serve, MEMORY_PER_CONNECTION)
    },
    Figure {
        value: Some(|sample| {
            Served::of(sample)?.per_connection(sample.memory.as_ref()?.whole.as_ref()?.at_rest())
        }),
        chart: "Memory of an idle connection, with what the kernel keeps for it",
        spoken: "memory of an idle connection, all told,",
        ..plain(Workload::Serve, WHOLE_MEMORY_PER_CONNECTION)
    },
];

fn per_unit(sample: &Sample, whole: u64) -> Option<f64> {
    Some(whole as f64 / sample.account.units as f64)
}

fn last_round_ms(sample: &Sample) -> Option<f64> {
    Some(sample.account.rounds.last()?.total_ns() as f64 / 1e6)
}

fn median_round_ms(sample: &Sample) -> Option<f64> {
    let rounds = sample.account.rounds.iter();
    let times: Vec<f64> = rounds.map(|round| round.total_ns() as f64).collect();
    (!times.is_empty()).then(|| stats::median(&times) / 1e6)
}

/// The figures of a workload, in the order of reports.
pub fn of(workload: Workload) -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().filter(move |figure| figure.workload == workload)
}

/// The figure that a record names, if it is one of ours.
pub(crate) fn find(workload: &str, metric: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name() == (workload, metric))
}

/// What a figure tells of: itself, or the figure that it tells again.
pub(crate) fn topic<'a>(workload: &str, metric: &'a str) -> &'a str {
    find(workload, metric).and_then(|figure| figure.again).map_or(metric, |again| again.name)
}

/// Its place in reports among the figures of its workload; unknown ones come last, by name.
pub(crate) fn rank<'a>(workload: &str, metric: &'a str) -> (usize, &'a str) {
    let known = |figure: &Figure| figure.name() == (workload, metric);
    (FIGURES.iter().position(known).unwrap_or(FIGURES.len()), metric)
}

impl Quantity {
    /// What `metric` counts. Of one that programs have told of and the lab does not know, the name
    /// tells what can be told.
    pub fn of(metric: &str) -> Quantity {
        match FIGURES.iter().find(|figure| figure.metric.name == metric) {
            Some(figure) => figure.metric.quantity,
            None if metric.ends_with("_per_second") => Quantity::Rate(""),
            None if metric.contains("time") => Quantity::Time,
            None => Quantity::Count(""),
        }
    }

    /// The unit's name in records; nothing where it is not known.
    pub fn unit(self) -> &'static str {
        match self {
            Quantity::Nanoseconds => "ns",
            Quantity::Milliseconds => "ms",
            Quantity::Bytes => "bytes",
            Quantity::Count(unit) | Quantity::Rate(unit) => unit,
            Quantity::Time => "",
        }
    }

    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Quantity::Rate(_))
    }

    /// What a larger and a smaller value are to another.
    pub(crate) fn comparatives(self) -> [&'static str; 2] {
        match self {
            Quantity::Rate(_) => ["faster", "slower"],
            Quantity::Nanoseconds | Quantity::Milliseconds | Quantity::Time => ["slower", "faster"],
            Quantity::Bytes | Quantity::Count(_) => ["more", "less"],
        }
    }

    /// A value with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Quantity::Nanoseconds => number::duration(value),
            Quantity::Milliseconds => number::duration(value * 1e6),
            Quantity::Bytes => number::size(value),
            // "switches/s": what they are, the figure's name has said.
            Quantity::Rate(_) => format!("{}/s", number::rate(value)),
            Quantity::Time | Quantity::Count(_) => {
                number::grouped(value, if value.fract() == 0.0 { 0 } else { 3 })
            }
        }
    }
}

impl Quantity {
    /// A value that may be `reach` off, with its unit and the digits that mean something.
    pub(crate) fn show_within(self, value: f64, reach: f64) -> String {
        match self {
            Quantity::Nanoseconds => number::duration_within(value, reach),
            Quantity::Milliseconds => number::duration_within(value * 1e6, reach * 1e6),
            Quantity::Bytes => number::size_within(value, reach),
            Quantity::Rate(_) => {
                let most = if value < 99.95 { 2 } else { 0 };
                format!("{}/s", number::within(value, reach, most))
            }
            Quantity::Time | Quantity::Count(_) => {
                number::within(value, reach, if value.fract() == 0.0 { 0 } else { 3 })
            }
        }
    }

    /// A value of a few samples with its unit: two digits, and the mark.
    pub(crate) fn show_rough(self, value: f64) -> String {
        let shown = match self {
            Quantity::Nanoseconds => number::rough_duration(value),
            Quantity::Milliseconds => number::rough_duration(value * 1e6),
            Quantity::Bytes => number::rough_size(value),
            Quantity::Rate(_) => format!("{}/s", number::two_digits(value)),
            Quantity::Time | Quantity::Count(_) => number::two_digits(value),
        };
        format!("{shown}{}", number::MARK)
    }
}

/// A metric's name in a sentence: `time per unit`.
pub fn spoken(metric: &str) -> String {
    metric.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_there_once_under_one_quantity() {
        for (at, figure) in FIGURES.iter().enumerate() {
            let Figure { workload, metric, .. } = figure;
            assert_eq!(rank(workload.name(), metric.name).0, at, "{workload} {}", metric.name);
            assert_eq!(Quantity::of(metric.name), metric.quantity, "{}", metric.name);
        }
        for figure in &FIGURES {
            let topic = topic(figure.workload.name(), figure.metric.name);
            assert!(find(figure.workload.name(), topic).is_some_and(|of| of.again.is_none()));
        }
        for workload in Workload::ALL {
            assert!(of(workload).any(|figure| figure.value.is_some()), "{workload}");
        }
    }

    #[test]
    fn a_metric_that_is_not_known_is_read_by_its_name() {
        assert!(Quantity::of("wishes_per_second").more_is_better());
        assert_eq!(Quantity::of("time_asleep").comparatives(), ["slower", "faster"]);
        assert_eq!(Quantity::of("wishes").comparatives(), ["more", "less"]);
        assert_eq!(Quantity::of("wishes").unit(), "");
        assert_eq!(Quantity::of("wishes").show(1_234.5), "1,234.500");
    }
}
