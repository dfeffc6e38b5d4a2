//! What there is to doubt about figures: what was seen, and what to do about it.

use std::collections::BTreeMap;

use carefree_workloads::named::list;

use super::facts::RunFacts;
use super::measurement::Measurement;
use super::reading::Reading;
use crate::env::Environment;
use crate::metric::{WHOLE_MEMORY_PER_CONNECTION, WHOLE_MEMORY_PER_UNIT};
use crate::noise::{Warning, WarningKind};
use crate::number::{FEW, MARK, counted};
use crate::stats::spread;

/// Above these, a warning.
const OTHERS: f64 = 0.05;
const STEAL: f64 = 0.01;
const SPREAD: f64 = 0.10;
const SWITCHES: f64 = 0.95;
/// Below it, an interval is mostly the range of the samples.
const SAMPLES: usize = 8;

/// Everything there is to doubt about `measurements`.
pub(super) fn warnings(
    environment: &Environment,
    run: &RunFacts,
    taken: &[Reading],
    measurements: &[Measurement],
) -> Vec<Warning> {
    let load = run.load;
    let mut found = Vec::new();
    let mut warn = |kind, message: String, advice: &str| {
        found.push(Warning::new(kind, message, advice));
    };
    if environment.opt_level == "0" {
        warn(
            WarningKind::Unoptimized,
            "carefree was built without optimization; fibers and coroutines are ours and slower \
             for it, threads are the kernel's and are not"
                .into(),
            "measure with cargo run --release -- bench",
        );
    }
    if let Some(governor) = environment.governor.as_deref().filter(|&name| name != "performance") {
        warn(
            WarningKind::Governor,
            format!("the frequency governor is {governor}: cores change speed as they go"),
            "sudo cpupower frequency-set -g performance, and the old one afterwards",
        );
    }
    let disturbed = load.others > OTHERS;
    if disturbed {
        warn(
            WarningKind::OtherLoad,
            format!("other programs used {} of the cores meanwhile", percent(load.others)),
            "end what else is running (top shows it), or take more samples",
        );
    }
    if load.steal > STEAL {
        warn(
            WarningKind::Steal,
            format!(
                "the machine that runs this virtual one kept back {} of its time",
                percent(load.steal)
            ),
            "nothing from here: measure at a quieter hour, or on a machine of your own",
        );
    }
    if let Some(quota) =
        environment.cpu_quota.filter(|&quota| quota < environment.cores_allowed as f64)
    {
        warn(
            WarningKind::Quota,
            format!(
                "a control group allows {quota:.1} cores' worth of time on {} cores; past it, \
                 everything stands still until the next period",
                environment.cores_allowed
            ),
            "raise the quota (docker run --cpus), or set the cores instead (--cpuset-cpus)",
        );
    }
    let fewest = measurements.iter().map(|measurement| measurement.samples.len()).min();
    if let Some(fewest) = fewest.filter(|&count| count < SAMPLES) {
        warn(
            WarningKind::FewSamples,
            match few_of(measurements) {
                Some(few) => format!("fewer than {FEW} samples, marked {MARK}: {few}"),
                None => format!(
                    "some figures rest on {}: their intervals say little",
                    counted(fewest, "sample")
                ),
            },
            match run.asks_samples() {
                true => "raise --samples",
                false if run.quick => "run without --quick",
                false => "let it finish, or raise --samples",
            },
        );
    }
    if let Some(message) = spread_of(measurements) {
        let advice = if disturbed {
            "quiet the machine first, then take more samples with --samples"
        } else {
            "take more samples with --samples; if it stays, the figure itself varies"
        };
        warn(WarningKind::Spread, message, advice);
    }
    if let Some(message) = switches_missing(taken) {
        warn(
            WarningKind::SwitchesMissing,
            message,
            "compare with --pin: units that share a core always have another to yield to",
        );
    }
    let fibers = taken
        .iter()
        .any(|taken| (&*taken.subject.runtime, &*taken.subject.unit) == ("carefree", "fiber"));
    if fibers && environment.tls_mode == "shared" {
        warn(
            WarningKind::SharedTls,
            format!(
                "fibers share their carrier's thread-local storage ({}): they switch faster for \
                 it, and are no full threads",
                environment.tls_reason
            ),
            "see carefree doctor",
        );
    }
    let by_meminfo = |taken: &Reading| {
        let method = taken.proof.get("memory").and_then(|memory| memory.get("whole_method"));
        let whole = [WHOLE_MEMORY_PER_UNIT, WHOLE_MEMORY_PER_CONNECTION];
        whole.iter().any(|metric| taken.figures.contains_key(metric.name))
            && method.and_then(|method| method.as_str()).is_some_and(|m| m.contains("meminfo"))
    };
    if taken.iter().any(by_meminfo) {
        warn(
            WarningKind::SharedMemoryFigures,
            "whole memory was read from /proc/meminfo, which counts the whole machine".into(),
            "run as root, or where control groups may be made (systemd-run --user -p Delegate=yes)",
        );
    }
    found
}

