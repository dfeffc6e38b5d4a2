//! Reports of a fixed record: what a person sees, and what a program reads.

use std::collections::BTreeMap;

use carefree_lab::compare::Comparison;
use carefree_lab::env::Environment;
use carefree_lab::metric::{self as m, Metric};
use carefree_lab::noise::{Load, Warning, WarningKind};
use carefree_lab::record::{
    Extent, Failed, Measurement, Parameters, Reading, Record, RunFacts, Subject, find, published,
};
use carefree_lab::report::{Format, comparison, render, render_all};
use carefree_lab::targets::Facts;
use carefree_workloads::unit::Unit;
use carefree_workloads::workload::{Size, Workload};

fn environment() -> Environment {
    Environment {
        started: "2026-01-31T12:00:00Z".into(),
        machine: None,
        cpu: Some("Example 9000".into()),
        cores: 4,
        cores_allowed: 2,
        cpu_quota: None,
        governor: Some("powersave".into()),
        kernel: "Linux 6.18.0 x86_64".into(),
        libc: "glibc 2.36".into(),
        memory: Some(24 << 30),
        page_size: 4096,
        thp: Some("madvise".into()),
        aslr: Some("full".into()),
        virtual_machine: Some(true),
        container: None,
        carefree: "0.1.0".into(),
        rustc: "1.95.0".into(),
        target: "x86_64-unknown-linux-gnu".into(),
        opt_level: "3".into(),
        tls_mode: "own".into(),
        tls_reason: "libc's layout is known".into(),
        guard_mode: "madvise".into(),
        guard_reason: "the kernel can".into(),
        fsgsbase: true,
        variables: BTreeMap::from([("CAREFREE_CARRIERS".into(), "1".into())]),
    }
}

fn subject(workload: Workload, unit: Unit) -> Subject {
    let (runtime, version) = match unit {
        Unit::Thread => ("rust", "1.95.0"),
        _ => ("carefree", "0.1.0"),
    };
    let cores = if workload == Workload::Switch { 1 } else { 2 };
    let parameters = workload.parameters(Size::Full, cores);
    Subject::new([runtime, version, unit.name(), workload.name()], parameters)
}

fn measurement(workload: Workload, unit: Unit, metric: Metric, median: f64) -> Measurement {
    Measurement {
        subject: subject(workload, unit),
        role: None,
        metric: metric.name.into(),
        value_unit: metric.quantity.unit().into(),
        median,
        ci_low: Some(median * 0.97),
        ci_high: Some(median * 1.04),
        samples: vec![median * 1.04, median, median * 0.97],
    }
}

/// The record, with each figure changed.
fn with(change: impl FnMut(&mut Measurement)) -> Record {
    let mut record = record();
    record.results.iter_mut().for_each(change);
    record
}

