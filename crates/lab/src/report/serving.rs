//! Servers under a load: the table, the bars' order, and the sentences.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use carefree_workloads::named::distinct;
use carefree_workloads::role::Role;

use super::missing;
use super::table::{NOTHING, Table};
use super::view::View;
use super::work::{Fetches as Servers, name_rows, own_work, runtime, shared_work};
use crate::metric::{self, Metric};
use crate::number::{grouped, times};
use crate::record::{Measurement, Parameters};

/// The servers of each family that had the same load, the one that took the least processor time for
/// a request first.
pub(super) fn servers<'a>(view: &View<'a>) -> Vec<Servers<'a>> {
    let mut found = Vec::new();
    for family in view.families("serve") {
        let load = |m: &Measurement| m.subject.parameters.clone().without("cores");
        let loads: BTreeSet<_> = family.figures.iter().map(|m| load(m)).collect();
        for parameters in loads {
            let figures: Vec<&'a Measurement> =
                family.figures.iter().copied().filter(|m| load(m) == parameters).collect();
            let units: BTreeSet<&'a str> = figures.iter().map(|m| &*m.subject.unit).collect();
            let cpu = |unit: &'a str| {
                let is = |m: &&&Measurement| {
                    m.subject.unit == unit && m.metric == metric::CPU_PER_REQUEST.name
                };
                // Of a server whose processor time cannot be read there is all else.
                (unit, figures.iter().find(is).map_or(f64::INFINITY, |m| m.median))
            };
            let mut ways: Vec<(&'a str, f64)> = units.into_iter().map(cpu).collect();
            ways.sort_by(|a, b| a.1.total_cmp(&b.1));
            let (label, place) = (family.label.clone(), family.place);
            found.push(Servers { label, place, parameters, ways, figures });
        }
    }
    found
}

/// A table for each load, with a row for each server.
pub(super) fn tables(view: &View<'_>) -> Vec<Table> {
    let all = servers(view);
    let loads = BTreeSet::from_iter(all.iter().map(|servers| &servers.parameters));
    let table = |load: &&Parameters| {
        let mut table = table(view, &all, load);
        table.notes.extend(missing::servers(view, &all, load));
        table
    };
    let mut tables: Vec<Table> = loads.iter().map(table).collect();
    // One that a single server needed comes last.
    tables.sort_by_key(|table| Reverse(table.rows.len()));
    missing::say_once(&mut tables);
    if let Some(last) = tables.last_mut() {
        last.notes.extend(shared_work(&all));
        last.notes.push(
            "Latency counts from when a request was due, and CPU is the server's, both at the rate; \
             most requests: as fast as answers come. Memory is that of an idle connection."
                .into(),
        );
        let figures = all.iter().flat_map(|servers| &servers.figures).copied();
        last.notes.extend(missing::hosted(figures));
    }
    tables
}

fn table(view: &View<'_>, all: &[Servers<'_>], load: &Parameters) -> Table {
    const FIGURES: [(Metric, &str); 7] = [
        (metric::LATENCY_P50, "p50"),
        (metric::LATENCY_P99, "p99"),
        (metric::LATENCY_P999, "p99.9"),
        (metric::CPU_PER_REQUEST, "CPU of a Request"),
        (metric::REQUESTS_PER_SECOND, "Most Requests"),
        (metric::MEMORY_PER_CONNECTION, "Own Memory of a Connection"),
        (metric::WHOLE_MEMORY_PER_CONNECTION, "Whole Memory"),
    ];
    let headings = FIGURES.map(|(_, heading)| heading);
    let mut table = Table::new("Serving HTTP").left(["Runtime", "Server"]).right(headings);
    for servers in all.iter().filter(|servers| servers.parameters == *load) {
        let own = own_work(all, servers).to_string().replace(' ', ", ");
        if !own.is_empty() {
            table.title = format!("Serving HTTP, {own}");
        }
        let first = table.rows.len();
        let mut runtimes = Vec::new();
        for (unit, _) in &servers.ways {
            let found = FIGURES.map(|(metric, _)| servers.find(unit, metric.name));
            let mut row = vec![String::new(), (*unit).to_owned()];
            row.extend(found.map(|m| m.map_or_else(|| NOTHING.into(), Measurement::shown)));
            table.rows.push(row);
            runtimes.push(found.into_iter().flatten().next().map_or_else(String::new, runtime));
        }
        let place = Some(view.places[servers.place].clone()).filter(|place| !place.is_empty());
        name_rows(&mut table, first, &runtimes, &Vec::from_iter(place));
    }
    table.without_empty()
}

