//! What machines agree on: ratios taken on each machine by itself, beside those of the others. How long
//! something takes is a machine's own; how many times what something else takes may hold on all.

use std::collections::BTreeMap;

use super::crowds::are_comparable;
use super::table::Table;
use super::view::{Seat, View};
use crate::metric::{self, spoken};
use crate::number::ratio;
use crate::record::Measurement;
use crate::version::version_key;

/// A ratio on one machine.
#[derive(Clone, Debug)]
struct Found<'v> {
    machine: &'v str,
    ratio: f64,
    /// Whether the intervals of the two figures do not meet.
    is_shown: bool,
}

impl<'v> Found<'v> {
    fn new(machine: &'v str, by: &Measurement, of: &Measurement) -> Option<Found<'v>> {
        let ratio = of.median / by.median;
        let above = |one: &Measurement, other: &Measurement| one.ci_low > other.ci_high;
        let has = |m: &Measurement| m.ci_low.is_some() && m.ci_high.is_some();
        let is_shown = has(by) && has(of) && (above(by, of) || above(of, by));
        ratio.is_finite().then_some(Found { machine, ratio, is_shown })
    }
}

/// Ratios of the same two figures on several machines, by what stands in their row, in the order in which
/// the first of each was found.
#[derive(Default)]
struct Groups<'v> {
    all: Vec<(Vec<String>, Vec<Found<'v>>)>,
    known: BTreeMap<Vec<String>, usize>,
}

impl<'v> Groups<'v> {
    fn add(&mut self, row: Vec<String>, ratio: Found<'v>) {
        let at = *self.known.entry(row).or_insert_with_key(|row| {
            self.all.push((row.clone(), Vec::new()));
            self.all.len() - 1
        });
        self.all[at].1.push(ratio);
    }
}

/// The tables, where several machines have figures.
pub(super) fn tables(view: &View<'_>) -> Vec<Table> {
    let machines = view.places.iter().filter(|place| is_machine(place)).count();
    if machines < 2 {
        return Vec::new();
    }
    let tables = [by_fiber(view), by_version(view)];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn is_machine(place: &str) -> bool {
    !place.is_empty() && place != "published"
}

/// Rates say again what times say.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let figures = metric::FIGURES.iter().filter(|figure| {
        let metric = figure.metric;
        matches!(metric.quantity, metric::Quantity::Nanoseconds | metric::Quantity::Milliseconds)
            || metric == metric::WHOLE_MEMORY_PER_UNIT
    });
    figures.map(|figure| (figure.workload.name(), figure.metric.name))
}

fn by_fiber(view: &View<'_>) -> Table {
    let mut found = Groups::default();
    let crews = view.crews();
    for name in names() {
        for crew in &crews {
            let at = |seat| view.find(crew.at(seat)?, name);
            let pair = at(Seat::Fiber).zip(at(Seat::Thread));
            let (Some((fiber, thread)), Some(who)) = (pair, crew.at(Seat::Fiber)) else { continue };
            let place = &view.places[who.place];
            if !is_machine(place) || !are_comparable(fiber, thread) {
                continue;
            }
            // The machine's line of the label may end with the units.
            let whole = crew.label.as_str();
            let (runtimes, units) = whole.rsplit_once(&format!("\n{place}")).unwrap_or((whole, ""));
            let label = format!("{}{units}", runtimes.replace('\n', ", "));
            let key = vec![label, name.0.to_owned(), spoken(name.1)];
            let Some(ratio) = Found::new(place, fiber, thread) else { continue };
            found.add(key, ratio);
        }
    }
    let table =
        Table::new("Across Machines: Thread by Fiber").left(["Runtime", "Workload", "Figure"]);
    rows(table, found, "Ratio: a thread's figure divided by a fiber's.")
}

fn by_version(view: &View<'_>) -> Table {
    type Of<'a> = (&'a str, &'a str, &'a str, &'a str, String, usize);
    let names: Vec<_> = names().collect();
    let mut versions: BTreeMap<Of<'_>, Vec<&Measurement>> = BTreeMap::new();
    for figure in &view.figures {
        let (m, s) = (figure.m, &figure.m.subject);
        if names.contains(&(&*s.workload, &*m.metric)) && is_machine(&view.places[figure.place]) {
            let size = s.parameters.clone().without("cores").to_string();
            let key = (&*s.workload, &*m.metric, &*s.runtime, &*s.unit, size, figure.place);
            versions.entry(key).or_default().push(m);
        }
    }
    // Rows in the order of workloads and figures, machines side by side.
    let mut found = Groups::default();
    for ((workload, metric, runtime, unit, size, place), mut all) in versions {
        all.sort_by_cached_key(|m| version_key(&m.subject.version));
        for pair in all.windows(2) {
            let (old, new) = (&pair[0].subject.version, &pair[1].subject.version);
            let Some(ratio) = Found::new(&view.places[place], pair[0], pair[1]) else { continue };
            let what = match workload {
                "feed" | "fetch" | "serve" => format!("{workload} ({size})"),
                _ => workload.to_owned(),
            };
            let key =
                vec![format!("{runtime} {old} → {new}"), unit.to_owned(), what, spoken(metric)];
            found.add(key, ratio);
        }
    }
    let table = Table::new("Across Machines: Version by Version")
        .left(["Runtime", "Unit", "Workload", "Figure"]);
    rows(table, found, "Ratio: the newer version's figure divided by the older one's.")
}