/// Figures of the size that a fiber's and a thread's have.
fn record() -> Record {
    use Workload as W;
    let figures: [(W, Metric, [f64; 3]); 11] = [
        (W::Alloc, m::TIME_PER_UNIT, [3_400.0, 4_405.0, 56_190.0]),
        (W::Alloc, m::MEMORY_PER_UNIT, [4_198.4, 4_505.6, 9_807.0]),
        (W::Alloc, m::WHOLE_MEMORY_PER_UNIT, [4_326.0, 4_633.0, 35_786.0]),
        (W::Switch, m::TIME_PER_SWITCH, [3.12, 26.04, 652.4]),
        (W::Switch, m::SWITCHES_PER_SECOND, [320_512_820.0, 38_402_457.0, 1_532_801.0]),
        (W::Warm, m::FIRST_TIME_PER_UNIT, [3_300.0, 4_300.0, 55_000.0]),
        (W::Warm, m::LAST_TIME_PER_UNIT, [75.0, 165.0, 54_000.0]),
        (W::Throughput, m::TIME, [0.42, 2.9, 193.8]),
        (W::Throughput, m::UNITS_PER_SECOND, [2_380_952.0, 344_827.0, 5_160.0]),
        (W::Parked, m::MEMORY_PER_UNIT, [4_190.0, 4_500.0, 9_806.0]),
        (W::Parked, m::WHOLE_MEMORY_PER_UNIT, [4_320.0, 4_628.0, 35_781.0]),
    ];
    let units = [Unit::Coroutine, Unit::Fiber, Unit::Thread];
    let results = figures
        .iter()
        .flat_map(|&(workload, metric, medians)| {
            units
                .into_iter()
                .zip(medians)
                .map(move |(unit, median)| measurement(workload, unit, metric, median))
        })
        .collect();
    let proof = serde_json::json!({
        "process": 7,
        "switches_asked": 20_000,
        "switches_made": 20_000,
        "rounds": [{"create_ns": 40_000_000, "run_ns": 4_050_000}],
    });
    let sample = Reading {
        subject: subject(Workload::Alloc, Unit::Fiber),
        run: "2026-01-31T12:00:00Z".into(),
        program: "85944171f73967e8".into(),
        figures: BTreeMap::from([("time_per_unit".into(), 4_405.0)]),
        proof: proof.as_object().expect("an object").clone(),
        ..Reading::default()
    };
    Record {
        source: None,
        environment: environment(),
        run: RunFacts {
            runtimes: Vec::new(),
            seed: 42,
            samples: 3,
            quick: false,
            pinned: false,
            interrupted: false,
            load: Load { others: 0.25, steal: 0.0 },
            command: "carefree bench".into(),
            label: None,
        },
        warnings: vec![Warning {
            kind: WarningKind::OtherLoad,
            message: "other programs used 25% of the cores meanwhile".into(),
            advice: "end what else is running (top shows it), or take more samples".into(),
        }],
        failures: vec![Failed {
            subject: subject(Workload::Parked, Unit::Thread),
            times: 2,
            message: "thread 499 of 10000 could not be started: no room".into(),
            advice: Some("raise the limit".into()),
            stderr: None,
        }],
        results,
        samples: vec![sample],
    }
}

#[test]
fn text() {
    insta::assert_snapshot!(render(&record(), Format::Text, false));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(render(&record(), Format::Markdown, false));
}

#[test]
fn csv() {
    insta::assert_snapshot!(render(&record(), Format::Csv, false));
}

#[test]
fn json() {
    insta::assert_snapshot!(render(&record(), Format::Json, false));
}

#[test]
fn picture() {
    let picture = render(&record(), Format::Svg, false);
    for word in ["carefree 0.1.0, rust 1.95.0", "Time of a switch", " ns<", " KiB<", "Fiber", "x<"]
    {
        assert!(picture.contains(word), "{word} is missing: {picture}");
    }
    // A browser draws nothing of a picture that is not well-formed, and pages load nothing for it.
    assert_eq!(picture.matches("<g ").count(), picture.matches("</g>").count());
    assert!(!picture.contains("href") && !picture.contains("url("), "{picture}");
    let nothing = render(&Record::default(), Format::Svg, false);
    assert!(nothing.contains("There is nothing to draw"), "{nothing}");
}

/// A row for each runtime, in which a line joins fiber and thread, by the ratios of the first column.
#[test]
fn a_picture_has_a_row_for_each_runtime_the_largest_ratio_first() {
    let picture = render_all(&published(), Format::Svg, false);
    let column = picture.split("Time of a switch").next().expect("a first column");
    let ratio = |text: &str| -> Option<f64> { text.split_once("x<")?.0.parse().ok() };
    let ratios: Vec<f64> = column.split("text-anchor=\"end\">").skip(1).filter_map(ratio).collect();
    assert!(ratios.len() > 5 && ratios.is_sorted_by(|a, b| a >= b), "{ratios:?}");
    assert_eq!(column.matches("class=\"handle\"").count(), ratios.len());
}