/// What rests on too few samples to tell how far off it is, each with their number, fewest first.
fn few_of(measurements: &[Measurement]) -> Option<String> {
    const NAMED: usize = 6;
    let mut few: Vec<(usize, String)> = Vec::new();
    for m in measurements.iter().filter(|m| m.is_rough()) {
        let named = (m.samples.len(), m.subject.spoken());
        if !few.contains(&named) {
            few.push(named);
        }
    }
    few.sort();
    let named = few.iter().take(NAMED).map(|(count, name)| format!("{name} ({count})"));
    let named: Vec<String> = named.collect();
    let more = match few.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!few.is_empty()).then(|| named.join(", ") + &more)
}

/// The measurements whose samples differ most, worst first.
fn spread_of(measurements: &[Measurement]) -> Option<String> {
    let mut wide: Vec<(f64, &Measurement)> = measurements
        .iter()
        .map(|measurement| (spread(&measurement.samples), measurement))
        .filter(|(spread, _)| *spread > SPREAD)
        .collect();
    wide.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (worst, rest) = wide.split_first()?;
    let name = |(spread, m): &(f64, &Measurement)| {
        format!("{} {} by {}", m.subject.spoken(), m.metric, percent(*spread))
    };
    let others = match rest.len() {
        0 => String::new(),
        more => format!(", and {} by less", counted(more, "more figure")),
    };
    Some(format!("samples differ by more than {}: {}{others}", percent(SPREAD), name(worst)))
}

/// Units that made fewer switches than asked, over all their samples.
fn switches_missing(taken: &[Reading]) -> Option<String> {
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for reading in taken.iter().filter(|reading| !is_alone(reading)) {
        // A workload that asks for none has nothing to miss.
        if let (Some(made), Some(asked)) =
            (reading.count("switches_made"), reading.count("switches_asked"))
        {
            let name = reading.subject.spoken();
            let sum = kinds.entry(name).or_default();
            *sum = (sum.0 + made, sum.1 + asked);
        }
    }
    let short: Vec<String> = kinds
        .into_iter()
        .filter_map(|(name, (made, asked))| {
            let share = made as f64 / asked as f64;
            (asked > 0 && share < SWITCHES).then(|| format!("{name} made {}", percent(share)))
        })
        .collect();
    if short.is_empty() {
        return None;
    }
    let short: Vec<&str> = short.iter().map(String::as_str).collect();
    Some(format!(
        "{} of the switches asked for: a yield without another unit to yield to returns at once",
        list(&short)
    ))
}

