//! The five tables of the fiber-vs-thread benchmark, those of feeding, fetching and
//! serving, and one more with every figure's interval.

use std::collections::BTreeSet;

use carefree_workloads::named::{distinct, list};

use super::contest;
use super::crowds::{FAR_APART, are_comparable, units_of};
use super::machines;
use super::missing;
use super::serving;
use super::table::{Align, Table, wrap};
use super::view::{Crew, Figure, Name, Seat, View};
use super::work::{name_rows, runtime};
use crate::metric::{self, Metric, spoken};
use crate::number::{self, grouped};
use crate::record::{Measurement, Parameters};
use crate::stats;

pub(super) use super::meals::{bites, bites_above, explained, how, meal, people, way, yields};
pub(super) use super::table::NOTHING;
pub(super) use super::work::{Fetches, own_work, shared_work};

/// The tables that there are figures for, in the order of the published ones.
pub(super) fn published(view: &View<'_>) -> Vec<Table> {
    let crews = view.crews();
    let tables = [
        summary(view, &crews),
        switching(view, &crews),
        memory(view, &crews, "alloc"),
        memory(view, &crews, "parked"),
        warming(view, &crews),
        throughput(view, &crews),
        contest::table(view),
        feeding(view),
        fetching(view),
    ];
    let tables =
        tables.into_iter().chain(serving::tables(view)).filter(|table| !table.rows.is_empty());
    tables.chain(machines::tables(view)).map(Table::with_marks_explained).collect()
}

/// The machine's name, where there are several.
fn place(view: &View<'_>, at: usize) -> Vec<String> {
    Some(view.places[at].clone()).filter(|place| !place.is_empty()).into_iter().collect()
}

fn cell(found: Option<&Measurement>, show: &dyn Fn(&Measurement) -> String) -> String {
    found.map_or_else(|| NOTHING.into(), show)
}

fn at<'a>(view: &View<'a>, crew: &Crew<'a>, seat: Seat, name: Name<'_>) -> Option<&'a Measurement> {
    view.find(crew.at(seat)?, name)
}

/// The seats for which any crew has this figure.
fn seats(view: &View<'_>, crews: &[Crew<'_>], figure: Name<'_>) -> Vec<Seat> {
    let taken = |seat: &Seat| crews.iter().any(|crew| at(view, crew, *seat, figure).is_some());
    Seat::ALL.into_iter().filter(taken).collect()
}

/// A table with a row for each crew, which grows by columns.
struct ByCrew<'v, 'a> {
    view: &'v View<'a>,
    crews: Vec<Crew<'a>>,
    table: Table,
}

impl<'v, 'a> ByCrew<'v, 'a> {
    fn new(title: &str, view: &'v View<'a>, crews: &[Crew<'a>], figures: &[Name<'_>]) -> Self {
        let crews = crews.iter().filter(|crew| crew.says(view, figures));
        let crews: Vec<Crew<'a>> = crews.cloned().collect();
        let mut table = Table::new(title).left(["Runtime"]);
        table.rows = crews.iter().map(|crew| vec![crew.label.clone()]).collect();
        ByCrew { view, crews, table }
    }

    /// A column for each seat that has the figure. `show` gives the cell and, where the table shows
    /// one, the interval.
    fn figures(
        &mut self,
        figure: Name<'_>,
        heading: &str,
        show: &dyn Fn(&Measurement) -> (String, Option<String>),
    ) -> bool {
        let seats = seats(self.view, &self.crews, figure);
        for &seat in &seats {
            let column = self.table.columns.len();
            self.table.add(format!("{} {heading}", seat.title()), Align::Right);
            for (number, crew) in self.crews.iter().enumerate() {
                let found = at(self.view, crew, seat, figure).map(show);
                let (cell, range) = found.unwrap_or_else(|| (NOTHING.into(), None));
                self.table.rows[number].push(cell);
                self.table.ranges.extend(range.map(|range| ((number, column), range)));
            }
        }
        !seats.is_empty()
    }

