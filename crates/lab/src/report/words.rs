//! What the figures come down to, in plain words.

use super::number::{times, value};
use crate::record::{Measurement, Record};
use crate::unit::Unit;
use crate::workload::{Metric, Workload};

/// A comparison worth a sentence: `Here a fiber {better} than a thread`.
struct Point {
    workload: Workload,
    metric: Metric,
    /// `starts {} faster than`, with the place of the ratio.
    better: [&'static str; 2],
    /// `starts as fast as`.
    equal: &'static str,
}

const POINTS: [Point; 5] = [
    Point {
        workload: Workload::Alloc,
        metric: Metric::TimePerUnit,
        better: ["starts", "faster than"],
        equal: "starts as fast as",
    },
    Point {
        workload: Workload::Warm,
        metric: Metric::LastTimePerUnit,
        better: ["that follows others starts", "faster than"],
        equal: "that follows others starts as fast as",
    },
    Point {
        workload: Workload::Switch,
        metric: Metric::TimePerSwitch,
        better: ["switches", "faster than"],
        equal: "switches as fast as",
    },
    Point {
        workload: Workload::Throughput,
        metric: Metric::Time,
        better: ["for each request serves them", "faster than"],
        equal: "for each request serves them as fast as",
    },
    Point {
        workload: Workload::Alloc,
        metric: Metric::WholeMemoryPerUnit,
        better: ["takes", "less memory, the kernel's part included, than"],
        equal: "takes as much memory, the kernel's part included, as",
    },
];

/// One sentence for each comparison of a fiber, or else of a coroutine, with a thread.
pub(super) fn sentences(record: &Record) -> Vec<String> {
    POINTS.iter().filter_map(|point| sentence(record, point)).collect()
}

fn sentence(record: &Record, point: &Point) -> Option<String> {
    let find = |unit| record.find(point.workload, unit, point.metric);
    let thread = find(Unit::Thread)?;
    let light = find(Unit::Fiber).or_else(|| find(Unit::Coroutine))?;
    let figures = |first: &Measurement, second: &Measurement| {
        format!(
            "{} against {}",
            value(point.metric, first.median),
            value(point.metric, second.median)
        )
    };
    // Of all these figures less is better. Where the intervals meet, chance may have decided.
    let (winner, loser) =
        if light.median <= thread.median { (light, thread) } else { (thread, light) };
    Some(if winner.ci_high >= loser.ci_low {
        format!(
            "Here a {} {} a {}, as far as these samples can tell ({}).",
            light.unit,
            point.equal,
            thread.unit,
            figures(light, thread)
        )
    } else {
        let [verb, than] = point.better;
        format!(
            "Here a {} {verb} {} {than} a {} ({}).",
            winner.unit,
            times(loser.median / winner.median),
            loser.unit,
            figures(winner, loser)
        )
    })
}