/// In `feed`, with no more people than cores (or workers), each unit may be alone on one: without
/// another unit to yield to, a missing switch is no fault.
fn is_alone(reading: &Reading) -> bool {
    let number = |name| reading.subject.parameters.number(name);
    number("people").is_some_and(|people| people <= number("cores").unwrap_or(1).max(2))
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Load;
    use crate::record::{Parameters, Subject};

    const CGROUP: &str = "cgroup2 memory.peak";
    const MEMINFO: &str = "resident set + KernelStack, PageTables and Slab of /proc/meminfo";

    fn quiet() -> Environment {
        Environment {
            governor: Some("performance".into()),
            cpu_quota: None,
            opt_level: "3".into(),
            tls_mode: "own".into(),
            ..Environment::capture()
        }
    }

    fn subject(unit: &str, workload: &str) -> Subject {
        let runtime = if unit == "thread" { "rust" } else { "carefree" };
        Subject::new([runtime, "1", unit, workload], Parameters::default())
    }

    fn taken(unit: &str, workload: &str, (made, asked): (u64, u64), method: &str) -> Reading {
        let proof = serde_json::json!({
            "switches_made": made,
            "switches_asked": asked,
            "memory": {"whole_method": method},
        });
        let weighed = ["alloc", "parked"].contains(&workload);
        let metric = if weighed { "whole_memory_per_unit" } else { "time_per_switch" };
        Reading {
            subject: subject(unit, workload),
            run: "2026-01-31T12:00:00Z".into(),
            figures: BTreeMap::from([(metric.to_owned(), 1.0)]),
            proof: proof.as_object().expect("an object").clone(),
            ..Reading::default()
        }
    }

    const ALL_MADE: (u64, u64) = (20_000, 20_000);

    fn measurement(samples: &[f64]) -> Measurement {
        let subject = subject("thread", "switch");
        Measurement { subject, samples: samples.to_vec(), ..Measurement::default() }
    }

    fn run(load: Load, quick: bool) -> RunFacts {
        RunFacts { load, quick, ..RunFacts::default() }
    }

    fn kinds(warnings: &[Warning]) -> Vec<WarningKind> {
        warnings.iter().map(|warning| warning.kind).collect()
    }

    #[test]
    fn a_quiet_machine_with_close_samples_gets_no_warning() {
        let good = taken("thread", "alloc", ALL_MADE, CGROUP);
        let found = warnings(&quiet(), &RunFacts::default(), &[good], &[measurement(&[100.0; 10])]);
        assert_eq!(found, []);
    }

    #[test]
    fn what_the_machine_does_is_told_with_advice() {
        let environment = Environment {
            governor: Some("powersave".into()),
            cpu_quota: Some(0.5),
            cores_allowed: 2,
            opt_level: "0".into(),
            ..quiet()
        };
        let load = Load { others: 0.2, steal: 0.03 };
        let found = warnings(&environment, &run(load, false), &[], &[]);
        use WarningKind::{Governor, OtherLoad, Quota, Steal, Unoptimized};
        assert_eq!(kinds(&found), [Unoptimized, Governor, OtherLoad, Steal, Quota]);
        assert!(found[2].message.contains("20%"), "{found:?}");
    }

    #[test]
    fn advice_fits_the_cause() {
        let wide = [measurement(&[100.0, 200.0, 300.0])];
        let advice = |load, quick| {
            let found = warnings(&quiet(), &run(load, quick), &[], &wide);
            let of = |kind| found.iter().find(|w| w.kind == kind).expect("both").advice.clone();
            (of(WarningKind::FewSamples), of(WarningKind::Spread))
        };
        let (few, spread) = advice(Load::default(), true);
        assert_eq!(few, "run without --quick");
        assert!(spread.starts_with("take more samples"), "{spread}");
        // A quick run that was asked for a number of samples takes that many.
        for (command, expected) in [
            ("carefree bench --quick", "run without --quick"),
            ("carefree bench --quick --samples 1", "raise --samples"),
            ("carefree bench --samples=1", "raise --samples"),
        ] {
            let quick = command.contains("--quick");
            let run = RunFacts { command: command.into(), ..run(Load::default(), quick) };
            let found = warnings(&quiet(), &run, &[], &[measurement(&[1.0])]);
            assert_eq!(found[0].advice, expected, "{command}");
        }
        let (few, spread) = advice(Load { others: 0.5, steal: 0.0 }, false);
        assert!(few.contains("--samples"), "{few}");
        assert!(spread.starts_with("quiet the machine first"), "{spread}");
    }

    #[test]
    fn figures_of_few_samples_are_named() {
        let found = warnings(&quiet(), &run(Load::default(), false), &[], &[measurement(&[1.0])]);
        assert_eq!(kinds(&found), [WarningKind::FewSamples]);
        assert_eq!(found[0].message, "fewer than 3 samples, marked *: thread switch (1)");
        let found =
            warnings(&quiet(), &run(Load::default(), false), &[], &[measurement(&[1.0; 3])]);
        assert!(found[0].message.starts_with("some figures rest on 3 samples"), "{found:?}");
    }

    #[test]
    fn yields_that_did_not_switch_show() {
        let some = [
            taken("thread", "throughput", (400_000, 1_000_000), CGROUP),
            taken("thread", "warm", (99_990, 100_000), CGROUP),
        ];
        let found = warnings(&quiet(), &RunFacts::default(), &some, &[]);
        assert_eq!(kinds(&found), [WarningKind::SwitchesMissing]);
        assert!(found[0].message.starts_with("thread throughput made 40% of the switches"));
    }

    #[test]
    fn units_alone_on_their_core_miss_no_switches() {
        let fed = |people: u64| {
            let mut reading = taken("fiber", "feed", (0, 100), CGROUP);
            reading.subject.parameters = Parameters::of([("people", people)]);
            reading
        };
        let found = |people| warnings(&quiet(), &RunFacts::default(), &[fed(people)], &[]);
        assert_eq!(kinds(&found(2)), []);
        assert_eq!(kinds(&found(3)), [WarningKind::SwitchesMissing]);
    }

    #[test]
    fn fibers_that_are_no_full_threads_are_marked() {
        let shared = Environment { tls_mode: "shared".into(), ..quiet() };
        let of = |unit| {
            let some = taken(unit, "alloc", ALL_MADE, CGROUP);
            kinds(&warnings(&shared, &RunFacts::default(), &[some], &[]))
        };
        assert_eq!(of("fiber"), [WarningKind::SharedTls]);
        assert_eq!(of("thread"), []);
    }

    #[test]
    fn figures_of_the_whole_machine_are_marked_where_they_are_used() {
        let of = |workload| {
            let found = [taken("thread", workload, ALL_MADE, MEMINFO)];
            kinds(&warnings(&quiet(), &RunFacts::default(), &found, &[]))
        };
        assert_eq!(of("parked"), [WarningKind::SharedMemoryFigures]);
        assert_eq!(of("switch"), []);
    }
}