    /// A column that says how many times the second seat's figure is the first one's, where both
    /// seats have the figure in any row.
    fn ratios(&mut self, figure: Name<'_>, heading: &str, (by, of): (Seat, Seat)) -> bool {
        let seats = seats(self.view, &self.crews, figure);
        if !seats.contains(&by) || !seats.contains(&of) {
            return false;
        }
        self.table.add(heading, Align::Right);
        for (crew, row) in self.crews.iter().zip(&mut self.table.rows) {
            let find = |seat| at(self.view, crew, seat, figure);
            let ratio = match find(by).zip(find(of)) {
                Some((by, of)) if are_comparable(by, of) => ratio(of, by),
                Some(_) => {
                    let told = format!("No ratio ({NOTHING}) where {FAR_APART}");
                    if !self.table.notes.contains(&told) {
                        self.table.notes.push(told);
                    }
                    NOTHING.into()
                }
                None => NOTHING.into(),
            };
            row.push(ratio);
        }
        true
    }
}

/// How many times the one the other is: with one digit after the point as in the published tables,
/// or, of samples, with the digits that mean something.
fn ratio(one: &Measurement, other: &Measurement) -> String {
    let ratio = one.median / other.median;
    match [one, other].map(|m| m.samples.len()) {
        [0, 0] => number::ratio(ratio),
        _ if one.is_rough() || other.is_rough() => {
            format!("{}{}", number::times(ratio), number::MARK)
        }
        _ => number::times(ratio),
    }
}

/// `10,000 units × 2 switches, 2 cores`, as the samples had it; each size once.
fn crowd(view: &View<'_>, workload: &str) -> String {
    let usual = view.figures.iter().filter(|figure| {
        figure.m.subject.workload == workload
            && figure.is_of_size(view.size(figure.place, workload))
    });
    let mut sizes = distinct(usual.map(|figure| one_crowd(&figure.m.subject.parameters)));
    let shown = view.shown_sizes(workload);
    for seat in Seat::ALL {
        let of_seat: Vec<_> = shown.iter().filter(|unit| unit.seat == seat).collect();
        // Where a whole seat differs from the usual size, as threads may, it is named as one.
        let together = match of_seat.iter().any(|unit| unit.usual) {
            true => None,
            false => commonest(of_seat.iter().map(|unit| unit.size)),
        };
        if let Some(size) = together {
            sizes.push(format!("{}s: {}", seat.title().to_lowercase(), one_crowd(size)));
        }
        let mut others: Vec<(String, Vec<String>)> = Vec::new();
        for unit in of_seat.iter().filter(|unit| !unit.usual && Some(unit.size) != together) {
            let who = format!("{} {} {}", unit.who.runtime, unit.who.version, unit.who.unit);
            let size = one_crowd(unit.size);
            match others.iter_mut().find(|(known, _)| *known == size) {
                Some((_, all)) => all.push(who),
                None => others.push((size, vec![who])),
            }
        }
        for (size, all) in others {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            sizes.push(format!("{}: {size}", list(&all)));
        }
    }
    sizes.join("; ")
}

/// The most common size, if any two are the same.
fn commonest<'a>(sizes: impl Iterator<Item = &'a Parameters> + Clone) -> Option<&'a Parameters> {
    let counts = distinct(sizes.clone())
        .into_iter()
        .map(|size| (size, sizes.clone().filter(|other| *other == size).count()));
    counts.filter(|(_, count)| *count > 1).max_by_key(|(_, count)| *count).map(|(size, _)| size)
}

