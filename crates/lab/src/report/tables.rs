//! The five tables of the fiber-vs-thread benchmark, and one more with every figure's interval.

use super::number::{self, grouped, micros};
use super::table::{Align, Table};
use crate::record::{Measurement, Record};
use crate::unit::Unit;
use crate::workload::{Metric, Workload};

/// What stands where nothing was measured.
const NOTHING: &str = "–";

/// The tables that `record` has figures for, in the order of the published ones.
pub(super) fn published(record: &Record) -> Vec<Table> {
    [summary(record), switching(record), memory(record), warming(record), throughput(record)]
        .into_iter()
        .flatten()
        .collect()
}

/// A figure of one unit, as a column of a table with all units in one row.
type Cell<'a> = dyn Fn(&Measurement) -> String + 'a;

fn cell(found: Option<&Measurement>, show: &Cell<'_>) -> String {
    found.map_or_else(|| NOTHING.into(), show)
}

/// The figure of a unit in a workload, if it was measured.
pub(super) fn find(
    record: &Record,
    workload: Workload,
    unit: Unit,
    metric: Metric,
) -> Option<&Measurement> {
    let wanted = (workload.name(), unit.name(), metric.name());
    record.results.iter().find(|m| (&*m.subject.workload, &*m.subject.unit, &*m.metric) == wanted)
}

fn units_of(measurement: &Measurement) -> f64 {
    measurement.subject.parameters.number("units").unwrap_or(0) as f64
}

fn bound(measurement: &Measurement, end: Option<f64>) -> String {
    end.map_or_else(|| NOTHING.into(), |end| number::value(&measurement.metric, end))
}

/// The units that have this figure, in order.
fn units(record: &Record, workload: Workload, metric: Metric) -> Vec<Unit> {
    Unit::ALL.into_iter().filter(|&unit| find(record, workload, unit, metric).is_some()).collect()
}

/// How many times the second is the first, where both were measured.
fn quotient(
    record: &Record,
    workload: Workload,
    metric: Metric,
    (by, of): (Unit, Unit),
) -> Option<String> {
    let by = find(record, workload, by, metric)?.median;
    let of = find(record, workload, of, metric)?.median;
    Some(number::ratio(of / by))
}

/// `carefree 0.1.0` and `rust 1.95.0`, one a line: the runtimes a row takes its units from.
fn runtimes(record: &Record) -> String {
    let mut names: Vec<String> = Vec::new();
    for unit in Unit::ALL {
        let found = record.results.iter().find(|m| m.subject.unit == unit.name());
        if let Some(name) = found.map(runtime).filter(|name| !names.contains(name)) {
            names.push(name);
        }
    }
    names.join("\n")
}

fn runtime(measurement: &Measurement) -> String {
    format!("{} {}", measurement.subject.runtime, measurement.subject.version)
}

/// `Fiber`.
fn title(unit: Unit) -> &'static str {
    match unit {
        Unit::Coroutine => "Coroutine",
        Unit::Fiber => "Fiber",
        Unit::Thread => "Thread",
    }
}

/// `10,000 units × 2 switches, 2 cores`, as the samples had it.
fn crowd(record: &Record, workload: Workload) -> String {
    let Some(measurement) = record.results.iter().find(|m| m.subject.workload == workload.name())
    else {
        return String::new();
    };
    let parameters = &measurement.subject.parameters;
    let number = |name| parameters.number(name).unwrap_or(0);
    let count = |count: u64, one: &str, more: &str| {
        format!("{} {}", grouped(count as f64, 0), if count == 1 { one } else { more })
    };
    let rounds = match parameters.number("rounds").unwrap_or(1) {
        1 => String::new(),
        rounds => format!(", {rounds} rounds"),
    };
    format!(
        "{} × {}{rounds}, {}",
        count(number("units"), "unit", "units"),
        count(number("switches"), "switch", "switches"),
        count(number("cores"), "core", "cores"),
    )
}

fn summary(record: &Record) -> Option<Table> {
    let mut table = Table::new("Performance Summary").column("Runtime", Align::Left);
    let mut row = vec![runtimes(record)];
    let parts = [
        (Workload::Alloc, Metric::TimePerUnit, "Alloc (μs)", "Allocation Ratio", 3),
        (Workload::Switch, Metric::TimePerSwitch, "Switch (μs)", "Switch Ratio", 4),
    ];
    for (workload, metric, heading, ratio, digits) in parts {
        for unit in units(record, workload, metric) {
            table = table.column(format!("{} {heading}", title(unit)), Align::Right);
            let show = move |m: &Measurement| micros(m.median, digits);
            row.push(cell(find(record, workload, unit, metric), &show));
        }
        if let Some(times) = quotient(record, workload, metric, (Unit::Fiber, Unit::Thread)) {
            table = table.column(ratio, Align::Right);
            row.push(times);
        }
        if !units(record, workload, metric).is_empty() {
            let what = if workload == Workload::Alloc {
                "Allocation: from creating a unit to having joined it"
            } else {
                "Switch: from one unit going on to the next going on"
            };
            table.notes.push(format!("{what} ({}).", crowd(record, workload)));
        }
    }
    if row.len() == 1 {
        return None;
    }
    if table.columns.iter().any(|column| column.heading.ends_with("Ratio")) {
        table.notes.push("Ratios say how many times what a fiber takes a thread takes.".into());
    }
    table.rows.push(row);
    Some(table)
}