/// What a fiber's server takes for a request beside a thread's, one sentence for each runtime of a family.
pub(super) fn sentences(view: &View<'_>) -> Vec<String> {
    let mut said = Vec::new();
    let all = servers(view);
    for servers in &all {
        let find = |unit: &&str| servers.find(unit, metric::CPU_PER_REQUEST.name);
        let figures = servers.ways.iter().filter_map(|(unit, _)| find(unit));
        // One or two samples tell nothing from chance.
        let figures: Vec<&Measurement> =
            figures.filter(|m| !m.is_rough() && m.median > 0.0).collect();
        let of = |role| figures.iter().copied().filter(move |m| m.role() == role);
        let Some(thread) = of(Role::Thread).next() else { continue };
        // Ours beside those of Rust: the best of each.
        for of_runtime in distinct(of(Role::Fiber).map(|m| &m.subject.runtime)) {
            let is = |m: &&Measurement| &m.subject.runtime == of_runtime;
            let Some(fiber) = of(Role::Fiber).find(is) else { continue };
            let lighter = fiber.median <= thread.median;
            let (less, more) = if lighter { (fiber, thread) } else { (thread, fiber) };
            let rate = less.subject.parameters.number("rate").unwrap_or(0);
            let (at, label) = (grouped(rate as f64, 0), &servers.label);
            let [light, heavy] = [less, more].map(|m| &m.subject.unit);
            let figures = format!("({} against {})", less.shown(), more.shown());
            let apart = less.ci_high.zip(more.ci_low).is_some_and(|(high, low)| high < low);
            let backend = match less.subject.parameters.number("latency_ms") {
                Some(latency) => format!(" to servers that ask a backend of {latency} ms"),
                None => String::new(),
            };
            // What else tells this load from the others, such as its crowd.
            let mut own = own_work(&all, servers).without("rate");
            if !backend.is_empty() {
                own = own.without("latency_ms").without("kind");
            }
            let own = match own.to_string().replace(' ', ", ") {
                own if own.is_empty() => own,
                own => format!(" ({own})"),
            };
            let at = format!("In {label}, at {at} requests a second{backend}{own}");
            said.push(match apart {
                true => format!(
                    "{at}, {light} takes {} less processor time for a request than {heavy} {figures}.",
                    times(more.median / less.median)
                ),
                false => format!(
                    "{at}, no difference is shown between the processor time of {light} and of \
                     {heavy} for a request {figures}."
                ),
            });
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{Warning, WarningKind};
    use crate::record::{Failed, Record, Subject};

    fn figure(unit: &str, metric: Metric, median: f64) -> Measurement {
        let runtime = if unit == "thread" { "rust" } else { "carefree" };
        let load = Parameters::of([("rate", 1_000), ("idle", 100), ("cores", 2)]);
        Measurement {
            subject: Subject::new([runtime, "1.0", unit, "serve"], load),
            metric: metric.name.into(),
            value_unit: metric.quantity.unit().into(),
            median,
            ci_low: Some(median * 0.9),
            ci_high: Some(median * 1.1),
            samples: vec![median; 5],
            ..Measurement::default()
        }
    }

    fn record(thread: f64) -> Record {
        let results = vec![
            figure("thread", metric::CPU_PER_REQUEST, thread),
            figure("thread", metric::LATENCY_P99, 9e5),
            figure("fiber", metric::CPU_PER_REQUEST, 2e4),
        ];
        Record { results, ..Record::default() }
    }

    #[test]
    fn the_server_that_takes_less_comes_first_and_what_is_not_known_has_a_dash() {
        let records = [record(6e4)];
        let [table] = &tables(&View::new(&records))[..] else { panic!("a table for each load") };
        let named: Vec<&[String]> = table.rows.iter().map(|row| &row[..2]).collect();
        assert_eq!(named, [["carefree 1.0", "fiber"], ["rust 1.0", "thread"]]);
        assert_eq!(table.rows[0][2], NOTHING, "{:?}", table.rows);
        assert!(table.notes[0].contains("rate=1000"), "{:?}", table.notes);
    }

    #[test]
    fn our_fiber_has_its_sentence_beside_a_lighter_one_of_rust() {
        let mut record = record(6e4);
        let mut task = figure("task", metric::CPU_PER_REQUEST, 1e4);
        task.subject.runtime = "rust".into();
        record.results.push(task);
        let said = sentences(&View::new(&[record])).join(" ");
        assert!(said.contains("task takes 6.0x less"), "{said}");
        assert!(said.contains("fiber takes 3.0x less"), "{said}");
    }

    #[test]
    fn each_load_has_a_table_that_names_it() {
        let mut records = [record(6e4), record(7e4)];
        for figure in &mut records[1].results {
            figure.subject.parameters.set("idle", 10_000_u64);
        }
        let tables = tables(&View::new(&records));
        let titles: Vec<&str> = tables.iter().map(|table| &*table.title).collect();
        assert_eq!(titles, ["Serving HTTP, idle=100", "Serving HTTP, idle=10000"]);
        assert!(tables[0].notes.is_empty(), "what all have in common is said once");
        assert!(tables[1].notes[0].contains("rate=1000"), "{:?}", tables[1].notes);
    }

    /// What a record says of a server that is not there stands below the table that it is not in.
    #[test]
    fn a_server_that_is_not_under_a_load_has_its_reason_there() {
        let mut many = record(6e4);
        many.results.iter_mut().for_each(|m| m.subject.parameters.set("idle", 10_000_u64));
        let mut php = figure("fiber", metric::CPU_PER_REQUEST, 2e4);
        php.subject.runtime = "php".into();
        let mut failed = figure("thread", metric::CPU_PER_REQUEST, 2e4).subject;
        failed.runtime = "java".into();
        failed.parameters.set("idle", 10_000_u64);
        let failed = Failed {
            subject: failed,
            message: "10000 idle connections cannot be had: the limit is 4096".into(),
            ..Failed::default()
        };
        many.failures.push(failed);
        let note = |kind, message: &str| Warning::new(kind, message.to_owned(), "do");
        many.warnings = vec![
            note(
                WarningKind::FewerUnits,
                "php 1.0 fiber holds 100 idle connections at most: select",
            ),
            note(WarningKind::FewerUnits, "php 1.0 fiber runs with 100 units at most: why"),
            note(WarningKind::LeftOut, "lua 5.1 coroutine is left out of serve: it needs luv"),
            note(
                WarningKind::LeftOut,
                "c++ 12 fiber is left out of serve with --kind backend: its program is no such server",
            ),
        ];
        let mut few = record(6e4);
        few.results.push(php);
        let records = [many, few];
        let tables = tables(&View::new(&records));
        let notes = |idle: &str| {
            let table = tables.iter().find(|table| table.title.ends_with(idle));
            let notes = table.expect("a table").notes.iter();
            notes.filter(|note| note.starts_with("Not under this")).cloned().collect::<Vec<_>>()
        };
        let limit = "Not under this load: java 1.0 thread: 10000 idle connections cannot be had: the \
                     limit is 4096.";
        let select =
            "Not under this load: php 1.0 fiber: holds 100 idle connections at most: select.";
        let luv = "Not under any load: lua 5.1 coroutine: is left out of serve: it needs luv.";
        assert_eq!(notes("idle=10000"), [limit, select]);
        assert!(notes("idle=100").is_empty());
        let last = tables.last().expect("two tables");
        assert!(
            last.notes.iter().any(|note| note == luv),
            "said once, at the end: {:?}",
            last.notes
        );
    }

    #[test]
    fn runtimes_without_threads_on_fibers_are_named_where_others_have_them() {
        let of = |runtime: &str, unit: &str| {
            let mut m = figure(unit, metric::CPU_PER_REQUEST, 2e4);
            m.subject.runtime = runtime.into();
            m.role = Some(if unit == "thread" { "thread" } else { "fiber" }.into());
            m
        };
        let said = |results: Vec<Measurement>| {
            let records = [Record { results, ..Record::default() }];
            let notes: Vec<String> =
                tables(&View::new(&records)).into_iter().flat_map(|table| table.notes).collect();
            notes.into_iter().find(|note| note.contains("(carefree)"))
        };
        let threads = ["rust", "csharp", "ruby", "of-mine"].map(|name| of(name, "thread"));
        assert_eq!(said(threads.to_vec()), None, "no one has them");
        let mut all = threads.to_vec();
        all.push(of("ruby", "thread (carefree)"));
        let expected =
            "csharp and rust stand without thread (carefree): their targets have no such unit.";
        assert_eq!(said(all).as_deref(), Some(expected));
    }

    #[test]
    fn sentences_of_several_crowds_name_them() {
        let mut records = [record(6e4), record(2.1e4)];
        for figure in &mut records[1].results {
            figure.subject.parameters.set("idle", 10_000_u64);
        }
        let said = sentences(&View::new(&records));
        let [few, many] = &said[..] else { panic!("{said:?}") };
        assert!(few.contains("at 1,000 requests a second (idle=100), fiber takes"), "{few}");
        assert!(many.contains("at 1,000 requests a second (idle=10000), no diff"), "{many}");
        // A backend is said once.
        for figure in &mut records[1].results {
            figure.subject.parameters.set("kind", "backend");
            figure.subject.parameters.set("latency_ms", 20_u64);
        }
        let said = sentences(&View::new(&records)).join(" ");
        assert!(said.contains("ask a backend of 20 ms (idle=10000), no difference"), "{said}");
    }

    #[test]
    fn a_difference_is_claimed_only_where_the_intervals_do_not_meet() {
        let said = |thread| sentences(&View::new(&[record(thread)])).join(" ");
        let apart = said(6e4);
        assert!(
            apart.contains("fiber takes 3.0x less processor time for a request than thread"),
            "{apart}"
        );
        let close = said(2.1e4);
        assert!(close.contains("no difference is shown between"), "{close}");
        let mut backed = record(6e4);
        for figure in &mut backed.results {
            figure.subject.parameters.set("latency_ms", 20_u64);
        }
        let said = sentences(&View::new(&[backed])).join(" ");
        assert!(
            said.contains("1,000 requests a second to servers that ask a backend of 20 ms, fiber")
        );
    }
}