fn one_crowd(parameters: &Parameters) -> String {
    let count = |name: &str, one: &str, more: &str| {
        parameters.number(name).map(|count| {
            format!("{} {}", grouped(count as f64, 0), if count == 1 { one } else { more })
        })
    };
    let switches = [count("units", "unit", "units"), count("switches", "switch", "switches")];
    let rounds = parameters.number("rounds").unwrap_or(1);
    let parts = [
        Some(switches.into_iter().flatten().collect::<Vec<_>>().join(" × ")),
        (rounds > 1).then(|| format!("{rounds} rounds")),
        count("cores", "core", "cores"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn summary(view: &View<'_>, crews: &[Crew<'_>]) -> Table {
    const ALLOC: Name<'_> = ("alloc", metric::TIME_PER_UNIT.name);
    const SWITCH: Name<'_> = ("switch", metric::TIME_PER_SWITCH.name);
    let mut rows = ByCrew::new("Performance Summary", view, crews, &[ALLOC, SWITCH]);
    let mut ratios = false;
    for (figure, heading, ratio, digits, what) in [
        (
            ALLOC,
            "Alloc (μs)",
            "Allocation Ratio",
            3,
            "Allocation: from creating a unit to having joined it",
        ),
        (
            SWITCH,
            "Switch (μs)",
            "Switch Ratio",
            4,
            "Switch: from one unit going on to the next going on",
        ),
    ] {
        let show = |m: &Measurement| (m.in_units(1e3, digits), range(m, digits));
        if rows.figures(figure, heading, &show) {
            rows.table.notes.push(format!("{what} ({}).", crowd(view, figure.0)));
        }
        ratios |= rows.ratios(figure, ratio, (Seat::Fiber, Seat::Thread));
    }
    if ratios {
        let note = "Ratio: a thread's figure divided by a fiber's.";
        rows.table.notes.push(note.into());
    }
    let shown = [ALLOC.0, SWITCH.0];
    let figures = view.figures.iter().map(|figure| figure.m);
    let figures = figures.filter(|m| shown.contains(&&*m.subject.workload));
    rows.table.notes.extend(missing::hosted(figures));
    rows.table
}

/// The interval of a time, in microseconds. Of fewer samples than three it would say nothing.
fn range(m: &Measurement, digits: usize) -> Option<String> {
    let [low, high] = m.ends_in_units(1e3, digits)?;
    Some(format!("{low}–{high}"))
}

fn switching(view: &View<'_>, crews: &[Crew<'_>]) -> Table {
    const RATE: Name<'_> = ("switch", metric::SWITCHES_PER_SECOND.name);
    let mut rows = ByCrew::new("Context Switching Performance", view, crews, &[RATE]);
    rows.figures(RATE, "Switches/sec", &|m| (m.in_units(1.0, 0), None));
    rows.ratios(RATE, "Performance Ratio", (Seat::Thread, Seat::Fiber));
    rows.table
}

/// Memory of the units of a workload, a column for each kind of it and each seat.
fn memory(view: &View<'_>, crews: &[Crew<'_>], workload: &str) -> Table {
    let kinds =
        [(metric::MEMORY_PER_UNIT.name, "Own"), (metric::WHOLE_MEMORY_PER_UNIT.name, "Whole")];
    let kinds: Vec<(Name<'_>, &str)> = kinds
        .map(|(metric, kind)| ((workload, metric), kind))
        .into_iter()
        .filter(|(name, _)| !seats(view, crews, *name).is_empty())
        .collect();
    let names: Vec<Name<'_>> = kinds.iter().map(|(name, _)| *name).collect();
    let title = match workload {
        "parked" => "Memory of a Parked Unit",
        _ => "Memory Usage Per Unit",
    };
    let mut rows = ByCrew::new(title, view, crews, &names);
    rows.table.add("Count", Align::Right);
    for (crew, row) in rows.crews.iter().zip(&mut rows.table.rows) {
        let found = names
            .iter()
            .flat_map(|name| Seat::ALL.into_iter().filter_map(|seat| at(view, crew, seat, *name)));
        row.push(distinct(found.map(|m| grouped(units_of(m), 0))).join("\n"));
    }
    for (name, kind) in &kinds {
        rows.figures(*name, &format!("{kind} (bytes)"), &|m| (m.in_units(1.0, 0), None));
    }
    // As published: with one kind of memory there is room for its sum.
    if let [(name, _)] = kinds[..] {
        // The published tables' megabyte is 1,048,576 bytes.
        let total = |m: &Measurement| m.in_units(f64::from(1 << 20) / units_of(m).max(1.0), 1);
        rows.figures(name, "Total (MB)", &|m| (total(m), None));
        rows.table.notes.push("1 MB is 1,048,576 bytes.".into());
    }
    let told = [
        ("Own", "Own: the process's resident memory."),
        ("Whole", "Whole: with what the kernel keeps for it."),
    ];
    let told = told.into_iter().filter(|(of, _)| kinds.iter().any(|(_, kind)| kind == of));
    rows.table.notes.push(told.map(|(_, sentence)| sentence).collect::<Vec<_>>().join(" "));
    if let [(own, _), (whole, _)] = kinds[..] {
        let is_below = |crew: &Crew<'_>, seat| {
            let [own, whole] = [own, whole].map(|name| at(view, crew, seat, name));
            own.zip(whole).is_some_and(|(own, whole)| whole.median < own.median)
        };
        if crews.iter().any(|crew| Seat::ALL.into_iter().any(|seat| is_below(crew, seat))) {
            rows.table.notes.push(
                "Whole may be a little below own: the kernel counts it in batches of up to 64 pages \
                 a core, which is much for each of few units."
                    .into(),
            );
        }
    }
    rows.table.notes.push(match workload {
        "parked" => "While all units were parked.".into(),
        _ => "The most there was with all units alive.".into(),
    });
    rows.table
}

