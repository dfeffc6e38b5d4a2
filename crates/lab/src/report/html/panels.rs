//! The charts, a panel for each workload.

use std::collections::BTreeSet;

use carefree_workloads::named::distinct;
use carefree_workloads::workload::Workload;
use maud::{Markup, html};

use super::bars::{self, Bar};
use super::crossings;
use super::curves::{Chart, Curve, Point};
use super::dumbbells::{self, Row};
use super::markup::{MOST, class, joined, left_out};
use super::sources;
use super::strips::{self, Strip};
use crate::metric::{self, Figure, Metric, TIME};
use crate::number::grouped;
use crate::record::Measurement;
use crate::report::contest;
use crate::report::serving;
use crate::report::tables::{self, Fetches, meal};
use crate::report::view::{Crew, Seat, View};

/// Charts of a workload's figures.
fn charts(view: &View<'_>, workload: Workload) -> Vec<Markup> {
    match workload {
        Workload::Feed => feed(view),
        Workload::Fetch => bars_of(workload, &tables::fetches(view)),
        Workload::Serve => servers(view),
        _ => gated(view, workload),
    }
}

/// The figures of a workload that have charts, in the order of those.
fn charted(workload: Workload) -> Vec<&'static Figure> {
    let mut figures: Vec<&Figure> =
        metric::of(workload).filter(|figure| !figure.chart.is_empty()).collect();
    figures.sort_by_key(|figure| !figure.leads);
    figures
}

pub(super) fn render(view: &View<'_>) -> Markup {
    let panels = Workload::ALL.map(|workload| (workload, charts(view, workload)));
    let panels: Vec<_> = panels.into_iter().filter(|(_, charts)| !charts.is_empty()).collect();
    html! {
        @if !panels.is_empty() {
            div role="tablist" aria-label="Workload" hidden {
                @for (name, _) in &panels {
                    button type="button" role="tab" id={ "tab-" (name) }
                        aria-controls={ "panel-" (name) } aria-selected="false" { (name) }
                }
            }
        }
        @for (workload, charts) in &panels {
            div role="tabpanel" id={ "panel-" (workload) } aria-labelledby={ "tab-" (workload) } {
                h3 { (workload) }
                p { (workload.about()) }
                @if let Some(shared) = shared(view, *workload) { p class="soft" { (shared) } }
                div class="charts" { @for chart in charts.iter().take(MOST) { (chart) } }
                (left_out(charts.len(), MOST, "charts"))
            }
        }
    }
}

/// What all charts of a workload have in common, where that is told once.
fn shared(view: &View<'_>, workload: Workload) -> Option<String> {
    match workload {
        Workload::Fetch => tables::shared_work(&tables::fetches(view)),
        Workload::Serve => tables::shared_work(&serving::servers(view)),
        _ => None,
    }
}

/// What a crew has of a figure.
pub(super) fn row<'a>(view: &View<'a>, crew: &Crew<'a>, figure: &Figure) -> Row<'a> {
    let first = crew.seats.iter().flatten().next();
    Row {
        label: crew.label.replace('\n', " "),
        runtime: first.map_or("", |who| who.runtime).to_owned(),
        place: first.map_or_else(String::new, |who| view.places[who.place].clone()),
        seats: Seat::ALL.map(|seat| view.find(crew.at(seat)?, figure.name())),
    }
}

/// A row for each runtime, its fiber beside its thread.
fn gated(view: &View<'_>, workload: Workload) -> Vec<Markup> {
    let crews = view.crews();
    let chart = |figure: &Figure| {
        let says = |crew: &&Crew<'_>| crew.says(view, &[figure.name()]);
        let rows = crews.iter().filter(says).map(|crew| row(view, crew, figure));
        let rows: Vec<Row<'_>> = rows.collect();
        (!rows.is_empty()).then(|| dumbbells::chart(figure.chart, figure.metric.quantity, rows))
    };
    charted(workload).into_iter().filter_map(chart).collect()
}

