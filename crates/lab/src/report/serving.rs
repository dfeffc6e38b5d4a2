//! Servers under a load: the table, the bars' order, and the sentences.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use carefree_workloads::named::{distinct, list};
use carefree_workloads::role::Role;

use super::missing;
use super::table::{NOTHING, Table};
use super::topic::{Topic, ends, factor_shown, noun, plural};
use super::view::View;
use super::work::{Fetches as Servers, name_rows, own_work, runtime, shared_work};
use crate::metric::{self, Metric};
use crate::number::whole;
use crate::record::{Measurement, Parameters, Subject};

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
        if let Some(load) = own_load(all, servers) {
            table.title = format!("Serving HTTP, {load}");
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

/// What is said of servers: a topic for each of these figures and each load, with what it takes of the
/// load to understand the figure.
const SAID: [(&str, Metric, &[&str]); 3] = [
    ("most requests", metric::REQUESTS_PER_SECOND, &["connections"]),
    ("memory of an idle connection", metric::WHOLE_MEMORY_PER_CONNECTION, &["idle"]),
    ("processor time of a request", metric::CPU_PER_REQUEST, &["connections", "rate"]),
];

/// How a fiber's server does beside a thread's, in all runtimes and in each.
pub(super) fn topics(view: &View<'_>) -> Vec<Topic> {
    let all = servers(view);
    let loads = BTreeSet::from_iter(all.iter().map(|servers| &servers.parameters));
    let mut topics = Vec::new();
    for (what, metric, needed) in SAID {
        let pairs = |load: &Parameters| -> Vec<Pair<'_>> {
            let same = all.iter().filter(|servers| servers.parameters == *load);
            same.flat_map(|servers| pairs(view, servers, metric)).collect()
        };
        let found = loads.iter().map(|load| (*load, pairs(load)));
        let found: Vec<_> = found.filter(|(_, pairs)| !pairs.is_empty()).collect();
        for (load, pairs) in &found {
            let mut names = needed.to_vec();
            let alike =
                found.iter().filter(|(other, _)| in_words(other, needed) == in_words(load, needed));
            // What tells it from another load that would have the same title.
            for (other, _) in alike {
                names.extend(
                    load.iter().map(|(name, _)| name).filter(|n| other.get(n) != load.get(n)),
                );
            }
            topics.push(Topic {
                title: format!("Serving HTTP: {what}"),
                lead: lead(metric, pairs),
                load: Some(in_words(load, &names)),
                said: pairs.iter().map(|pair| sentence(metric, pair)).collect(),
            });
        }
    }
    topics
}

/// What tells a server's load from the others', in words; `None` if nothing does.
pub(super) fn own_load(all: &[Servers<'_>], servers: &Servers<'_>) -> Option<String> {
    let own = own_work(all, servers);
    let names: Vec<&str> = own.iter().map(|(name, _)| name).collect();
    (!names.is_empty()).then(|| in_words(&own, &names))
}

/// A load as it stands behind a title: what is served, and these parameters.
fn in_words(load: &Parameters, names: &[&str]) -> String {
    let is_backend = load.get("kind").is_some_and(|kind| kind.to_string() == "backend");
    let mut parts = Vec::new();
    parts.extend(match load.number("latency_ms") {
        Some(latency) => Some(format!("an answer that waits {latency} ms for a backend")),
        None if is_backend => Some("an answer of a backend".to_owned()),
        None => load.get("kind").map(|kind| format!("a {kind} answer")),
    });
    for (name, value) in load.iter().filter(|(name, _)| names.contains(name)) {
        let count = load.number(name).map_or_else(|| value.to_string(), whole);
        parts.push(match name {
            "connections" => format!("{count} connections"),
            "idle" => format!("{count} idle connections"),
            "rate" => format!("{count} requests a second"),
            "kind" | "latency_ms" => continue,
            _ => format!("{name}={value}"),
        });
    }
    if parts.is_empty() { "one load".to_owned() } else { parts.join(", ") }
}

/// The best server of a runtime's fibers, and that of the threads it is compared with.
struct Pair<'a> {
    /// The machine, where there are several.
    place: &'a str,
    fiber: &'a Measurement,
    thread: &'a Measurement,
}

impl<'a> Pair<'a> {
    /// Whether the intervals do not meet: chance has not decided.
    fn is_apart(&self) -> bool {
        let (one, other) = match self.fiber.median <= self.thread.median {
            true => (self.fiber, self.thread),
            false => (self.thread, self.fiber),
        };
        one.ci_high.zip(other.ci_low).is_some_and(|(high, low)| high < low)
    }

    /// The better one first.
    fn ranked(&self) -> [&'a Measurement; 2] {
        let fiber_is_less = self.fiber.median <= self.thread.median;
        match fiber_is_less != self.fiber.quantity().more_is_better() {
            true => [self.fiber, self.thread],
            false => [self.thread, self.fiber],
        }
    }