/// Languages are compared in one chart: a row for each, on one axis.
#[test]
fn the_runtimes_that_fetch_and_feed_stand_in_one_chart() {
    let page = render_all(&published(), Format::Html, false);
    let panel = page.split("id=\"panel-fetch\"").nth(1).expect("a panel");
    for (title, rows) in [
        ("Time to fetch all pages", ["ruby 2.5, experiment=1", "ruby 2.5, experiment=3"]),
        (
            "Time to fetch all pages, connections kept",
            ["ruby 2.5, experiment=2", "ruby 2.5, experiment=4"],
        ),
    ] {
        let chart = panel.split(&format!("<figcaption>{title}<")).nth(1);
        let chart = chart.unwrap_or_else(|| panic!("{title}: {panel}"));
        let chart = chart.split("</figure>").next().unwrap_or_default();
        for row in rows {
            assert!(chart.contains(&format!("data-name=\"{row}\"")), "{row}: {chart}");
        }
        assert!(chart.contains("class=\"alone\""), "one after the other: {chart}");
        assert!(chart.contains(">2 s<") && chart.contains(">10 s<"), "one axis: {chart}");
    }

    let meal = |runtime: &str, unit: &str, bites: u64, median: f64| Measurement {
        subject: Subject::new(
            [runtime, "1.0", unit, "feed"],
            Parameters::of([("people", 64), ("nutrients", bites)]).with("yields", true),
        ),
        metric: "time".into(),
        value_unit: "ms".into(),
        median,
        ..Measurement::default()
    };
    let mut results = Vec::new();
    for (runtime, factor) in [("d", 1.0), ("ruby", 3.0)] {
        for bites in [10, 1_000] {
            results.push(meal(runtime, "fiber", bites, factor * bites as f64));
            results.push(meal(runtime, "thread", bites, 500.0));
        }
    }
    let page = render(&Record { results, ..Record::default() }, Format::Html, false);
    for bites in ["10", "1,000"] {
        let title = format!(">64 people, {bites} bites each, a yield at every bite<");
        let chart = page.split(&title).nth(1).unwrap_or_else(|| panic!("{title}: {page}"));
        let chart = chart.split("</figure>").next().unwrap_or_default();
        for runtime in ["d", "ruby"] {
            assert!(chart.contains(&format!("data-name=\"{runtime} 1.0\"")), "{chart}");
        }
        // One axis for all lengths.
        assert!(chart.contains(">10 ms<") && chart.contains(">1 s<"), "{chart}");
    }
    assert!(page.contains("The curves of each runtime"), "{page}");
}

/// The published Ruby tables, as their author has them but for the order of words in a heading.
#[test]
fn published_tables() {
    let records = published();
    insta::assert_snapshot!(render_all(&records[..1], Format::Markdown, false));
}

/// Feeding and fetching as published; a record of each.
#[test]
fn published_feeding_and_fetching() {
    let records = published();
    insta::assert_snapshot!(render_all(&records[1..], Format::Text, false));
}

/// Several runtimes and two places in one report: which share a row, and how rows are named.
#[test]
fn a_report_of_ones_own_and_the_published_figures() {
    let records: Vec<Record> = [record()].into_iter().chain(published()).collect();
    let report = render_all(&records, Format::Text, false);
    for expected in [
        "In carefree 0.1.0 a fiber starts 13x faster than a thread (4.41 µs against 56.2 µs).",
        "In ruby 2.5 to 3.5-rc (published) a fiber starts 5.2x to 23x faster than a thread.",
        "In ruby 2.5 (published), once warm, a thread starts 1.2x faster than a fiber",
    ] {
        assert!(report.contains(expected), "{expected} in {report}");
    }
}

/// As a fleet's tasks leave them: a record for each runtime, of one machine.
#[test]
fn a_machine_is_told_of_once_however_many_records_it_has() {
    let of = |machine: &str, runtime: &str| {
        let environment = Environment { machine: Some(machine.into()), ..environment() };
        let started = format!("2026-01-31T12:00:0{}Z", runtime.len());
        let environment = Environment { started, ..environment };
        let facts = Facts {
            runtime: runtime.into(),
            version: "1".into(),
            title: runtime.into(),
            program: String::new(),
            variant: None,
            gc: None,
            parts: BTreeMap::new(),
            units: BTreeMap::new(),
        };
        let run = RunFacts { runtimes: vec![facts], ..record().run };
        Record { environment, run, ..record() }
    };
    let records = [of("n1", "d"), of("n2", "d"), of("n1", "go"), of("n1", "ruby")];
    let counted = |format, words: &str| render_all(&records, format, false).matches(words).count();
    for format in [Format::Text, Format::Markdown] {
        let times = |words: &str| counted(format, words);
        assert_eq!((times("n1, Example 9000"), times("n2, Example 9000")), (1, 1), "{format}");
        assert_eq!((times("\nd 1"), times("\ngo 1"), times("\nruby 1")), (2, 1, 1), "{format}");
    }
    let page = render_all(&records, Format::Markdown, false);
    assert!(page.contains("2026-01-31T12:00:01Z to 2026-01-31T12:00:04Z\nn1, "), "{page}");
}