/// The hue of a way to feed.
fn hue(m: &Measurement) -> &'static str {
    match tables::how(m).as_str() {
        "hybrid" => "hybrid",
        "processes" => "processes",
        _ => class(Seat::of(m)),
    }
}

/// A chart for each number of nutrients, with and without yields, over the number of people; where
/// that is always the same, one chart over the nutrients.
fn feed(view: &View<'_>) -> Vec<Markup> {
    if view.families("feed").is_empty() {
        return Vec::new();
    }
    let mut charts = crossings::charts(&contest::all(view));
    // One scale upwards for all: a language's curves can be laid beside another's.
    let all = view.families("feed").into_iter().flat_map(|family| family.figures);
    let times = all.filter(|m| m.metric == TIME.name && m.median > 0.0).map(|m| m.median);
    let reach: Vec<f64> =
        [f64::min, f64::max].into_iter().filter_map(|end| times.clone().reduce(end)).collect();
    for family in view.families("feed") {
        let figures: Vec<&Measurement> =
            family.figures.iter().copied().filter(|m| m.metric == TIME.name).collect();
        let several =
            |name: &str| -> BTreeSet<u64> { figures.iter().map(|m| meal(m, name)).collect() };
        let (people, nutrients) = (several("people"), several("nutrients"));
        if people.len() == 1 {
            let people = people.first().copied().unwrap_or(0);
            let title = format!("{}: {}", family.label, tables::people(people));
            charts.push(meals(title, "bites each", "nutrients", &figures, &reach));
            continue;
        }
        for (yields, remark) in
            [("yes", ", a yield at every bite"), ("no", ", no yields"), (tables::NOTHING, "")]
        {
            for &nutrients in &nutrients {
                let shown: Vec<&Measurement> = figures
                    .iter()
                    .copied()
                    .filter(|m| (meal(m, "nutrients"), tables::yields(m)) == (nutrients, yields))
                    .collect();
                if !shown.is_empty() {
                    let bites = tables::bites(nutrients);
                    let title = format!("{}: {bites} each{remark}", family.label);
                    charts.push(meals(title, "people", "people", &shown, &reach));
                }
            }
        }
    }
    charts
}

fn meals(
    title: String,
    across: &str,
    along: &str,
    shown: &[&Measurement],
    reach: &[f64],
) -> Markup {
    let places: BTreeSet<u64> = shown.iter().map(|m| meal(m, along)).collect();
    let mut ways = distinct(shown.iter().map(|m| (tables::way(m), tables::yields(m), hue(m))));
    let order = ["thread", "fiber", "coroutine", "hybrid", "processes"];
    ways.sort_by_key(|(name, _, hue)| (order.iter().position(|known| known == hue), name.clone()));
    let mixed = ways.iter().any(|(_, yields, _)| *yields != ways[0].1);
    let find = |name: &str, yields: &str, at: u64| {
        let here = |m: &&&Measurement| {
            meal(m, along) == at && (&*tables::way(m), tables::yields(m)) == (name, yields)
        };
        shown.iter().find(here).copied()
    };
    let (mut curves, mut behind) = (Vec::new(), Vec::new());
    for (number, (way, yields, hue)) in ways.iter().enumerate() {
        let name = match *yields {
            "yes" if mixed => format!("{way}, yielding at every bite"),
            "no" if mixed => format!("{way}, not yielding"),
            _ => way.clone(),
        };
        let found: Vec<Option<&Measurement>> =
            places.iter().map(|&at| find(way, yields, at)).collect();
        let strips = found.iter().zip(&places).filter_map(|(m, &at)| {
            let size = match across {
                "people" => tables::people(at),
                _ => tables::bites(at),
            };
            let label = format!("{name}, {size}");
            Some(Strip { label, class: hue, m: (*m)? })
        });
        behind.push((name.clone(), strips.collect()));
        curves.push(Curve {
            values: found.iter().map(|m| m.map(Point::of)).collect(),
            class: hue,
            // A second way of one hue, such as a second kind of fiber.
            turn: ways[..number].iter().filter(|(.., known)| known == hue).count(),
            name,
        });
    }
    let more = html! {
        (strips::of_curves(&title, TIME.quantity, &behind))
        (sources::links(shown.iter().copied()))
    };
    Chart {
        title,
        runtimes: joined(shown.iter().map(|m| &*m.subject.runtime)),
        remark: "Less is better.".into(),
        quantity: TIME.quantity,
        reach: reach.to_vec(),
        across,
        places: places.iter().map(|&place| grouped(place as f64, 0)).collect(),
        curves,
        more,
    }
    .html()
}