    fn factor(&self) -> f64 {
        let ratio = self.thread.median / self.fiber.median;
        ratio.max(ratio.recip())
    }
}

fn pairs<'a>(view: &'a View<'_>, servers: &Servers<'a>, metric: Metric) -> Vec<Pair<'a>> {
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
    let place = view.places[servers.place].as_str();
    let pair = |fiber| Pair { place, fiber, thread };
    runtimes.into_iter().filter_map(best).map(pair).collect()
}

/// Which does better, by how much and where; nothing where there is one runtime alone.
fn lead(metric: Metric, pairs: &[Pair<'_>]) -> Option<String> {
    const FIBERS: &str = "fibers or async";
    const THREADS: &str = "threads";
    const NAMED: usize = 3;
    let runtimes =
        |pairs: &[&Pair<'_>]| distinct(pairs.iter().map(|p| p.fiber.subject.runtime.clone()));
    let all = runtimes(&Vec::from_iter(pairs)).len();
    if all < 2 {
        return None;
    }
    let (apart, open): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| pair.is_apart());
    let (light, heavy): (Vec<_>, Vec<_>) =
        apart.into_iter().partition(|pair| std::ptr::eq(pair.ranked()[0], pair.fiber));
    let mut parts = Vec::new();
    for (good, bad, pairs) in [(FIBERS, THREADS, &light), (THREADS, FIBERS, &heavy)] {
        let ratios = pairs.iter().map(|pair| (pair.factor(), &pair.fiber.subject)).collect();
        let Some(ends) = ends(ratios) else { continue };
        let (claim, than) = match metric.name == metric::REQUESTS_PER_SECOND.name {
            true => (format!("{good} answer {ends} as many"), "as"),
            false => (format!("{good} take {ends} less"), "than"),
        };
        let count = runtimes(pairs).len();
        parts.push(match parts.is_empty() {
            true if count == all && all == 2 => format!("{claim} {than} {bad}, in both runtimes"),
            true if count == all => format!("{claim} {than} {bad}, in all {all} runtimes"),
            true => format!("{claim} {than} {bad}, in {count} of {all} runtimes"),
            false => format!("{claim}, in {count}"),
        });
    }
    let open = runtimes(&open);
    let open: Vec<&str> = open.iter().map(String::as_str).collect();
    match open.len() {
        0 => {}
        count if count == all => {
            parts.push(format!("no difference is shown in any of {all} runtimes"));
        }
        1..=NAMED => parts.push(format!("no difference is shown in {}", list(&open))),
        count => parts.push(format!("no difference is shown in {count}")),
    }
    Some(parts.join("; "))
}

fn sentence(metric: Metric, pair: &Pair<'_>) -> String {
    let Subject { runtime, version, .. } = &pair.fiber.subject;
    let place = match pair.place {
        "" => String::new(),
        place => format!(" ({place})"),
    };
    let ranked = pair.ranked();
    let [good, bad] = ranked.map(|m| {
        let units = plural(&noun(m));
        // The threads that ours are compared with are Rust's.
        match m.subject.runtime == *runtime {
            true => units,
            false => format!("{units} of {} {}", m.subject.runtime, m.subject.version),
        }
    });
    let x = factor_shown(pair.factor());
    let (claim, shared) = match metric.name {
        name if name == metric::REQUESTS_PER_SECOND.name => (
            format!("{good} answer {x} as many requests as {bad}"),
            format!("the most requests that {good} and {bad} answer"),
        ),
        name if name == metric::WHOLE_MEMORY_PER_CONNECTION.name => (
            format!("an idle connection takes {x} less memory with {good} than with {bad}"),
            format!("the memory of an idle connection with {good} and with {bad}"),
        ),
        _ => (
            format!("{good} take {x} less processor time for a request than {bad}"),
            format!("the processor time of {good} and of {bad} for a request"),
        ),
    };
    let said = match pair.is_apart() {
        true => claim,
        false => format!("no difference is shown between {shared}"),
    };
    let [first, second] = ranked.map(Measurement::shown);
    format!("In {runtime} {version}{place} {said} ({first} against {second}).")
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
        topics(view).into_iter().flat_map(|topic| topic.said).collect()
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
        let expected = " fibers answer 2.5x as many requests as threads of rust 1.0 (100,000/s \
             against 40,000/s).";
        assert!(requests.ends_with(expected), "{requests}");
        let expected = " an idle connection takes 2.5x less memory with fibers than with threads of rust \
                        1.0 (16.0 KiB against 40.0 KiB).";
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
    fn each_load_has_a_table_that_names_it() {
        let mut records = [record(6e4), record(7e4)];
        for figure in &mut records[1].results {
            figure.subject.parameters.set("idle", 10_000_u64);
        }
        let tables = tables(&View::new(&records));
        let titles: Vec<&str> = tables.iter().map(|table| &*table.title).collect();
        assert_eq!(
            titles,
            ["Serving HTTP, 100 idle connections", "Serving HTTP, 10,000 idle connections"]
        );
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
            note(WarningKind::LeftOut, "lua 5.1 fiber is left out of serve: it needs luv"),
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
            "Not under this load: php 1.0 fiber holds 100 idle connections at most: select.";
        let luv = "Not under any load: lua 5.1 coroutine and lua 5.1 fiber are left out of serve: they \
                   need luv.";
        assert_eq!(notes(" 10,000 idle connections"), [limit, select]);
        assert!(notes(" 100 idle connections").is_empty());
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
    fn a_load_is_said_in_words_above_its_sentences() {
        let mut records = [record(6e4), record(2.1e4)];
        for figure in &mut records[1].results {
            figure.subject.parameters.set("idle", 10_000_u64);
        }
        let said = topics(&View::new(&records));
        let loads: Vec<_> = said.iter().filter_map(|topic| topic.load.as_deref()).collect();
        // The number of idle connections is said where nothing else tells the loads apart.
        let expected = [
            "100 idle connections, 1,000 requests a second",
            "10,000 idle connections, 1,000 requests a second",
        ];
        assert_eq!(loads, expected);
        assert!(said[0].said[0].contains("take 3.0x less"), "{said:?}");
        assert!(said[1].said[0].contains("no difference is shown"), "{said:?}");
        for (kind, record) in ["plain", "backend"].iter().zip(&mut records) {
            for figure in &mut record.results {
                figure.subject.parameters.set("kind", *kind);
                if *kind == "backend" {
                    figure.subject.parameters.set("latency_ms", 20_u64);
                }
            }
        }
        let said = topics(&View::new(&records));
        let headings: Vec<_> = said.iter().filter_map(Topic::heading).collect();
        let expected = [
            "Serving HTTP: processor time of a request (a plain answer, 1,000 requests a second):",
            "Serving HTTP: processor time of a request (an answer that waits 20 ms for a backend, \
             1,000 requests a second):",
        ];
        assert_eq!(headings, expected);
    }

    #[test]
    fn what_is_said_first_is_who_does_better_by_how_much_and_where() {
        let of = |runtime: &str, fiber: f64| {
            let pair = [("task", fiber), ("thread", 1e4)];
            pair.map(|(unit, median)| {
                let mut m = figure(unit, metric::REQUESTS_PER_SECOND, median);
                m.subject.runtime = runtime.into();
                m.role = Some(if unit == "thread" { "thread" } else { "fiber" }.into());
                m
            })
        };
        let lead = |runtimes: &[(&str, f64)]| {
            let results = runtimes.iter().flat_map(|(name, fiber)| of(name, *fiber)).collect();
            topics(&View::new(&[Record { results, ..Record::default() }])).remove(0).lead
        };
        assert_eq!(lead(&[("python", 6.7e4)]), None, "its sentence says it");
        assert_eq!(
            lead(&[("python", 6.7e4), ("d", 2e4)]).as_deref(),
            Some(
                "fibers or async answer 2.0x (d task) to 6.7x (python task) as many as threads, in \
                 both runtimes"
            )
        );
        assert_eq!(
            lead(&[("ruby", 1.1e4), ("java", 1e4)]).as_deref(),
            Some("no difference is shown in any of 2 runtimes")
        );
        assert_eq!(
            lead(&[("python", 6.7e4), ("d", 5e3), ("java", 1e4)]).as_deref(),
            Some(
                "fibers or async answer 6.7x (python task) as many as threads, in 1 of 3 runtimes; \
                 threads answer 2.0x (d task) as many, in 1; no difference is shown in java"
            )
        );
    }

    #[test]
    fn a_unit_is_said_to_be_of_its_runtime() {
        let mut record = record(6e4);
        let mut task = figure("task", metric::CPU_PER_REQUEST, 1e4);
        (task.subject.runtime, task.subject.version) = ("rust".into(), "1.95".into());
        record.results.push(task);
        let said = said_of(&View::new(&[record]));
        let expected = [
            "In rust 1.95 tasks take 6.0x less processor time for a request than threads (10.0 µs \
             against 60.0 µs).",
            "In carefree 1.0 fibers take 3.0x less processor time for a request than threads of rust \
             1.0 (20.0 µs against 60.0 µs).",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_difference_is_claimed_only_where_the_intervals_do_not_meet() {
        let said = |thread| said_of(&View::new(&[record(thread)])).join(" ");
        let apart = said(6e4);
        assert!(
            apart.contains("fibers take 3.0x less processor time for a request than threads"),
            "{apart}"
        );
        let close = said(2.1e4);
        assert!(close.contains("no difference is shown between"), "{close}");
    }
}
