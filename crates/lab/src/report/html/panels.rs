//! The charts, a panel for each workload.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::bars::{self, Bar};
use super::curves::{Chart, Curve};
use super::markup::escape;
use crate::record::Measurement;
use crate::report::number::grouped;
use crate::report::tables::{self, meal};
use crate::report::view::{Seat, View, Who};

/// A workload, what it is, and the charts it has.
struct Panel {
    workload: &'static str,
    about: &'static str,
    charts: &'static [(&'static str, &'static str)],
}

const PANELS: [Panel; 7] = [
    Panel {
        workload: "alloc",
        about: "Many units at once, two switches each: what it costs to have one.",
        charts: &[
            ("time_per_unit", "Time to create a unit, have it switch twice, end and join it"),
            ("whole_memory_per_unit", "Memory of a unit, with what the kernel keeps for it"),
            ("memory_per_unit", "Memory of a unit in the process alone"),
        ],
    },
    Panel {
        workload: "switch",
        about: "Two units on one core, many switches: what it costs to go from one to the other.",
        charts: &[
            ("time_per_switch", "Time of a switch"),
            ("switches_per_second", "Switches in a second"),
        ],
    },
    Panel {
        workload: "warm",
        about: "The same again ten times in one process: what caches and pools save.",
        charts: &[
            ("last_time_per_unit", "Time of a unit in the last round, warm"),
            ("first_time_per_unit", "Time of a unit in the first round, cold"),
        ],
    },
    Panel {
        workload: "throughput",
        about: "A crowd of units, a hundred switches each, as if each served a request.",
        charts: &[
            ("units_per_second", "Units that come to their end in a second"),
            ("time", "Time of a round"),
        ],
    },
    Panel {
        workload: "parked",
        about: "Many units that all wait: memory and nothing else.",
        charts: &[
            ("whole_memory_per_unit", "Memory of a parked unit, with what the kernel keeps for it"),
            ("memory_per_unit", "Memory of a parked unit in the process alone"),
        ],
    },
    Panel {
        workload: "feed",
        about: "People who each have to eat a number of nutrients, a unit for each of them.",
        charts: &[("time", "Time to feed everybody")],
    },
    Panel {
        workload: "fetch",
        about: "Pages fetched from a server that takes its time.",
        charts: &[
            ("time", "Time to fetch all pages"),
            ("bytes_allocated", "Memory allocated on the way"),
            ("bytes_traced_at_most", "Most memory in use at one moment, by the runtime's tracing"),
            ("peak_memory", "Most memory in use"),
        ],
    },
];

pub(super) fn render(view: &View<'_>) -> String {
    let panels: Vec<(&Panel, String)> = PANELS
        .iter()
        .map(|panel| {
            let charts = match panel.workload {
                "feed" => feed(view),
                "fetch" => fetch(view, panel),
                _ => gated(view, panel),
            };
            (panel, charts)
        })
        .filter(|(_, charts)| !charts.is_empty())
        .collect();
    if panels.is_empty() {
        return String::new();
    }
    let tabs: String = panels
        .iter()
        .map(|(panel, _)| {
            let name = panel.workload;
            format!(
                "<button type=\"button\" role=\"tab\" id=\"tab-{name}\" \
                 aria-controls=\"panel-{name}\" aria-selected=\"false\">{name}</button>"
            )
        })
        .collect();
    let mut html = format!("<div role=\"tablist\" aria-label=\"Workload\" hidden>{tabs}</div>\n");
    for (panel, charts) in panels {
        let name = panel.workload;
        let _ = writeln!(
            html,
            "<div role=\"tabpanel\" id=\"panel-{name}\" aria-labelledby=\"tab-{name}\">\n\
             <h3>{name}</h3><p>{}</p>\n<div class=\"charts\">\n{charts}</div></div>",
            escape(panel.about)
        );
    }
    html
}

pub(super) fn class(seat: Seat) -> &'static str {
    match seat {
        Seat::Coroutine => "coroutine",
        Seat::Fiber => "fiber",
        Seat::Thread => "thread",
    }
}

pub(super) fn label(view: &View<'_>, who: Who<'_>) -> String {
    let label = format!("{} {} {}", who.runtime, who.version, who.unit);
    match view.places[who.place].as_str() {
        "" => label,
        place => format!("{label}, {place}"),
    }
}