/// One row a unit, for tables that have several figures of each.
fn by_mode(
    view: &View<'_>,
    crews: &[Crew<'_>],
    (title, figures): (&str, [&str; 3]),
    (workload, metrics): (&str, [Metric; 2]),
    show: &dyn Fn(&Measurement, &Measurement) -> [String; 3],
) -> Table {
    let mut table = Table::new(title).left(["Runtime", "Mode"]).right(figures);
    let mut seen = BTreeSet::new();
    for crew in crews {
        let mut last = String::new();
        for seat in Seat::ALL {
            // One unit may stand in several rows of the other tables.
            let Some(who) = crew.at(seat).filter(|who| !seen.contains(who)) else { continue };
            let [first, second] = metrics.map(|metric| view.find(who, (workload, metric.name)));
            let (Some(first), Some(second)) = (first, second) else { continue };
            seen.insert(who);
            let name = format!("{} {}\n{}", who.runtime, who.version, view.places[who.place]);
            let name = name.trim_end().to_owned();
            // As published: a runtime is named once, above its modes.
            let label = if name == last { String::new() } else { name.clone() };
            table.names.push(name.clone());
            last = name;
            let plain = ["coroutine", "fiber", "thread"].contains(&who.unit);
            let mode = match plain {
                true => format!("{}s", seat.title()),
                false => who.unit.to_owned(),
            };
            table.rows.push([label, mode].into_iter().chain(show(first, second)).collect());
        }
    }
    table
}

fn warming(view: &View<'_>, crews: &[Crew<'_>]) -> Table {
    let columns = ["First Alloc (μs)", "Last Alloc (μs)", "Improvement"];
    let heading = ("Cache Warming Performance", columns);
    let figures = ("warm", [metric::FIRST_TIME_PER_UNIT, metric::LAST_TIME_PER_UNIT]);
    let mut table = by_mode(view, crews, heading, figures, &|first, last| {
        [first.in_units(1e3, 3), last.in_units(1e3, 3), ratio(first, last)]
    });
    let crowd = crowd(view, "warm");
    table.notes.push(format!("Allocation in a process's first and last round ({crowd})."));
    table
}

fn throughput(view: &View<'_>, crews: &[Crew<'_>]) -> Table {
    let columns = ["Total Time (ms)", "Concurrency", "Max Throughput (req/s)"];
    let heading = ("Throughput Performance", columns);
    let figures = ("throughput", [metric::TIME, metric::UNITS_PER_SECOND]);
    let mut table = by_mode(view, crews, heading, figures, &|time, rate| {
        // Published ones stand as they were published.
        let digits = if time.samples.is_empty() { 1 } else { 3 };
        [time.in_units(1.0, digits), grouped(units_of(time), 0), rate.in_units(1.0, 0)]
    });
    let crowd = crowd(view, "throughput");
    table.notes.push(format!("The last, warm round, a unit for each request ({crowd})."));
    table
}

/// Feeding the most people there were, a column for each number of nutrients; the curves are in
/// the page, and every point in the CSV.
fn feeding(view: &View<'_>) -> Table {
    let families = view.families("feed");
    let all = || families.iter().flat_map(|family| family.figures.iter().copied());
    let people = all().map(|m| meal(m, "people")).max().unwrap_or(0);
    let nutrients: BTreeSet<u64> = all().map(|m| meal(m, "nutrients")).collect();
    let mut table = Table::new("Feeding").left(["Runtime", "Way", "Yields"]);
    for bites in &nutrients {
        table.add(format!("{} (ms)", bites_above(*bites)), Align::Right);
    }
    for family in &families {
        let of_family = family.figures.iter().copied();
        let of_family: Vec<&Measurement> = of_family
            .filter(|m| m.metric == metric::TIME.name && meal(m, "people") == people)
            .collect();
        let mut rows = distinct(of_family.iter().map(|m| (yields(m), way(m))));
        rows.sort_by_key(|(yields, _)| *yields != "yes");
        let first = table.rows.len();
        let mut runtimes = Vec::new();
        for kind in rows {
            let of_kind = || of_family.iter().copied().filter(|m| (yields(m), way(m)) == kind);
            let mut row = vec![String::new(), kind.1.clone(), kind.0.to_owned()];
            row.extend(nutrients.iter().map(|&bites| {
                let found = of_kind().find(|m| meal(m, "nutrients") == bites);
                cell(found, &|m| m.in_units(1.0, 3))
            }));
            table.rows.push(row);
            runtimes.extend(of_kind().next().map(runtime));
        }
        name_rows(&mut table, first, &runtimes, &place(view, family.place));
    }
    table.notes = vec![format!(
        "Time until {} people have eaten their bites; yields: at every bite. Ways that yield \
             and ways that do not have done different work.",
        grouped(people as f64, 0)
    )];
    table.notes.extend(explained(all()));
    table
}

