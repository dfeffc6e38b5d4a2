//! The charts, a panel for each workload.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::bars::{self, Bar};
use super::curves::{Chart, Curve};
use super::markup::escape;
use crate::record::{Measurement, Parameters};
use crate::report::number::grouped;
use crate::report::tables;
use crate::report::view::{Figure, Seat, View, Who};

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

fn class(seat: Seat) -> &'static str {
    match seat {
        Seat::Coroutine => "coroutine",
        Seat::Fiber => "fiber",
        Seat::Thread => "thread",
    }
}

fn label(view: &View<'_>, who: Who<'_>) -> String {
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
            html += &bars::chart(title, metric, &bars);
        }
    }
    html
}

/// The hue of a way to feed.
fn hue(how: &str) -> &'static str {
    match how {
        "threads" | "thread" => "thread",
        "hybrid" => "hybrid",
        "processes" => "processes",
        _ => "fiber",
    }
}

/// A chart for each number of nutrients, over the number of people; where that is always the same,
/// one chart over the nutrients.
fn feed(view: &View<'_>) -> String {
    let number = |m: &Measurement, name: &str| m.subject.parameters.number(name).unwrap_or(0);
    let of_feed = |f: &&Figure<'_>| (&*f.m.subject.workload, &*f.m.metric) == ("feed", "time");
    let all: Vec<Figure<'_>> = view.figures.iter().filter(of_feed).copied().collect();
    let runtimes: BTreeSet<(usize, &str, &str)> =
        all.iter().map(|f| (f.place, &*f.m.subject.runtime, &*f.m.subject.version)).collect();
    let mut html = String::new();
    for (place, runtime, version) in runtimes {
        let figures: Vec<&Measurement> = all
            .iter()
            .filter(|f| {
                let s = &f.m.subject;
                (f.place, &*s.runtime, &*s.version) == (place, runtime, version)
            })
            .map(|f| f.m)
            .collect();
        let name = match view.places[place].as_str() {
            "" => format!("{runtime} {version}"),
            place => format!("{runtime} {version}, {place}"),
        };
        let several =
            |name: &str| -> BTreeSet<u64> { figures.iter().map(|m| number(m, name)).collect() };
        let (people, nutrients) = (several("people"), several("nutrients"));
        let chart = |title: String, across: &str, along: &str, shown: &[&Measurement]| {
            let places: BTreeSet<u64> = shown.iter().map(|m| number(m, along)).collect();
            let ways: BTreeSet<(String, &str)> =
                shown.iter().map(|m| (tables::how(m), tables::yields(m))).collect();
            let curves = ways
                .into_iter()
                .map(|(how, yields)| Curve {
                    values: places
                        .iter()
                        .map(|&at| {
                            let here = |m: &&&Measurement| {
                                number(m, along) == at
                                    && (tables::how(m), tables::yields(m)) == (how.clone(), yields)
                            };
                            shown.iter().find(here).map(|m| m.median)
                        })
                        .collect(),
                    class: hue(&how),
                    dashed: yields == "no",
                    name: match yields {
                        "yes" => format!("{how}, yielding at every bite"),
                        "no" => format!("{how}, not yielding"),
                        _ => how,
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
        };
        if people.len() > 1 {
            for bites in nutrients {
                let shown: Vec<&Measurement> =
                    figures.iter().copied().filter(|m| number(m, "nutrients") == bites).collect();
                let bites = grouped(bites as f64, 0);
                html +=
                    &chart(format!("{name}: {bites} nutrients each"), "people", "people", &shown);
            }
        } else {
            let people = people.first().copied().unwrap_or(0);
            let title = format!("{name}: {} people", grouped(people as f64, 0));
            html += &chart(title, "nutrients each", "nutrients", &figures);
        }
    }
    html
}

/// Bars of every way to fetch, a chart for each runtime and set of parameters.
fn fetch(view: &View<'_>, panel: &Panel) -> String {
    let mut groups: Vec<(usize, &str, &str, &Parameters)> = Vec::new();
    let of_fetch = |f: &&Figure<'_>| f.m.subject.workload == "fetch";
    for Figure { m, place } in view.figures.iter().filter(of_fetch) {
        let s = &m.subject;
        let group = (*place, &*s.runtime, &*s.version, &s.parameters);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let mut html = String::new();
    for (place, runtime, version, parameters) in groups {
        for (metric, title) in panel.charts {
            let shown: Vec<&Measurement> = view
                .figures
                .iter()
                .filter(of_fetch)
                .filter(|f| f.place == place && f.m.metric == *metric)
                .map(|f| f.m)
                .filter(|m| {
                    let s = &m.subject;
                    (&*s.runtime, &*s.version, &s.parameters) == (runtime, version, parameters)
                })
                .collect();
            let bars: Vec<Bar<'_>> = shown
                .iter()
                .map(|m| {
                    let unit = m.subject.unit.as_str();
                    let class = match unit {
                        "sequential" | "keep-alive" => "coroutine",
                        _ => class(Seat::of(m)),
                    };
                    Bar { label: unit, class, m }
                })
                .collect();
            if !bars.is_empty() {
                let title = format!("{title}: {runtime} {version} ({parameters})");
                html += &bars::chart(&title, metric, &bars);
            }
        }
    }
    html
}