fn rows(table: Table, found: Groups<'_>, note: &str) -> Table {
    let mut table = table.right(["Machines", "Lowest", "Median", "Highest"]).left(["Holds"]);
    for (mut row, mut all) in found.all {
        if all.len() < 2 {
            continue;
        }
        all.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let (lowest, highest) = (&all[0], &all[all.len() - 1]);
        let middle = (all[(all.len() - 1) / 2].ratio + all[all.len() / 2].ratio) / 2.0;
        row.push(all.len().to_string());
        row.push(format!("{} ({})", ratio(lowest.ratio), lowest.machine));
        row.push(ratio(middle));
        row.push(format!("{} ({})", ratio(highest.ratio), highest.machine));
        row.push(verdict(&all));
        table.rows.push(row);
    }
    table.notes = vec![
        note.to_owned(),
        "Each ratio is of one machine. It holds on a machine where the intervals of the two figures \
         do not meet."
            .into(),
    ];
    table
}

/// Whether the machines agree on which is more.
fn verdict(all: &[Found<'_>]) -> String {
    let shown = |more: bool| all.iter().filter(|f| f.is_shown && (f.ratio > 1.0) == more).count();
    match (shown(true), shown(false), all.len()) {
        (0, 0, _) => "on none".into(),
        (more, 0, count) | (0, more, count) if more == count => "on all".into(),
        (more, 0, count) | (0, more, count) => format!("on {more} of {count}"),
        (more, less, _) => format!("no: more on {more}, less on {less}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Environment;
    use crate::record::{Parameters, Record, Subject};

    fn record(machine: &str, figures: &[(&str, &str, f64)]) -> Record {
        let results = figures.iter().map(|&(version, unit, median)| Measurement {
            subject: Subject::new(["ruby", version, unit, "alloc"], Parameters::of([("units", 9)])),
            metric: "time_per_unit".into(),
            median,
            ci_low: Some(median * 0.9),
            ci_high: Some(median * 1.1),
            ..Measurement::default()
        });
        let environment = Environment { machine: Some(machine.into()), ..Environment::default() };
        Record { results: results.collect(), environment, ..Record::default() }
    }

    #[test]
    fn units_stand_in_the_line_of_their_machine_and_the_table_across_machines_names_none() {
        let figures = [("3.4", "task", 1.0), ("3.4", "thread", 9.0)];
        let records = ["n1", "n2"].map(|machine| record(machine, &figures));
        let view = View::new(&records);
        assert_eq!(view.crews()[0].label, "ruby 3.4\nn1 (task)");
        assert_eq!(by_fiber(&view).rows[0][0], "ruby 3.4 (task)");
    }

    #[test]
    fn machines_agree_or_not() {
        let of = |machine, fiber, thread, newer| {
            let figures =
                [("3.1", "fiber", fiber), ("3.1", "thread", thread), ("3.4", "fiber", newer)];
            record(machine, &figures)
        };
        let records =
            [of("n1", 10.0, 50.0, 20.0), of("n2", 20.0, 60.0, 10.0), of("n3", 5.0, 20.0, 5.1)];
        let tables = tables(&View::new(&records));
        let [fibers, versions] = &tables[..] else { panic!("{tables:?}") };
        let row =
            ["ruby 3.1", "alloc", "time per unit", "3", "3.0x (n2)", "4.0x", "5.0x (n1)", "on all"];
        assert_eq!(fibers.rows, [row]);
        assert_eq!(versions.rows[0][..2], ["ruby 3.1 → 3.4", "fiber"]);
        let told = ["0.5x (n2)", "1.0x", "2.0x (n1)", "no: more on 1, less on 1"];
        assert_eq!(versions.rows[0][5..], told);
        // One machine agrees with itself.
        assert!(super::tables(&View::new(&records[..1])).is_empty());
    }

    #[test]
    fn crowds_that_are_far_apart_have_no_ratio_on_any_machine() {
        let of = |machine, threads: u64| {
            let mut record = record(machine, &[("3.1", "fiber", 10.0), ("3.1", "thread", 50.0)]);
            record.results[0].subject.parameters.set("units", 1_000_u64);
            record.results[1].subject.parameters.set("units", threads);
            record
        };
        let rows = |threads| tables(&View::new(&[of("n1", threads), of("n2", threads)])).len();
        assert_eq!((rows(100), rows(99)), (1, 0));
    }

    #[test]
    fn what_chance_may_have_done_does_not_hold() {
        let found = |shown: &[(f64, bool)]| {
            let found = |&(ratio, is_shown): &(f64, bool)| Found { machine: "n", ratio, is_shown };
            verdict(&shown.iter().map(found).collect::<Vec<_>>())
        };
        assert_eq!(found(&[(2.0, false), (3.0, false)]), "on none");
        assert_eq!(found(&[(2.0, true), (1.1, false)]), "on 1 of 2");
        assert_eq!(found(&[(0.5, true), (0.6, true)]), "on all");
        assert_eq!(found(&[(0.5, true), (1.1, false), (0.9, false)]), "on 1 of 3");
    }
}