pub(super) fn fetches<'a>(view: &View<'a>) -> Vec<Fetches<'a>> {
    let mut found = Vec::new();
    for family in view.families("fetch") {
        let work = |m: &Measurement| m.subject.parameters.clone().without("cores");
        let sizes: BTreeSet<Parameters> = family.figures.iter().map(|m| work(m)).collect();
        for parameters in sizes {
            let figures: Vec<&'a Measurement> =
                family.figures.iter().copied().filter(|m| work(m) == parameters).collect();
            let time = |m: &&'a Measurement| {
                // Where the rate was published too, it is what its authors compared by: their
                // time is that of some iterations, and the rate that of all.
                let rate = figures.iter().find(|other| {
                    other.metric == metric::ITERATIONS_PER_SECOND.name && other.subject == m.subject
                });
                (&*m.subject.unit, rate.map_or(m.median, |rate| 1e3 / rate.median))
            };
            let mut ways: Vec<(&'a str, f64)> =
                figures.iter().filter(|m| m.metric == metric::TIME.name).map(time).collect();
            ways.sort_by(|a, b| a.1.total_cmp(&b.1));
            found.push(Fetches {
                label: family.label.clone(),
                place: family.place,
                parameters,
                ways,
                figures,
            });
        }
    }
    found
}

