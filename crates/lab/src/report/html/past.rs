//! Figures over versions and time.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::curves::{Chart, Curve};
use super::markup::escape;
use crate::history::{self, Series};
use crate::record::{Record, Side, more_is_better, version_key};
use crate::report::text;

/// The charts that tell most; the others are in the tables.
const SHOWN: [(&str, &str, &str); 6] = [
    ("alloc", "time_per_unit", "time of a unit"),
    ("switch", "time_per_switch", "time of a switch"),
    ("warm", "last_time_per_unit", "time of a unit, warm"),
    ("throughput", "time", "time of a round of requests"),
    ("alloc", "memory_per_unit", "memory of a unit in the process"),
    ("alloc", "whole_memory_per_unit", "memory of a unit, all told"),
];

/// Steps, and charts, that are shown without being asked for.
const AT_ONCE: usize = 8;
const CHARTS: usize = 6;

pub(super) fn render(records: &[Record]) -> String {
    let mut html = String::new();
    let said = history::sentences(records);
    let item = |step: &String| format!("<li>{}.</li>\n", escape(&text::capitalized(step)));
    let (first, rest) = said.split_at(said.len().min(AT_ONCE));
    if !first.is_empty() {
        let _ = writeln!(html, "<ul>\n{}</ul>", first.iter().map(item).collect::<String>());
    }
    if !rest.is_empty() {
        let rest_shown: String = rest.iter().map(item).collect();
        let _ = writeln!(
            html,
            "<details><summary>{} smaller steps</summary><ul>\n{rest_shown}</ul></details>",
            rest.len()
        );
    }
    html + &charts(records)
}

/// The figures that tell most, over versions and time.
pub(super) fn charts(records: &[Record]) -> String {
    let all = history::series(records);
    let mut charts = Vec::new();
    for (workload, metric, title) in SHOWN {
        // Units of one runtime share a chart.
        let mut groups: BTreeMap<(&str, bool, String), Vec<&Series<'_>>> = BTreeMap::new();
        for series in &all {
            let (m, _) = series.points[0];
            if (&*m.subject.workload, &*m.metric) == (workload, metric) {
                let published = m.ci_low.is_none();
                let key = (&*m.subject.runtime, published, m.subject.parameters.to_string());
                groups.entry(key).or_default().push(series);
            }
        }
        for ((runtime, published, _), group) in groups {
            let published = if published { ", published" } else { "" };
            charts.push(chart(&format!("{runtime}{published}: {title}"), metric, &group));
        }
    }
    let grid = |charts: &[String]| match charts.is_empty() {
        true => String::new(),
        false => format!("<div class=\"charts\">\n{}</div>\n", charts.concat()),
    };
    let (first, rest) = charts.split_at(charts.len().min(CHARTS));
    match rest.is_empty() {
        true => grid(first),
        false => format!(
            "{}<details class=\"more\"><summary>{} more charts</summary>\n{}</details>\n",
            grid(first),
            rest.len(),
            grid(rest)
        ),
    }
}

fn chart(title: &str, metric: &str, group: &[&Series<'_>]) -> String {
    // Within one version, dates tell the points apart.
    let place = |series: &Series<'_>, at: usize| {
        let (m, started) = series.points[at];
        let version = &m.subject.version;
        let same = series.points.iter().filter(|(m, _)| m.subject.version == *version).count();
        let date = if same > 1 { started } else { "" };
        (version_key(version), version.clone(), date.to_owned())
    };
    let mut places: Vec<_> = group
        .iter()
        .flat_map(|series| (0..series.points.len()).map(|at| place(series, at)))
        .collect();
    places.sort();
    places.dedup();
    let curves = group
        .iter()
        .map(|series| {
            let (m, _) = series.points[0];
            let points: BTreeMap<_, f64> = (0..series.points.len())
                .map(|at| (place(series, at), series.points[at].0.median))
                .collect();
            Curve {
                name: m.subject.unit.clone(),
                class: if m.side() == Side::Thread { "thread" } else { "fiber" },
                turn: usize::from(m.subject.unit == "coroutine"),
                values: places.iter().map(|place| points.get(place).copied()).collect(),
            }
        })
        .collect();
    let day = |date: &str| date.get(..10).map(str::to_owned);
    let names = places.iter().map(|(key, version, date)| {
        let same_day = places.iter().filter(|other| other.0 == *key && day(&other.2) == day(date));
        // Two runs of one day are told apart by the minute.
        let time = match same_day.count() {
            1 => day(date),
            _ => date.get(..16).map(|minute| minute.replace('T', " ")),
        };
        time.map_or_else(|| version.clone(), |time| format!("{version}, {time}"))
    });
    Chart {
        title: title.to_owned(),
        remark: if more_is_better(metric) { "More is better." } else { "Less is better." }.into(),
        metric,
        across: "version",
        places: names.collect(),
        curves,
    }
    .html()
}
