//! The charts, a panel for each workload.

use std::collections::BTreeSet;

use carefree_workloads::fetch::SEQUENTIAL;
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
use crate::connections::{KEPT, SEQUENTIAL_KEPT, asked_unit};
use crate::metric::{self, Figure, Metric, TIME};
use crate::number::grouped;
use crate::record::Measurement;
use crate::report::contest::{self, Contest, Work};
use crate::report::serving;
use crate::report::tables::{self, Fetches, meal};
use crate::report::text::capitalized;
use crate::report::view::{Crew, Seat, View};

/// Charts of a workload's figures.
fn charts(view: &View<'_>, workload: Workload) -> Vec<Markup> {
    match workload {
        Workload::Feed => feed(view),
        Workload::Fetch => fetch(view),
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
        alone: None,
    }
}

/// A row for each runtime, its fiber beside its thread.
fn gated(view: &View<'_>, workload: Workload) -> Vec<Markup> {
    let crews = view.crews();
    let chart = |figure: &Figure| {
        let says = |crew: &&Crew<'_>| crew.says(view, &[figure.name()]);
        let rows = crews.iter().filter(says).map(|crew| row(view, crew, figure));
        let rows: Vec<Row<'_>> = rows.collect();
        (!rows.is_empty())
            .then(|| dumbbells::chart(figure.chart, figure.metric.quantity, rows, &[]))
    };
    charted(workload).into_iter().filter_map(chart).collect()
}

/// What an axis has to have room for to show all of these.
fn ends<'a>(figures: impl Iterator<Item = &'a Measurement>) -> Vec<f64> {
    figures.flat_map(|m| [Some(m.median), m.ci_low, m.ci_high]).flatten().collect()
}

/// The hue of a way to feed.
fn hue(m: &Measurement) -> &'static str {
    match tables::how(m).as_str() {
        "hybrid" => "hybrid",
        "processes" => "processes",
        _ => class(Seat::of(m)),
    }
}

/// Where threads overtake, all runtimes beside each other for each length of meal, and the curves of each
/// runtime.
fn feed(view: &View<'_>) -> Vec<Markup> {
    if view.families("feed").is_empty() {
        return Vec::new();
    }
    let contests = contest::all(view);
    let mut charts = crossings::charts(&contests);
    charts.extend(side_by_side(&contests));
    let curves = curves(view);
    // All languages are beside each other above.
    match view.families("feed").len() {
        1 => charts.extend(curves),
        _ => charts.push(html! {
            details class="more" {
                summary { "The curves of each runtime, a chart for each" }
                div class="charts" { @for chart in curves.iter().take(MOST) { (chart) } }
                (left_out(curves.len(), MOST, "charts"))
            }
        }),
    }
    charts
}