/// A unit that cannot be had in the usual number is shown at its own, and the notes say so.
#[test]
fn a_unit_of_another_size_is_shown_with_its_size() {
    let record = with(|m| {
        if m.subject.unit == "thread" && m.subject.workload == "alloc" {
            m.subject.parameters.set("units", 64_u64);
        }
    });
    let report = render(&record, Format::Text, false);
    // What one of 64 costs is no multiple of what one of 10,000 does.
    assert!(report.contains("4.41    56.2           –"), "{report}");
    assert!(
        report.contains("No ratio (–) where one crowd is more than ten times as large"),
        "{report}"
    );
    assert!(!report.contains("Here a fiber starts"), "{report}");
    assert!(report.contains("rust 1.95.0 thread: 64 units × 2 switches, 2 cores"), "{report}");
}

/// Threads that all come in another number than fibers are named as one, an exception by its name.
#[test]
fn a_size_that_all_threads_have_is_said_once() {
    let mut record = record();
    let threads: Vec<Measurement> = record
        .results
        .iter()
        .filter(|m| m.subject.unit == "thread" && m.subject.workload == "warm")
        .cloned()
        .collect();
    record.results.retain(|m| !threads.contains(m));
    for (runtime, units) in [("rust", 1_000_u64), ("ruby", 1_000), ("node", 16)] {
        record.results.extend(threads.iter().cloned().map(|mut m| {
            m.subject.runtime = runtime.into();
            m.subject.parameters.set("units", units);
            m
        }));
    }
    let report = render(&record, Format::Markdown, false);
    let sizes = "(10,000 units × 1 switch, 10 rounds, 2 cores; \
        threads: 1,000 units × 1 switch, 10 rounds, 2 cores; \
        node 1.95.0 thread: 16 units × 1 switch, 10 rounds, 2 cores)";
    assert!(report.contains(sizes), "{sizes} in {report}");
}

#[test]
fn the_five_tables_stand_under_their_published_names_and_in_their_order() {
    for format in [Format::Text, Format::Markdown] {
        let report = render(&record(), format, false);
        let names = [
            "Performance Summary",
            "Context Switching Performance",
            "Memory Usage Per Unit",
            "Cache Warming Performance",
            "Throughput Performance",
        ];
        let places = names.map(|name| report.find(name).unwrap_or_else(|| panic!("no {name}")));
        assert!(places.is_sorted(), "{format}: {places:?}");
    }
}

#[test]
fn what_was_not_measured_leaves_no_table_and_no_column() {
    let mut record = record();
    record.results.retain(|m| m.subject.workload == "switch" && m.subject.unit != "fiber");
    let report = render(&record, Format::Text, false);
    assert!(report.contains("Context Switching Performance"), "{report}");
    for absent in ["Memory Usage", "Cache Warming", "Throughput Performance", "Fiber", "Ratio"] {
        assert!(!report.contains(absent), "{absent} in {report}");
    }
    assert!(report.contains("Here a coroutine switches 210x faster than a thread"), "{report}");
}

#[test]
fn a_difference_that_chance_may_have_made_is_not_claimed() {
    let record = with(|m| {
        if m.metric == "time_per_unit" {
            m.median = if m.subject.unit == "fiber" { 50_000.0 } else { 51_000.0 };
            (m.ci_low, m.ci_high) = (Some(m.median * 0.9), Some(m.median * 1.1));
        }
    });
    let report = render(&record, Format::Text, false);
    let said = "Here a fiber starts as fast as a thread, as far as these samples can tell";
    assert!(report.contains(said), "{report}");
}

