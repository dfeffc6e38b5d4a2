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

/// What is said of servers: a topic for each of these figures.
const SAID: [(&str, Metric); 3] = [
    ("Serving HTTP: most requests", metric::REQUESTS_PER_SECOND),
    ("Serving HTTP: memory of a connection", metric::WHOLE_MEMORY_PER_CONNECTION),
    ("Serving HTTP: processor time of a request", metric::CPU_PER_REQUEST),
];

/// How a fiber's server does beside a thread's: a sentence for each runtime of a family, by topic.
pub(super) fn topics(view: &View<'_>) -> Vec<(&'static str, Vec<String>)> {
    let all = servers(view);
    let said = |metric| all.iter().flat_map(|servers| sentences(&all, servers, metric)).collect();
    SAID.into_iter().map(|(topic, metric)| (topic, said(metric))).collect()
}

fn sentences(all: &[Servers<'_>], servers: &Servers<'_>, metric: Metric) -> Vec<String> {
    let find = |(unit, _): &(&str, f64)| servers.find(unit, metric.name);
    // One or two samples tell nothing from chance.
    let mut figures: Vec<&Measurement> =
        servers.ways.iter().filter_map(find).filter(|m| !m.is_rough() && m.median > 0.0).collect();
    figures.sort_by(|a, b| a.median.total_cmp(&b.median));
    if metric.quantity.more_is_better() {
        figures.reverse();
    }
    let of = |role| figures.iter().copied().filter(move |m| m.role() == role);
    let Some(thread) = of(Role::Thread).next() else { return Vec::new() };
    // Ours beside those of Rust: the best of each.
    let runtimes = distinct(of(Role::Fiber).map(|m| &m.subject.runtime));
    let best = |runtime: &String| of(Role::Fiber).find(|m| m.subject.runtime == *runtime);
    let pairs = runtimes.into_iter().filter_map(best).map(|fiber| (fiber, thread));
    pairs.map(|pair| sentence(all, servers, metric, pair)).collect()
}

fn sentence(
    all: &[Servers<'_>],
    servers: &Servers<'_>,
    metric: Metric,
    (one, other): (&Measurement, &Measurement),
) -> String {
    let (less, more) = if one.median <= other.median { (one, other) } else { (other, one) };
    let is_apart = less.ci_high.zip(more.ci_low).is_some_and(|(high, low)| high < low);
    let factor = times(more.median / less.median);
    let by_rate = metric.name == metric::CPU_PER_REQUEST.name;
    let rate = match less.subject.parameters.number("rate") {
        Some(rate) if by_rate => format!(", at {} requests a second", grouped(rate as f64, 0)),
        _ => String::new(),
    };
    let backend = match less.subject.parameters.number("latency_ms") {
        Some(latency) => {
            let of = if by_rate { " to" } else { ", of" };
            format!("{of} servers that ask a backend of {latency} ms")
        }
        None => String::new(),
    };
    // What else tells this load from the others, such as its crowd.
    let mut own = own_work(all, servers).without("rate");
    if !backend.is_empty() {
        own = own.without("latency_ms").without("kind");
    }
    let own = match own.to_string().replace(' ', ", ") {
        own if own.is_empty() => own,
        own => format!(" ({own})"),
    };
    let at = format!("In {}{rate}{backend}{own}", servers.label);
    let [little, much] = [less, more].map(|m| &m.subject.unit);
    // The better one is named first.
    let ([good, bad], [first, second]) = match metric.quantity.more_is_better() {
        true => ([much, little], [more, less]),
        false => ([little, much], [less, more]),
    };
    let figures = format!("({} against {})", first.shown(), second.shown());
    let (claim, shared) = match metric.name {
        name if name == metric::REQUESTS_PER_SECOND.name => (
            format!("{good} answers {factor} as many requests as {bad}"),
            format!("between the most requests that {good} and {bad} answer"),
        ),
        name if name == metric::WHOLE_MEMORY_PER_CONNECTION.name => (
            format!("an idle connection takes {factor} less memory with {good} than with {bad}"),
            format!("between the memory of an idle connection with {good} and with {bad}"),
        ),
        _ => (
            format!("{good} takes {factor} less processor time for a request than {bad}"),
            format!("between the processor time of {good} and of {bad} for a request"),
        ),
    };
    match is_apart {
        true => format!("{at}, {claim} {figures}."),
        false => format!("{at}, no difference is shown {shared} {figures}."),
    }
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

    fn said_of(view: &View<'_>) -> Vec<String> {
        topics(view).into_iter().flat_map(|(_, said)| said).collect()
    }

    #[test]
    fn requests_and_memory_are_compared_too_the_better_one_first() {
        let results = vec![
            figure("thread", metric::REQUESTS_PER_SECOND, 4e4),
            figure("fiber", metric::REQUESTS_PER_SECOND, 1e5),
            figure("thread", metric::WHOLE_MEMORY_PER_CONNECTION, 40_960.0),
            figure("fiber", metric::WHOLE_MEMORY_PER_CONNECTION, 16_384.0),
        ];
        let records = [Record { results, ..Record::default() }];
        let said = said_of(&View::new(&records));
        let [requests, memory] = &said[..] else { panic!("{said:?}") };
        let expected =
            ", fiber answers 2.5x as many requests as thread (100,000/s against 40,000/s).";
        assert!(requests.ends_with(expected), "{requests}");
        let expected = ", an idle connection takes 2.5x less memory with fiber than with thread (16.0 KiB \
                        against 40.0 KiB).";
        assert!(memory.ends_with(expected), "{memory}");
        // Where the intervals meet, none is called better.
        let mut records = records;
        records[0].results[1].median = 4.1e4;
        records[0].results[1].ci_low = Some(3e4);
        let said = said_of(&View::new(&records));
        assert!(said[0].contains("no difference is shown between the most requests"), "{said:?}");
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
        let said = said_of(&View::new(&[record])).join(" ");
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
        let said = said_of(&View::new(&records));
        let [few, many] = &said[..] else { panic!("{said:?}") };
        assert!(few.contains("at 1,000 requests a second (idle=100), fiber takes"), "{few}");
        assert!(many.contains("at 1,000 requests a second (idle=10000), no diff"), "{many}");
        // A backend is said once.
        for figure in &mut records[1].results {
            figure.subject.parameters.set("kind", "backend");
            figure.subject.parameters.set("latency_ms", 20_u64);
        }
        let said = said_of(&View::new(&records)).join(" ");
        assert!(said.contains("ask a backend of 20 ms (idle=10000), no difference"), "{said}");
    }

    #[test]
    fn a_difference_is_claimed_only_where_the_intervals_do_not_meet() {
        let said = |thread| said_of(&View::new(&[record(thread)])).join(" ");
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
        let said = said_of(&View::new(&[backed])).join(" ");
        assert!(
            said.contains("1,000 requests a second to servers that ask a backend of 20 ms, fiber")
        );
    }
}