/// Fetching pages, each way compared with the best one, as in the published HTTP experiment.
fn fetching(view: &View<'_>) -> Table {
    let mut table = Table::new("Fetching")
        .left(["Runtime", "Way"])
        .right(["Iterations/s", "±", "Requests/s"])
        .left(["Comparison"])
        .right(["Allocated"])
        .left(["Comparison"])
        .right(["Objects", "Traced at Most", "Peak Memory"]);
    // Where the intervals meet, chance may have decided. Published figures have none, and stand.
    let meet = |one: Option<&Measurement>, best: Option<&Measurement>| {
        let ends = one.zip(best).filter(|(one, best)| !std::ptr::eq(*one, *best));
        let ends = ends.and_then(|(one, best)| best.ci_high.zip(one.ci_low));
        ends.is_some_and(|(high, low)| high >= low)
    };
    let against = |value: f64, best: f64, word: &str, mark: &str| match value / best {
        factor if factor.is_finite() && factor > 1.0 => {
            format!("{} {word}{mark}", number::factor(factor))
        }
        factor if factor.is_finite() => format!("best{mark}"),
        _ => NOTHING.to_owned(),
    };
    let all = fetches(view);
    for fetches in &all {
        // A comparison is as rough as the rougher of its sides.
        let rough = |way: &str| fetches.find(way, metric::TIME.name).is_some_and(|m| m.is_rough());
        let best_is_rough = fetches.ways.first().is_some_and(|(way, _)| rough(way));
        let mark = |way: &str| match best_is_rough || rough(way) {
            true => number::MARK.to_string(),
            false => String::new(),
        };
        let best = fetches.ways.first().map_or(f64::INFINITY, |(_, time)| *time);
        let timed = |way: &str| fetches.find(way, metric::TIME.name);
        let soonest = fetches.ways.first().and_then(|(way, _)| timed(way));
        let bytes = |way: &str| fetches.find(way, metric::BYTES_ALLOCATED.name);
        let allocated = fetches.ways.iter().filter_map(|(way, _)| bytes(way));
        let least = allocated.min_by(|a, b| a.median.total_cmp(&b.median));
        let requests = fetches.parameters.number("requests").unwrap_or(0) as f64;
        let first = table.rows.len();
        for (way, time) in &fetches.ways {
            let find = |metric: Metric| fetches.find(way, metric.name);
            let count = |metric| cell(find(metric), &|m| m.in_units(1.0, 0));
            let spread = |m: &Measurement| format!("{:.1}%", 100.0 * stats::spread(&m.samples));
            table.rows.push(vec![
                String::new(),
                (*way).to_owned(),
                rate(1.0, find(metric::TIME), *time, 3),
                cell(find(metric::TIME).filter(|m| m.samples.len() > 1), &spread),
                rate(requests, find(metric::TIME), *time, 1),
                match meet(timed(way), soonest) {
                    true => OPEN.to_owned(),
                    false => against(*time, best, "slower", &mark(way)),
                },
                count(metric::BYTES_ALLOCATED),
                match bytes(way).zip(least) {
                    // Where all samples of both are alike, they are equals.
                    Some((m, least)) if m.median > least.median && meet(Some(m), Some(least)) => {
                        OPEN.to_owned()
                    }
                    Some((m, least)) => against(m.median, least.median, "more", &mark(way)),
                    None => NOTHING.into(),
                },
                count(metric::OBJECTS_ALLOCATED),
                count(metric::BYTES_TRACED_AT_MOST),
                cell(find(metric::PEAK_MEMORY), &Measurement::shown),
            ]);
        }
        let parameters = wrap(&own_work(&all, fetches).to_string(), 26);
        let mut more = place(view, fetches.place);
        more.extend(parameters.into_iter().filter(|p| !p.is_empty()));
        let of_way = |(way, _): &(&str, f64)| fetches.find(way, metric::TIME.name).map(runtime);
        let runtimes: Vec<String> = fetches.ways.iter().filter_map(of_way).collect();
        name_rows(&mut table, first, &runtimes, &more);
    }
    table.notes.extend(shared_work(&all));
    let spread = "; ± is the samples' deviation (scaled median absolute one)";
    table.notes.push(format!(
        "One iteration makes all requests{}. Comparisons are with the best way of the same runtime.",
        if view.figures.iter().any(|figure| figure.m.samples.len() > 1) { spread } else { "" }
    ));
    if table.rows.iter().flatten().any(|cell| cell == OPEN) {
        table.notes.push("Open: the intervals meet.".into());
    }
    if view.figures.iter().any(|figure| figure.m.metric == metric::BYTES_TRACED_AT_MOST.name) {
        table.notes.push(
            "Traced at most: the bytes that were in use at one moment, by the runtime's own \
             tracing (Python's tracemalloc), and not the sum of all that were allocated."
                .into(),
        );
    }
    table.without_empty()
}

/// What stands in place of a comparison that chance may have decided.
const OPEN: &str = "open";

/// How many of `count` each time there are in a second, with the digits that the samples of the time
/// have.
fn rate(count: f64, found: Option<&Measurement>, time: f64, most: usize) -> String {
    let of = |ms: f64| count * 1e3 / ms;
    match found {
        Some(m) if !m.samples.is_empty() => {
            let interval = m.ci_low.zip(m.ci_high).map(|(low, high)| (of(high), of(low)));
            number::precise(of(time), interval, m.samples.len(), most)
        }
        _ => grouped(of(time), most),
    }
}

/// What stands behind a median: the ends of its interval, and how many samples there are.
pub(super) fn behind(m: &Measurement) -> [String; 3] {
    // Of a few samples the ends would be these themselves.
    let bound = |end: Option<f64>| {
        end.filter(|_| !m.is_rough()).map_or_else(|| NOTHING.into(), |end| m.show(end))
    };
    let samples = Some(m.samples.len()).filter(|count| *count > 0);
    let samples = samples.map_or_else(|| NOTHING.into(), |count| count.to_string());
    [bound(m.ci_low), bound(m.ci_high), samples]
}