/// The first lines of a page tell of all runtimes at once, and no more than the sentences below.
#[test]
fn the_first_lines_claim_what_is_shown_of_every_runtime_that_has_both() {
    let mut both = record();
    let ruby = |unit: Unit, median: f64| {
        let mut m = measurement(Workload::Alloc, unit, m::TIME_PER_UNIT, median);
        (m.subject.runtime, m.subject.version) = ("ruby".into(), "3.3.0".into());
        m
    };
    both.results.extend([ruby(Unit::Fiber, 10_000.0), ruby(Unit::Thread, 50_000.0)]);
    let page = render(&both, Format::Html, false);
    assert!(page.contains("the runtimes that can be compared"), "no sentence");
    // Counted where they are shown: of the two, one has no figures of switching.
    let span = "Starting</h3><span class=\"all\">: 5.0x (ruby fiber) to 13x (carefree fiber), of 2 runtimes";
    assert!(page.contains(span), "no span");
    assert!(
        page.contains("Switching</h3><span class=\"all\">: 25x (carefree fiber)</span></summary>"),
        "no span"
    );

    // Not told apart in one of them: no number is claimed of that one.
    let thread = both.results.last_mut().expect("ruby's");
    (thread.median, thread.ci_low) = (10_500.0, Some(9_000.0));
    let page = render(&both, Format::Html, false);
    let span = "Starting</h3><span class=\"all\">: 13x (carefree fiber); no difference shown for ruby fiber<";
    assert!(page.contains(span), "a difference that was not shown");

    // One that has no threads here to compare with is not among those measured.
    both.results.retain(|m| m.subject.runtime != "ruby" || m.subject.unit != "thread");
    let page = render(&both, Format::Html, false);
    assert!(!page.contains("the least and the most of"), "one runtime is no span");
}

#[test]
fn markdown_has_the_interval_under_its_figure_where_samples_give_one() {
    let page = render(&record(), Format::Markdown, false);
    assert!(page.contains("| 4.41<br><sub>4.27–4.58</sub> |"), "{page}");
    assert!(page.contains("Below a figure is its 95% interval"), "{page}");
    let page = render(&with(|m| m.samples.truncate(2)), Format::Markdown, false);
    assert!(!page.contains("<sub>") && !page.contains("Below a figure"), "{page}");
}

/// One or two samples do not tell how far off they are: not in the fourth digit, nor in the third.
#[test]
fn figures_of_few_samples_are_marked_wherever_they_stand() {
    let record = with(|m| {
        m.samples.truncate(if m.subject.unit == "thread" { 1 } else { 3 });
    });
    for format in [Format::Text, Format::Markdown, Format::Html] {
        let report = render(&record, format, false);
        assert!(report.contains("56*"), "{report}");
        assert!(report.contains("13x*"), "the ratio too: {report}");
        assert!(!report.contains("56.2") && !report.contains("56.19"), "{report}");
        assert!(report.contains("Marked *: of fewer than three samples"), "{report}");
    }
    let picture = render(&record, Format::Svg, false);
    assert!(picture.contains(">13x*<"), "{picture}");
    assert!(picture.contains("Marked *: of fewer than three samples"), "{picture}");
    for line in render(&record, Format::Json, false).lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if line["type"] == "result" {
            let few = line["unit"] == "thread";
            assert_eq!(line.get("few_samples").is_some_and(|is| is == true), few, "{line}");
        }
    }
    // With enough of them, nothing is marked.
    let report = render(&with(|_| ()), Format::Html, false);
    assert!(!report.contains("of fewer than three samples"), "{report}");
}

/// Python counts what is in use and not what was allocated: a figure of another name, in a column
/// of its own.
#[test]
fn what_a_runtime_traced_stands_beside_what_others_counted() {
    let mut record = record();
    let fetch = |metric: &str, value_unit: &str, median: f64| Measurement {
        subject: Subject::new(
            ["python", "3.13.0", "thread", "fetch"],
            Parameters::of([("requests", 50)]),
        ),
        metric: metric.into(),
        value_unit: value_unit.into(),
        median,
        ..measurement(Workload::Alloc, Unit::Thread, m::TIME_PER_UNIT, median)
    };
    let traced = [fetch("time", "ms", 40.0), fetch("bytes_traced_at_most", "bytes", 54_885.0)];
    record.results.extend(traced);
    let text = render(&record, Format::Text, false);
    let table = text.split("Fetching").nth(1).and_then(|rest| rest.split("Medians").next());
    let table = table.expect("a table");
    assert!(table.contains("Traced") && table.contains("54,900"), "{text}");
    assert!(table.contains("tracemalloc") && !table.contains("Allocated"), "{text}");
    let page = render(&record, Format::Html, false);
    assert!(page.contains("Most memory in use at one moment, by the runtime's tracing"));
}