fn switching(record: &Record) -> Option<Table> {
    let (workload, metric) = (Workload::Switch, Metric::SwitchesPerSecond);
    let mut table = Table::new("Context Switching Performance").column("Runtime", Align::Left);
    let mut row = vec![runtimes(record)];
    for unit in units(record, workload, metric) {
        table = table.column(format!("{} Switches/sec", title(unit)), Align::Right);
        row.push(cell(find(record, workload, unit, metric), &|m| grouped(m.median, 0)));
    }
    if row.len() == 1 {
        return None;
    }
    if let Some(times) = quotient(record, workload, metric, (Unit::Thread, Unit::Fiber)) {
        table = table.column("Performance Ratio", Align::Right);
        row.push(times);
    }
    table.rows.push(row);
    Some(table)
}

fn memory(record: &Record) -> Option<Table> {
    let kinds = [
        (Workload::Alloc, Metric::MemoryPerUnit, "own"),
        (Workload::Alloc, Metric::WholeMemoryPerUnit, "whole"),
        (Workload::Parked, Metric::MemoryPerUnit, "parked, own"),
        (Workload::Parked, Metric::WholeMemoryPerUnit, "parked, whole"),
    ];
    let units: Vec<Unit> = Unit::ALL
        .into_iter()
        .filter(|&unit| kinds.iter().any(|&(w, m, _)| find(record, w, unit, m).is_some()))
        .collect();
    if units.is_empty() {
        return None;
    }
    let mut table = Table::new("Memory Usage Per Unit")
        .column("Runtime", Align::Left)
        .column("Memory", Align::Left)
        .column("Count", Align::Right);
    for heading in ["Memory (bytes)", "Total (MB)"] {
        for &unit in &units {
            table = table.column(format!("{} {heading}", title(unit)), Align::Right);
        }
    }
    let label = runtimes(record);
    let mut labels = label.lines();
    for (workload, metric, name) in kinds {
        let found: Vec<_> =
            units.iter().map(|&unit| find(record, workload, unit, metric)).collect();
        let Some(any) = found.iter().flatten().next() else {
            continue;
        };
        let count = units_of(any);
        let mut row =
            vec![labels.next().unwrap_or_default().to_owned(), name.to_owned(), grouped(count, 0)];
        row.extend(found.iter().map(|&m| cell(m, &|m| grouped(m.median, 0))));
        // The published tables' megabyte is 1,048,576 bytes.
        let total = |m: &Measurement| grouped(m.median * count / (1 << 20) as f64, 1);
        row.extend(found.iter().map(|&m| cell(m, &total)));
        table.rows.push(row);
    }
    table.notes = vec![
        "Own: the process's resident memory. Whole: with what the kernel keeps for it.".into(),
        "The most there was with all units alive; parked: while all were parked. 1 MB is \
         1,048,576 bytes."
            .into(),
    ];
    Some(table)
}

/// One row a unit, for tables that have several figures of each.
fn by_mode(
    record: &Record,
    mut table: Table,
    workload: Workload,
    metrics: [Metric; 2],
    show: &dyn Fn(&Measurement, &Measurement) -> Vec<String>,
) -> Option<Table> {
    let mut last = String::new();
    for unit in Unit::ALL {
        let [first, second] = metrics.map(|metric| find(record, workload, unit, metric));
        let (Some(first), Some(second)) = (first, second) else {
            continue;
        };
        let name = runtime(first);
        // As published: a runtime is named once, above its modes.
        let label = if name == last { String::new() } else { name.clone() };
        last = name;
        let mut row = vec![label, format!("{}s", title(unit))];
        row.extend(show(first, second));
        table.rows.push(row);
    }
    if table.rows.is_empty() { None } else { Some(table) }
}

fn warming(record: &Record) -> Option<Table> {
    let mut table = Table::new("Cache Warming Performance")
        .column("Runtime", Align::Left)
        .column("Mode", Align::Left)
        .column("First Alloc (μs)", Align::Right)
        .column("Last Alloc (μs)", Align::Right)
        .column("Improvement", Align::Right);
    table.notes.push(format!(
        "Allocation in a process's first and last round ({}).",
        crowd(record, Workload::Warm)
    ));
    let metrics = [Metric::FirstTimePerUnit, Metric::LastTimePerUnit];
    by_mode(record, table, Workload::Warm, metrics, &|first, last| {
        vec![
            micros(first.median, 3),
            micros(last.median, 3),
            number::ratio(first.median / last.median),
        ]
    })
}

fn throughput(record: &Record) -> Option<Table> {
    let mut table = Table::new("Throughput Performance")
        .column("Runtime", Align::Left)
        .column("Mode", Align::Left)
        .column("Total Time (ms)", Align::Right)
        .column("Concurrency", Align::Right)
        .column("Max Throughput (req/s)", Align::Right);
    table.notes.push(format!(
        "The last, warm round, a unit for each request ({}).",
        crowd(record, Workload::Throughput)
    ));
    let metrics = [Metric::Time, Metric::UnitsPerSecond];
    by_mode(record, table, Workload::Throughput, metrics, &|time, rate| {
        vec![grouped(time.median, 1), grouped(units_of(time), 0), grouped(rate.median, 0)]
    })
}

/// Every figure with its interval.
pub(super) fn intervals(record: &Record) -> Option<Table> {
    let mut table = Table::new("Medians and 95% Intervals")
        .column("Workload", Align::Left)
        .column("Unit", Align::Left)
        .column("Figure", Align::Left)
        .column("Median", Align::Right)
        .column("From", Align::Right)
        .column("To", Align::Right)
        .column("Samples", Align::Right);
    for m in &record.results {
        table.rows.push(vec![
            m.subject.workload.clone(),
            m.subject.unit.clone(),
            m.metric.replace('_', " "),
            number::value(&m.metric, m.median),
            bound(m, m.ci_low),
            bound(m, m.ci_high),
            m.samples.len().to_string(),
        ]);
    }
    if table.rows.is_empty() { None } else { Some(table) }
}
