//! What the figures come down to, in plain words.

use super::number::{times, value};
use super::tables;
use crate::record::Record;
use crate::unit::Unit;
use crate::workload::{Metric, Workload};

/// A comparison worth a sentence. `{w}` is the unit that did better, `{l}` the other one, `{x}` how
/// many times.
struct Point {
    workload: Workload,
    metric: Metric,
    better: &'static str,
    /// What to say where the samples cannot tell them apart.
    equal: &'static str,
    /// What the figures in brackets need said.
    remark: &'static str,
}

const POINTS: [Point; 5] = [
    Point {
        workload: Workload::Alloc,
        metric: Metric::TimePerUnit,
        better: "Here a {w} starts {x} faster than a {l}",
        equal: "Here a {w} starts as fast as a {l}",
        remark: "",
    },
    Point {
        workload: Workload::Warm,
        metric: Metric::LastTimePerUnit,
        better: "Here, once warm, a {w} starts {x} faster than a {l}",
        equal: "Here, once warm, a {w} starts as fast as a {l}",
        remark: "",
    },
    Point {
        workload: Workload::Switch,
        metric: Metric::TimePerSwitch,
        better: "Here a {w} switches {x} faster than a {l}",
        equal: "Here a {w} switches as fast as a {l}",
        remark: "",
    },
    Point {
        workload: Workload::Throughput,
        metric: Metric::Time,
        better: "Here {w}s serve requests {x} faster than {l}s",
        equal: "Here {w}s serve requests as fast as {l}s",
        remark: "",
    },
    Point {
        workload: Workload::Alloc,
        metric: Metric::WholeMemoryPerUnit,
        better: "Here a {w} takes {x} less memory than a {l}",
        equal: "Here a {w} takes as much memory as a {l}",
        remark: ", all told",
    },
];

/// One sentence for each comparison of a fiber, or else of a coroutine, with a thread.
pub(super) fn sentences(record: &Record) -> Vec<String> {
    POINTS.iter().filter_map(|point| sentence(record, point)).collect()
}

fn sentence(record: &Record, point: &Point) -> Option<String> {
    let find = |unit| tables::find(record, point.workload, unit, point.metric);
    let thread = find(Unit::Thread)?;
    let light = find(Unit::Fiber).or_else(|| find(Unit::Coroutine))?;
    // Of all these figures less is better. Where the intervals meet, chance may have decided.
    let (winner, loser) =
        if light.median <= thread.median { (light, thread) } else { (thread, light) };
    let told_apart = match (winner.ci_high, loser.ci_low) {
        (Some(high), Some(low)) => high < low,
        _ => false,
    };
    let (template, winner, loser) =
        if told_apart { (point.better, winner, loser) } else { (point.equal, light, thread) };
    let claim = template
        .replace("{w}", &winner.subject.unit)
        .replace("{l}", &loser.subject.unit)
        .replace("{x}", &times(loser.median / winner.median));
    let doubt = if told_apart { "" } else { ", as far as these samples can tell" };
    let figure = |median| value(point.metric.name(), median);
    Some(format!(
        "{claim}{doubt} ({} against {}{}).",
        figure(winner.median),
        figure(loser.median),
        point.remark
    ))
}
