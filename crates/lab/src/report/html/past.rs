//! Figures over versions and time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use carefree_workloads::named::distinct;
use maud::{Markup, html};

use super::bars::direction;
use super::curves::{Chart, Curve, Point, Step, VERSIONS};
use super::markup::{MOST, joined, left_out, list_of};
use super::strips::{self, Strip};
use crate::history::{self, Series};
use crate::metric::{FIGURES, Figure, Quantity};
use crate::record::Record;
use crate::version::version_key;

/// Steps, and charts, that are shown without being asked for.
const AT_ONCE: usize = 8;
const CHARTS: usize = 6;

/// The steps in words, and the charts.
pub(super) fn render(records: &[Record], names: &[&str], said: &[String]) -> Markup {
    let (first, rest) = said.split_at(said.len().min(AT_ONCE));
    html! {
        (list_of(names, first))
        @if !rest.is_empty() {
            details { summary { (rest.len()) " more" } (list_of(names, rest)) }
        }
        (charts(records))
    }
}

/// The figures that tell most, over versions and time: times first, then memory.
pub(super) fn charts(records: &[Record]) -> Markup {
    let all = history::series(records);
    let mut figures: Vec<&Figure> = FIGURES.iter().filter(|f| !f.curve.is_empty()).collect();
    figures.sort_by_key(|figure| figure.metric.quantity == Quantity::Bytes);
    let measured = all.iter().filter(|series| series.points[0].0.ci_low.is_some());
    let several = distinct(measured.map(|series| &series.machine)).len() > 1;
    let mut wanted = Vec::new();
    for figure in figures {
        // Units of one runtime on one machine share a chart.
        let mut groups: BTreeMap<(&str, bool, String, &str), Vec<&Series<'_>>> = BTreeMap::new();
        for series in &all {
            let (m, _) = series.points[0];
            if (&*m.subject.workload, &*m.metric) == figure.name() {
                let published = m.ci_low.is_none();
                let parameters = m.subject.parameters.to_string();
                let key = (&*m.subject.runtime, published, parameters, &*series.machine);
                groups.entry(key).or_default().push(series);
            }
        }
        for ((runtime, published, _, machine), group) in groups {
            let place = match (published, several) {
                (true, _) => ", published".to_owned(),
                (false, true) => format!(", on {machine}"),
                (false, false) => String::new(),
            };
            let title = format!("{runtime}{place}: {}", figure.curve);
            wanted.push((title, figure.metric.quantity, group));
        }
    }
    let count = wanted.len();
    if count > MOST {
        // Those are left out that changed least.
        let largest = |group: &[&Series<'_>]| {
            let factors = group.iter().flat_map(|series| series.steps());
            factors.map(|step| step.change.factor()).fold(1.0, f64::max)
        };
        wanted.sort_by_cached_key(|(.., group)| Reverse(largest(group).to_bits()));
        wanted.truncate(MOST);
    }
    let charts: Vec<Markup> =
        wanted.into_iter().map(|(title, quantity, group)| chart(title, quantity, &group)).collect();
    let grid =
        |charts: &[Markup]| html! { div class="charts" { @for chart in charts { (chart) } } };
    let (first, rest) = charts.split_at(charts.len().min(CHARTS));
    html! {
        @if !first.is_empty() { (grid(first)) }
        @if !rest.is_empty() {
            details class="more" { summary { (rest.len()) " more charts" } (grid(rest)) }
        }
        (left_out(count, MOST, "charts"))
    }
}

fn chart(title: String, quantity: Quantity, group: &[&Series<'_>]) -> Markup {
    // Within one version, dates tell the points apart.
    let place = |series: &Series<'_>, at: usize| {
        let (m, started) = series.points[at];
        let version = &m.subject.version;
        let same = series.points.iter().filter(|(m, _)| m.subject.version == *version).count();
        let date = if same > 1 { started } else { "" };
        // The time for the order, and what stands below the point.
        let label = if same > 1 { series.moment(started) } else { "" };
        (version_key(version), version.clone(), date.to_owned(), label.to_owned())
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
            let steps = series.steps();
            let point = |at: usize| {
                let (m, _) = series.points[at];
                let step = steps.iter().find(|step| std::ptr::eq(step.new, m));
                let step = step.map(|step| match step.is_worse() {
                    true => Step::Worse,
                    false => Step::Better,
                });
                Point { step, ..Point::of(m) }
            };
            let points: BTreeMap<_, Point> =
                (0..series.points.len()).map(|at| (place(series, at), point(at))).collect();
            Curve {
                name: m.subject.unit.clone(),
                class: m.role().name(),
                turn: usize::from(m.subject.unit == "coroutine"),
                values: places.iter().map(|place| points.get(place).copied()).collect(),
            }
        })
        .collect();
    let day = |date: &str| date.get(..10).map(str::to_owned);
    let names = places.iter().map(|(key, version, date, label)| {
        if label != date {
            return format!("{version}, {label}");
        }
        let same_day = places.iter().filter(|other| other.0 == *key && day(&other.2) == day(date));
        // Runs of the same day are labelled with the minute.
        let time = match same_day.count() {
            1 => day(date),
            _ => date.get(..16).map(|minute| minute.replace('T', " ")),
        };
        time.map_or_else(|| version.clone(), |time| format!("{version}, {time}"))
    });
    let names: Vec<String> = names.collect();
    // What is behind each curve.
    let mut behind: Vec<(String, Vec<Strip<'_>>)> = Vec::new();
    for series in group {
        let strips = (0..series.points.len()).map(|at| {
            let (m, _) = series.points[at];
            let name = places.iter().position(|known| *known == place(series, at));
            let name = name.map_or("", |name| &*names[name]);
            Strip { label: format!("{}, {name}", m.subject.unit), class: m.role().name(), m }
        });
        behind.push((series.points[0].0.subject.unit.clone(), strips.collect()));
    }
    let more = strips::of_curves(&title, quantity, &behind);
    Chart {
        title,
        runtimes: joined(group.iter().map(|series| &*series.points[0].0.subject.runtime)),
        remark: format!("{}. A ring marks a step: broken, for the worse.", direction(quantity)),
        quantity,
        reach: Vec::new(),
        across: VERSIONS,
        places: names,
        curves,
        more,
    }
    .html()
}