/// Bars of every unit, in the order of the tables.
fn gated(view: &View<'_>, panel: &Panel) -> String {
    let mut seen = BTreeSet::new();
    let mut units: Vec<(Who<'_>, Seat, String)> = Vec::new();
    for crew in view.crews() {
        for seat in Seat::ALL {
            if let Some(who) = crew.at(seat).filter(|who| seen.insert(*who)) {
                units.push((who, seat, label(view, who)));
            }
        }
    }
    let mut html = String::new();
    for (metric, title) in panel.charts {
        let bars: Vec<Bar<'_>> = units
            .iter()
            .filter_map(|(who, seat, label)| {
                let m = view.find(*who, panel.workload, metric)?;
                Some(Bar { label, class: class(*seat), m })
            })
            .collect();
        if !bars.is_empty() {
            html += &bars::chart(title, "", metric, &bars);
        }
    }
    html
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
fn feed(view: &View<'_>) -> String {
    let mut html = String::new();
    for family in view.families("feed") {
        let figures: Vec<&Measurement> =
            family.figures.iter().copied().filter(|m| m.metric == "time").collect();
        let several =
            |name: &str| -> BTreeSet<u64> { figures.iter().map(|m| meal(m, name)).collect() };
        let (people, nutrients) = (several("people"), several("nutrients"));
        if people.len() == 1 {
            let people = people.first().copied().unwrap_or(0);
            let title = format!("{}: {} people", family.label, grouped(people as f64, 0));
            html += &meals(title, "nutrients each", "nutrients", &figures);
            continue;
        }
        for (yields, remark) in
            [("yes", ", a yield at every bite"), ("no", ", no yields"), (tables::NOTHING, "")]
        {
            for &bites in &nutrients {
                let shown: Vec<&Measurement> = figures
                    .iter()
                    .copied()
                    .filter(|m| (meal(m, "nutrients"), tables::yields(m)) == (bites, yields))
                    .collect();
                if !shown.is_empty() {
                    let bites = grouped(bites as f64, 0);
                    let title = format!("{}: {bites} nutrients each{remark}", family.label);
                    html += &meals(title, "people", "people", &shown);
                }
            }
        }
    }
    html
}

fn meals(title: String, across: &str, along: &str, shown: &[&Measurement]) -> String {
    let places: BTreeSet<u64> = shown.iter().map(|m| meal(m, along)).collect();
    let mut ways: Vec<(String, &str, &'static str)> = Vec::new();
    for m in shown {
        let way = (tables::way(m), tables::yields(m), hue(m));
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let order = ["thread", "fiber", "coroutine", "hybrid", "processes"];
    ways.sort_by_key(|(name, _, hue)| (order.iter().position(|known| known == hue), name.clone()));
    let mixed = ways.iter().any(|(_, yields, _)| *yields != ways[0].1);
    let curves = ways
        .iter()
        .enumerate()
        .map(|(number, (name, yields, hue))| Curve {
            values: places
                .iter()
                .map(|&at| {
                    let here = |m: &&&Measurement| {
                        meal(m, along) == at
                            && (tables::way(m), tables::yields(m)) == (name.clone(), *yields)
                    };
                    shown.iter().find(here).map(|m| m.median)
                })
                .collect(),
            class: hue,
            // A second way of one hue, such as a second kind of fiber.
            turn: ways[..number].iter().filter(|(.., known)| known == hue).count(),
            name: match *yields {
                "yes" if mixed => format!("{name}, yielding at every bite"),
                "no" if mixed => format!("{name}, not yielding"),
                _ => name.clone(),
            },
        })
        .collect();
    Chart {
        title,
        remark: "Less is better.".into(),
        metric: "time",
        across,
        places: places.iter().map(|&place| grouped(place as f64, 0)).collect(),
        curves,
    }
    .html()
}

/// Bars of every way to fetch, fastest first, a chart for each runtime and set of parameters.
fn fetch(view: &View<'_>, panel: &Panel) -> String {
    let mut html = String::new();
    for fetches in tables::fetches(view) {
        for (metric, title) in panel.charts {
            let figures: Vec<(&str, &Measurement)> = fetches
                .ways
                .iter()
                .filter_map(|(way, _)| Some((*way, fetches.find(way, metric)?)))
                .collect();
            let bars: Vec<Bar<'_>> = figures
                .iter()
                .map(|(way, m)| {
                    let class = match *way {
                        "sequential" | "keep-alive" => "coroutine",
                        _ => class(Seat::of(m)),
                    };
                    Bar { label: way, class, m }
                })
                .collect();
            if !bars.is_empty() {
                let title = format!("{}: {}", fetches.label, title.to_lowercase());
                html += &bars::chart(&title, &fetches.parameters.to_string(), metric, &bars);
            }
        }
    }
    html
}