/// Few samples of a busy machine: far apart, and yet not told apart. To call that "as fast as"
/// would be as wrong as to call it proven.
#[test]
fn medians_far_apart_are_not_called_equal_where_the_intervals_overlap() {
    let record = with(|m| {
        if m.metric == "time_per_unit" && m.subject.unit == "thread" {
            (m.ci_low, m.ci_high) = (Some(4_000.0), Some(100_000.0));
        }
    });
    let report = render(&record, Format::Text, false);
    let said = "Here a fiber starts 13x faster than a thread by the medians alone, for the \
                intervals overlap (4.41 µs against 56 µs).";
    assert!(report.contains(said), "{report}");
}

#[test]
fn a_fiber_that_loses_is_said_to_lose() {
    let record = with(|m| {
        if m.metric == "time_per_unit" && m.subject.unit == "fiber" {
            (m.ci_low, m.median, m.ci_high) = (Some(110_000.0), 112_380.0, Some(115_000.0));
        }
    });
    let report = render(&record, Format::Text, false);
    assert!(report.contains("Here a thread starts 2.0x faster than a fiber"), "{report}");
}

#[test]
fn colours_come_only_when_asked_for() {
    assert!(!render(&record(), Format::Text, false).contains('\x1b'));
    let coloured = render(&record(), Format::Text, true);
    assert!(coloured.contains("\x1b[1mPerformance Summary\x1b[0m"));
    for format in [Format::Json, Format::Markdown, Format::Csv] {
        assert!(!render(&record(), format, true).contains('\x1b'), "{format}");
    }
}

/// Of published figures nothing tells chance from change; a large one has its colour, in brackets.
#[test]
fn verdicts_have_colours_and_so_have_large_changes_of_published_figures() {
    let old = &published()[..1];
    let times = |factor: f64| {
        let mut new = old.to_vec();
        new[0].results.iter_mut().for_each(|m| m.median *= factor);
        let compared = Comparison::new(old, &new);
        let shown = |colour| comparison(&compared, Format::Text, colour).expect("a text");
        assert!(!shown(false).contains('\x1b'));
        shown(true)
    };
    let (slower, faster, alike) = (times(3.0), times(0.3), times(1.01));
    assert!(slower.contains("\x1b[31m(3.0x slower)\x1b[0m"), "{slower}");
    assert!(slower.contains("\x1b[32m(3.0x "), "more requests a second are better: {slower}");
    assert!(faster.contains("\x1b[32m(3.3x faster)\x1b[0m"), "{faster}");
    assert!(!alike.contains("\x1b[31m") && !alike.contains("\x1b[32m"), "{alike}");
}

#[test]
fn a_report_fits_a_hundred_columns() {
    let report = render(&record(), Format::Text, false);
    let wide: Vec<_> = report.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let record = record();
    let back = Record::from_lines(&render(&record, Format::Json, false)).expect("a record");
    assert_eq!(back, record);
}

#[test]
fn sizes_of_one_round_are_written_as_the_format_has_them() {
    let text = serde_json::to_string(&Workload::Alloc.parameters(Size::Full, 2)).expect("data");
    assert_eq!(text, r#"{"cores":2,"switches":2,"units":10000}"#);
    let back: Parameters = serde_json::from_str(&text).expect("what was written");
    assert_eq!(back.rounds(), 1);
}

#[test]
fn reports_need_no_proofs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("one.jsonl");
    std::fs::write(&path, record().to_lines()).expect("written");
    let read = |extent| {
        let found = find(&path.display().to_string(), None, extent).expect("a record");
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        found.records
    };
    let (whole, shown) = (read(Extent::Whole), read(Extent::Shown));
    assert!(!whole[0].samples[0].proof.is_empty() && shown[0].samples[0].proof.is_empty());
    for format in [Format::Text, Format::Markdown, Format::Csv, Format::Html, Format::Svg] {
        let both = [&whole, &shown].map(|records| render_all(records, format, false));
        assert_eq!(both[0], both[1], "{format:?}");
    }
    let other = [with(|m| m.samples.iter_mut().for_each(|sample| *sample *= 2.0))];
    for format in [Format::Text, Format::Csv] {
        let said =
            |records: &[Record]| comparison(&Comparison::new(records, &other), format, false);
        assert_eq!(said(&whole).expect("one"), said(&shown).expect("one"), "{format:?}");
    }
}