/// Every figure with its interval; of feeding only where `meals` says so, for its points are many.
pub(super) fn intervals(view: &View<'_>, meals: bool) -> Option<Table> {
    let mut table = Table::new("Medians and 95% Intervals")
        .left(["Runtime", "Workload", "Unit", "Parameters", "Figure"])
        .right(["Median", "From", "To", "Samples", "Outliers"]);
    // Where all runtimes are ours, the unit tells the runtime.
    let foreign = |f: &Figure<'_>| !["carefree", "rust"].contains(&&*f.m.subject.runtime);
    let named = view.places.len() > 1 || view.figures.iter().any(foreign);
    let shown = |f: &&Figure<'_>| meals || f.m.subject.workload != "feed";
    for figure in view.figures.iter().filter(shown) {
        let Figure { m, place } = figure;
        let s = &m.subject;
        let sized = figure.is_of_size(view.size(*place, &s.workload));
        let several = !sized || ["feed", "fetch", "serve"].contains(&&*s.workload);
        let [from, to, samples] = behind(m);
        let outliers = stats::outliers(&m.samples).len();
        let runtime = match view.places[*place].as_str() {
            "" => format!("{} {}", s.runtime, s.version),
            place => format!("{} {}, {place}", s.runtime, s.version),
        };
        table.rows.push(vec![
            if named { runtime } else { String::new() },
            s.workload.clone(),
            s.unit.clone(),
            match several {
                true => wrap(&s.parameters.to_string(), 24).join("\n"),
                false => String::new(),
            },
            spoken(&m.metric),
            m.shown(),
            from,
            to,
            samples,
            if outliers == 0 { String::new() } else { outliers.to_string() },
        ]);
    }
    let left_out = view.figures.len() - table.rows.len();
    if left_out > 0 {
        table.notes.push(format!(
            "The {left_out} points of feeding are in the CSV, and in the page as curves."
        ));
    }
    if table.rows.iter().any(|row| !row[9].is_empty()) {
        table.notes.push(
            "Outliers are more than 3.5 scaled median absolute deviations from the median; they \
             are counted, and left in."
                .into(),
        );
    }
    if table.rows.is_empty() { None } else { Some(table.without_empty().with_marks_explained()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, Subject};

    #[test]
    fn ways_to_fetch_that_the_samples_do_not_tell_apart_are_open() {
        let figure = |unit: &str, metric: Metric, [low, median, high]: [f64; 3]| Measurement {
            subject: Subject::new(
                ["ruby", "3.4", unit, "fetch"],
                Parameters::of([("requests", 50)]),
            ),
            metric: metric.name.into(),
            median,
            ci_low: Some(low),
            ci_high: Some(high),
            samples: vec![median; 5],
            ..Measurement::default()
        };
        let results = vec![
            figure("fiber", metric::TIME, [19.0, 20.0, 21.0]),
            figure("thread", metric::TIME, [19.5, 20.1, 21.5]),
            figure("sequential", metric::TIME, [990.0, 1000.0, 1010.0]),
            figure("fiber", metric::BYTES_ALLOCATED, [100.0, 110.0, 120.0]),
            figure("thread", metric::BYTES_ALLOCATED, [115.0, 130.0, 140.0]),
            figure("sequential", metric::BYTES_ALLOCATED, [110.0; 3]),
        ];
        let records = [Record { results, ..Record::default() }];
        let table = fetching(&View::new(&records));
        let at = |heading: &str| table.columns.iter().position(|column| column.heading == heading);
        let first = at("Comparison").expect("a column");
        let cells: Vec<&str> = table.rows.iter().map(|row| &*row[first]).collect();
        assert_eq!(cells, ["best", "open", "50x slower"]);
        let cells: Vec<&str> = table.rows.iter().map(|row| &*row[first + 2]).collect();
        assert_eq!(cells, ["best", "open", "best"]);
        assert!(table.notes.contains(&"Open: the intervals meet.".to_owned()), "{:?}", table.notes);
    }

    #[test]
    fn whole_memory_below_own_is_explained() {
        let notes = |whole: f64| {
            let figure = |metric: Metric, median: f64| Measurement {
                subject: Subject::new(
                    ["lua", "5.4", "coroutine", "alloc"],
                    Parameters::of([("units", 100)]),
                ),
                metric: metric.name.into(),
                median,
                samples: vec![median; 5],
                ..Measurement::default()
            };
            let results = vec![
                figure(metric::MEMORY_PER_UNIT, 1_343.0),
                figure(metric::WHOLE_MEMORY_PER_UNIT, whole),
            ];
            let records = [Record { results, ..Record::default() }];
            let view = View::new(&records);
            memory(&view, &view.crews(), "alloc").notes.join(" ")
        };
        assert!(notes(1_310.0).contains("Whole may be a little below own"));
        assert!(!notes(1_400.0).contains("below own"));
    }
}