/// Bars of every way to fetch, the best first, a chart for each runtime and set of
/// parameters.
fn bars_of(workload: Workload, all: &[Fetches<'_>]) -> Vec<Markup> {
    let mut charts = Vec::new();
    for fetches in all {
        for figure in charted(workload) {
            let Metric { name, quantity } = figure.metric;
            let found = fetches.ways.iter().filter_map(|(way, _)| {
                let m = fetches.find(way, name)?;
                let (class, kind) = match *way {
                    "sequential" | "keep-alive" => ("alone", "One after the other"),
                    _ => (class(Seat::of(m)), Seat::of(m).title()),
                };
                Some(Bar { label: (*way).to_owned(), runtime: None, class, kind, m })
            });
            let bars: Vec<Bar<'_>> = found.collect();
            if !bars.is_empty() {
                let title = format!("{}: {}", fetches.label, figure.chart.to_lowercase());
                let sizes = tables::own_work(all, fetches).to_string();
                charts.push(bars::chart(&title, &sizes, quantity, &bars));
            }
        }
    }
    charts
}

/// Bars of all servers that had the same load on one machine, the best first: a chart for each
/// figure, with all runtimes in it.
fn servers(view: &View<'_>) -> Vec<Markup> {
    let all = serving::servers(view);
    let loads = distinct(all.iter().map(|servers| (servers.place, &servers.parameters)));
    let several = distinct(all.iter().map(|servers| servers.place)).len() > 1;
    let mut charts = Vec::new();
    for (place, parameters) in loads {
        let here: Vec<_> = all
            .iter()
            .filter(|servers| (servers.place, &servers.parameters) == (place, parameters))
            .collect();
        let subjects = || here.iter().flat_map(|servers| &servers.figures).map(|m| &m.subject);
        let versions = distinct(subjects().map(|s| (&s.runtime, &s.version)));
        let label = |m: &Measurement| {
            let s = &m.subject;
            match versions.iter().filter(|(runtime, _)| **runtime == s.runtime).count() {
                1 => format!("{} {}", s.runtime, s.unit),
                _ => format!("{} {} {}", s.runtime, s.version, s.unit),
            }
        };
        let mut sizes = tables::own_work(&all, here[0]).to_string();
        if several {
            sizes = format!("On {}. {sizes}", view.places[place]);
        }
        for figure in charted(Workload::Serve) {
            let Metric { name, quantity } = figure.metric;
            let found = here.iter().flat_map(|servers| &servers.figures).copied();
            let mut bars: Vec<Bar<'_>> = Vec::new();
            for m in found.filter(|m| m.metric == name) {
                let runtime = Some(&*m.subject.runtime);
                let seat = Seat::of(m);
                let (class, kind) = (class(seat), seat.title());
                bars.push(Bar { label: label(m), runtime, class, kind, m });
            }
            bars.sort_by(|a, b| match quantity.more_is_better() {
                true => b.m.median.total_cmp(&a.m.median),
                false => a.m.median.total_cmp(&b.m.median),
            });
            if !bars.is_empty() {
                charts.push(bars::chart(figure.chart, sizes.trim_end(), quantity, &bars));
            }
        }
    }
    charts
}