/// The fastest ways of all runtimes beside each other, a chart for each length of meal, on one axis.
fn side_by_side(contests: &[Contest<'_>]) -> Vec<Markup> {
    let meals = contests.iter().flat_map(|contest| &contest.meals);
    let reach = ends(meals.flat_map(|meal| [meal.light, meal.thread]));
    let mut charts = Vec::new();
    for work in Work::ALL {
        let all: Vec<&Contest<'_>> = contests.iter().filter(|c| c.work == work).collect();
        if all.len() < 2 {
            continue;
        }
        let crowds: BTreeSet<u64> = all.iter().map(|contest| contest.people).collect();
        let lengths: BTreeSet<u64> =
            all.iter().flat_map(|contest| &contest.meals).map(|meal| meal.bites).collect();
        for length in lengths {
            let found = all.iter().filter_map(|contest| {
                let meal = contest.meals.iter().find(|meal| meal.bites == length)?;
                let mut label = contest.label.clone();
                let way = tables::way(meal.light);
                if way != "fiber" {
                    label += &format!(" ({way})");
                }
                if crowds.len() > 1 {
                    label += &format!(", {}", tables::people(contest.people));
                }
                let mut seats = [None; 3];
                seats[Seat::of(meal.light) as usize] = Some(meal.light);
                seats[Seat::Thread as usize] = Some(meal.thread);
                let runtime = meal.thread.subject.runtime.clone();
                Some(Row { label, runtime, place: String::new(), seats, alone: None })
            });
            let rows: Vec<Row<'_>> = found.collect();
            let people = match crowds.first() {
                Some(people) if crowds.len() == 1 => format!("{}, ", tables::people(*people)),
                _ => String::new(),
            };
            let bites = tables::bites(length);
            let title = format!("{people}{bites} each, {}", work.title());
            charts.push(dumbbells::chart(&title, TIME.quantity, rows, &reach));
        }
    }
    charts
}

/// A chart for each runtime and number of nutrients, with and without yields, over the number of people;
/// where that is always the same, one chart over the nutrients.
fn curves(view: &View<'_>) -> Vec<Markup> {
    let mut charts = Vec::new();
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

/// A chart for each figure with all runtimes in it: a row for each way to fetch with threads and with
/// something lighter, and what the same requests took one after the other. Where connections were kept
/// there is a second one, on the same axis.
fn fetch(view: &View<'_>) -> Vec<Markup> {
    let all = tables::fetches(view);
    let mut charts = Vec::new();
    for figure in charted(Workload::Fetch) {
        let of = |kept| -> Vec<Row<'_>> {
            all.iter()
                .flat_map(|fetches| rows_of(view, &all, fetches, figure.metric, kept))
                .collect()
        };
        let figures = all.iter().flat_map(|fetches| &fetches.figures).copied();
        let reach = ends(figures.filter(|m| m.metric == figure.metric.name));
        for (kept, more) in [(false, ""), (true, ", connections kept")] {
            let (title, rows) = (format!("{}{more}", figure.chart), of(kept));
            if !rows.is_empty() {
                charts.push(dumbbells::chart(&title, figure.metric.quantity, rows, &reach));
            }
        }
    }
    charts
}

/// The rows of one family's ways to fetch, of those that keep connections or of the others.
fn rows_of<'a>(
    view: &View<'_>,
    all: &[Fetches<'a>],
    fetches: &Fetches<'a>,
    metric: Metric,
    kept: bool,
) -> Vec<Row<'a>> {
    let place = view.places[fetches.place].clone();
    let own = tables::own_work(all, fetches).to_string().replace(' ', ", ");
    let mut rows = Vec::new();
    let found = fetches.ways.iter().filter_map(|(way, _)| {
        let keeps = *way == SEQUENTIAL_KEPT || way.ends_with(KEPT);
        let name = asked_unit(way);
        (keeps == kept).then_some((name, fetches.find(way, metric.name)?))
    });
    let found: Vec<(&str, &'a Measurement)> = found.collect();
    let of = |thread: bool| -> Vec<(&str, &'a Measurement)> {
        let units = found.iter().copied().filter(|(name, _)| *name != SEQUENTIAL);
        units.filter(|(_, m)| (Seat::of(m) == Seat::Thread) == thread).collect()
    };
    let alone = found.iter().find(|(name, _)| *name == SEQUENTIAL).map(|(_, m)| *m);
    let (lights, heavies) = (of(false), of(true));
    // A thread is beside each of the lighter ones, as in the tables.
    for at in 0..lights.len().max(heavies.len()).max(1) {
        let pick = |of: &[(&'a str, &'a Measurement)]| of.get(at).or(of.first()).copied();
        let (light, heavy) = (pick(&lights), pick(&heavies));
        let Some(first) = light.or(heavy).map(|(_, m)| m).or(alone) else { continue };
        let mut label = format!("{} {}", first.subject.runtime, first.subject.version);
        let named = [light.filter(|(name, _)| *name != "fiber"), heavy];
        let names = named.iter().flatten().map(|(name, _)| *name);
        let names: Vec<&str> = names.filter(|name| *name != "thread").collect();
        if !names.is_empty() {
            label += &format!(" ({})", names.join(" / "));
        }
        for more in [&own, &place] {
            if !more.is_empty() {
                label += &format!(", {more}");
            }
        }
        let mut seats = [None; 3];
        for (_, m) in light.into_iter().chain(heavy) {
            seats[Seat::of(m) as usize] = Some(m);
        }
        let runtime = first.subject.runtime.clone();
        rows.push(Row { label, runtime, place: place.clone(), seats, alone });
    }
    rows
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
        let load = serving::own_load(&all, here[0]).map(|load| capitalized(&load));
        let machine = several.then(|| format!("On {}", view.places[place]));
        let sizes = Vec::from_iter(machine.into_iter().chain(load)).join(". ");
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
                charts.push(bars::chart(figure.chart, &sizes, quantity, &bars));
            }
        }
    }
    charts
}
