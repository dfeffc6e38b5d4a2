//! A figure over versions and over time, and the steps that changed it.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Change, Programs, Suspect, UNTESTED, Verdict};
use crate::metric;
use crate::record::{self, Measurement, Record, Subject};
use crate::version::version_key;

/// One figure of one unit of one runtime, on one machine, from the oldest version to the newest
/// and, within a version, from the oldest record to the newest.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// The figure at each point, with the time its record began.
    pub points: Vec<Point<'a>>,
    /// The machine that all of them were measured on.
    pub machine: String,
    /// What records are of, by the time they began, where that was told.
    labels: BTreeMap<&'a str, &'a str>,
    /// The programs that took the samples, by version and by the time the record began.
    programs: BTreeMap<(&'a str, &'a str), Programs<'a>>,
}

/// A step that changed a figure.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// The figure before.
    pub old: &'a Measurement,
    /// The figure after.
    pub new: &'a Measurement,
    /// What the step is between: two versions, or two dates of one version.
    pub between: (String, String),
    /// How the figure changed.
    pub change: Change,
    /// Whether there are points between the two, none of which is a step.
    pub drift: bool,
    /// What else may have made the step.
    pub suspect: Option<Suspect>,
}

/// Steps in figures with samples are reported from this factor on, where a difference was shown:
/// smaller ones are too small to matter.
const TESTED: f64 = 1.05;

/// A step of this factor is no part of a drift: it is told by itself.
const LARGE: f64 = 1.2;

/// A figure, and the time its record began.
type Point<'a> = (&'a Measurement, &'a str);

/// The same, the runs its samples come from, and the programs.
type Sampled<'a> = (&'a Measurement, &'a str, Origins<'a>);

type Origins<'a> = (BTreeSet<&'a str>, Programs<'a>);

/// The figures of `records`, each through its history; those that were measured once are left out.
/// A run that used samples of another again is no second point: of those that share samples, the
/// one that has most stands for all.
pub fn series(records: &[Record]) -> Vec<Series<'_>> {
    type Key<'a> = (&'a str, &'a str, (usize, &'a str), &'a str, String, String);
    let labels: BTreeMap<&str, &str> = records
        .iter()
        .filter_map(|r| Some((&*r.environment.started, r.run.label.as_deref()?)))
        .collect();
    let mut found: BTreeMap<Key<'_>, Vec<Sampled<'_>>> = BTreeMap::new();
    for record in records {
        let machine = record::machine_name(&record.environment);
        let mut origins: BTreeMap<&Subject, Origins<'_>> = BTreeMap::new();
        for sample in &record.samples {
            let (runs, programs) = origins.entry(&sample.subject).or_default();
            runs.insert(&sample.run);
            programs.add(sample);
        }
        for m in &record.results {
            let s = &m.subject;
            // Cores are the machine's part; the rest has to be the same.
            let key = (
                &*s.runtime,
                &*s.workload,
                metric::rank(&s.workload, &m.metric),
                &*s.unit,
                s.parameters.to_string(),
                machine.clone(),
            );
            let origins = origins.get(s).cloned().unwrap_or_default();
            found.entry(key).or_default().push((m, &record.environment.started, origins));
        }
    }
    found
        .into_iter()
        .map(|((.., machine), sampled)| {
            let mut programs: BTreeMap<_, Programs<'_>> = BTreeMap::new();
            for (m, started, (_, of_point)) in &sampled {
                let version = &*m.subject.version;
                programs.entry((version, *started)).or_default().extend(of_point);
            }
            let mut points = independent(sampled);
            let key =
                |m: &Measurement| (version_key(&m.subject.version), m.subject.version.clone());
            points.sort_by_cached_key(|(m, started)| (key(m), *started));
            Series { points, machine, labels: labels.clone(), programs }
        })
        .filter(|series| series.points.len() > 1)
        .collect()
}

/// Of points that share samples, the one with most of them, the first of several.
fn independent(mut points: Vec<Sampled<'_>>) -> Vec<Point<'_>> {
    points.sort_by_key(|(m, started, _)| (std::cmp::Reverse(m.samples.len()), *started));
    let mut kept: Vec<Sampled<'_>> = Vec::new();
    for point in points {
        let (m, _, (runs, _)) = &point;
        let shares = |(other, _, (theirs, _)): &Sampled<'_>| {
            other.subject.version == m.subject.version && !runs.is_disjoint(theirs)
        };
        if !kept.iter().any(shares) {
            kept.push(point);
        }
    }
    kept.into_iter().map(|(m, started, _)| (m, started)).collect()
}

/// Two points that tell two versions apart: of the last run that has both, for it took their
/// samples in turn, on a machine in one state; else the last of each.
fn side_by_side<'a>(old: &[Point<'a>], new: &[Point<'a>]) -> Option<(Point<'a>, Point<'a>)> {
    let of_one_run = new.iter().rev().find_map(|is| {
        let was = old.iter().rev().find(|was| was.1 == is.1)?;
        Some((*was, *is))
    });
    of_one_run.or_else(|| Some((*old.last()?, *new.last()?)))
}

/// The stretches between the steps that break them, each by its first and its last station. `steps` are those from each
/// station to the next, of which `first` is the first.
fn unbroken<'a>(
    steps: &[Option<Step<'a>>],
    first: usize,
    breaks: impl Fn(&Step<'a>) -> bool,
) -> Vec<(usize, usize)> {
    let mut stretches = vec![(first, first)];
    for (at, step) in steps.iter().enumerate() {
        let station = first + at + 1;
        match (step.as_ref().is_some_and(&breaks), stretches.last_mut()) {
            (false, Some((_, to))) => *to = station,
            _ => stretches.push((station, station)),
        }
    }
    stretches
}

impl<'a> Series<'a> {
    /// What the record is of that began at this time; else the time.
    pub fn moment(&self, started: &'a str) -> &'a str {
        self.labels.get(started).copied().unwrap_or(started)
    }

    /// The points of each version, the oldest version first.
    fn versions(&self) -> Vec<&[Point<'a>]> {
        self.points.chunk_by(|(a, _), (b, _)| a.subject.version == b.subject.version).collect()
    }

    /// The points to compare: each with the one before of its version, and each version with the
    /// one before.
    fn pairs(&self) -> Vec<(Point<'a>, Point<'a>)> {
        let versions = self.versions();
        let times = versions.iter().flat_map(|points| points.windows(2)).map(|w| (w[0], w[1]));
        let between = versions.windows(2).filter_map(|w| side_by_side(w[0], w[1]));
        between.chain(times).collect()
    }

    /// Each point, with the one that it is compared with: of the version before rather than of an
    /// earlier time.
    pub(crate) fn compared(&self) -> Vec<(Option<&'a Measurement>, Point<'a>)> {
        let pairs = self.pairs();
        let before = |new: &Measurement| {
            let pair = pairs.iter().find(|(_, (m, _))| std::ptr::eq(*m, new));
            pair.map(|((old, _), _)| *old)
        };
        self.points.iter().map(|point| (before(point.0), *point)).collect()
    }

    /// The steps that changed the figure.
    pub fn steps(&self) -> Vec<Step<'a>> {
        self.pairs().into_iter().filter_map(|(old, new)| self.step(old, new)).collect()
    }

    /// The changes of the figure, each told once: steps, and drifts, which are changes that came little by little, with
    /// small steps among them or none.
    pub fn changes(&self) -> Vec<Step<'a>> {
        let versions = self.versions();
        let times = versions.iter().map(|points| points.chunks(1).collect::<Vec<_>>());
        let all: Vec<Vec<&[Point<'a>]>> = [versions.clone()].into_iter().chain(times).collect();
        all.iter().flat_map(|stations| self.changes_along(stations)).collect()
    }

    /// The changes along `stations`, each of which is all points of a version, or one of a time.
    fn changes_along(&self, stations: &[&[Point<'a>]]) -> Vec<Step<'a>> {
        let between = |from: usize, to: usize| {
            let (old, new) = side_by_side(stations[from], stations[to])?;
            self.step(old, new)
        };
        let steps: Vec<Option<Step<'a>>> =
            (1..stations.len()).map(|to| between(to - 1, to)).collect();
        // A drift from the one station to the other. Two of them have none: if they differed, that would be a step.
        let drift = |from: usize, to: usize| {
            let whole = between(from, to).filter(|_| to - from > 1)?;
            let goes_on = |at: usize| {
                let ((old, _), (new, _)) = side_by_side(stations[at - 1], stations[at])?;
                let ratio = new.median / old.median;
                let ratio = if whole.change.ratio > 1.0 { ratio } else { ratio.recip() };
                // What goes up and down by more than chance may is no drift, nor is what is one step for the most part.
                let is_most =
                    steps[at - 1].is_some() && 2.0 * ratio.ln() > whole.change.factor().ln();
                Some(ratio.recip() <= TESTED && !is_most)
            };
            let is_drift = (from + 1..=to).all(|at| goes_on(at).unwrap_or(true));
            is_drift.then_some(Step { drift: true, ..whole })
        };
        let mut changes = Vec::new();
        for (from, to) in unbroken(&steps, 0, |step| step.change.factor() >= LARGE) {
            if let Some(drift) = drift(from, to) {
                changes.push(drift);
                continue;
            }
            changes.extend(steps[from..to].iter().flatten().cloned());
            let parts = unbroken(&steps[from..to], from, |_| true);
            changes.extend(parts.into_iter().filter_map(|(from, to)| drift(from, to)));
        }
        changes.extend(steps.into_iter().flatten().filter(|step| step.change.factor() >= LARGE));
        changes
    }

    /// The step from one point to another, if it is one.
    fn step(&self, (old, then): Point<'a>, (new, now): Point<'a>) -> Option<Step<'a>> {
        // Most figures have not changed: that is seen without ten thousand draws from their samples.
        let ratio = new.median / old.median;
        if ratio.max(ratio.recip()) < TESTED {
            return None;
        }
        let change = Change::judged(old, new);
        let told = match change.verdict {
            Verdict::Better | Verdict::Worse => change.factor() >= TESTED,
            Verdict::Untested => change.factor() >= UNTESTED,
            Verdict::NoneShown => false,
        };
        let (before, after) = (&old.subject.version, &new.subject.version);
        let between = match before == after {
            // (Two records may have one label.)
            true if self.moment(then) == self.moment(now) => (then.to_owned(), now.to_owned()),
            true => (self.moment(then).to_owned(), self.moment(now).to_owned()),
            false => (before.clone(), after.clone()),
        };
        let programs = |version: &'a str, started| self.programs.get(&(version, started));
        let suspect = programs(before, then)
            .zip(programs(after, now))
            .and_then(|(was, is)| is.suspect_since(was, &old.subject, &new.subject));
        told.then_some(Step { old, new, between, change, drift: false, suspect })
    }
}

impl Step<'_> {
    /// Whether the figure got worse: beyond doubt, or where no samples tell by how much it did.
    pub fn is_worse(&self) -> bool {
        let grew = self.change.ratio > 1.0;
        grew != self.new.quantity().more_is_better()
    }

    /// `ruby: thread allocation 3.6x slower from 3.2 to 3.3 (18.1 µs to 65.1 µs)`.
    pub fn sentence(&self) -> String {
        let Step { old, new, between: (from, to), change, drift, suspect } = self;
        let subject = &new.subject;
        let how = if *drift { ", little by little" } else { "" };
        // Without samples nothing tells chance from change; the reader is told so.
        let source = if change.verdict == Verdict::Untested { ", as published" } else { "" };
        let blame =
            suspect.map_or_else(String::new, |it| format!("; {} is another since", it.words()));
        // Between times, the version is what the two have in common.
        let runtime = match old.subject.version == subject.version && !subject.version.is_empty() {
            true => format!("{} {}", subject.runtime, subject.version),
            false => subject.runtime.clone(),
        };
        format!(
            "{runtime}: {} {} {} from {from} to {to}{how} ({} to {}{source}){blame}",
            subject.unit,
            what(new),
            change.words(&new.metric),
            old.shown(),
            new.shown(),
        )
    }
}

/// What a figure is called in a sentence.
fn what(m: &Measurement) -> String {
    let subject = &m.subject;
    match metric::find(&subject.workload, &m.metric).filter(|figure| !figure.spoken.is_empty()) {
        Some(figure) if figure.workload.is_gated() => figure.spoken.to_owned(),
        Some(figure) => format!("{} ({})", figure.spoken, subject.parameters),
        None => format!("{} {}", subject.workload, metric::spoken(&m.metric)),
    }
}

/// The steps and drifts of all figures, a sentence each: those for the worse first, for they are what
/// is looked for, and of each the largest first. Rates are left out: each is the reciprocal of a time,
/// and would say the same again. Of the process's own memory and the whole, which tell one change
/// twice, the larger is told; and a step that several machines show is told once, with how many did.
pub fn sentences(records: &[Record]) -> Vec<String> {
    let all = series(records);
    let mut measured: BTreeMap<Topic<'_>, BTreeSet<&str>> = BTreeMap::new();
    let mut steps: Vec<(Step<'_>, &str)> = Vec::new();
    for series in &all {
        for (m, _) in &series.points {
            measured.entry(topic(m)).or_default().insert(&series.machine);
        }
        let found = series.changes().into_iter();
        let found = found.filter(|step| !step.new.quantity().more_is_better());
        steps.extend(found.map(|step| (step, &*series.machine)));
    }
    steps.sort_by(|(a, _), (b, _)| {
        let key = |step: &Step<'_>| (!step.is_worse(), -step.change.factor());
        let ((one, first), (other, second)) = (key(a), key(b));
        one.cmp(&other).then_with(|| first.total_cmp(&second))
    });
    let told = |step: &Step<'_>| (step.between.clone(), step.change.ratio > 1.0);
    let mut shown: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for (step, machine) in &steps {
        shown.entry((topic(step.new), told(step))).or_default().insert(machine);
    }
    let mut sentences = Vec::new();
    for (step, _) in &steps {
        // The largest of them stands for all.
        let Some(machines) = shown.remove(&(topic(step.new), told(step))) else { continue };
        let place = match measured[&topic(step.new)].len() {
            1 => String::new(),
            all => format!(", on {} of {all} machines", machines.len()),
        };
        sentences.push(step.sentence() + &place);
    }
    sentences
}

/// What figures have in common that tell one change twice, or on several machines.
type Topic<'a> = (Subject, &'a str);

fn topic(m: &Measurement) -> Topic<'_> {
    let mut subject = m.subject.clone();
    // The machine's part.
    subject.parameters = subject.parameters.without("cores");
    (subject, metric::topic(&m.subject.workload, &m.metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Environment;
    use crate::record::{Reading, RunFacts};

    /// The article of the published tables' author (docs/origin.md) names these steps.
    #[test]
    fn published_steps_are_named_as_their_author_names_them() {
        let said = sentences(&record::published());
        for expected in [
            "ruby: thread allocation 3.6x slower from 3.2 to 3.3 (18.1 µs to 65.1 µs, as published)",
            "ruby: thread switch 2.4x slower from 3.2 to 3.3",
            "ruby: fiber switch 2.7x faster from 2.5 to 2.6",
            "ruby: fiber allocation 1.65x faster from 2.6 to 2.7",
            "ruby: thread allocation 3.4x faster from 2.6 to 2.7",
            "ruby: fiber allocation, warm, 55x faster from 2.6 to 2.7",
        ] {
            assert!(said.iter().any(|line| line.starts_with(expected)), "{expected}: {said:#?}");
        }
        // Fibers' switches stayed as they were from 3.2 to 3.4.
        assert!(
            !said.iter().any(|l| l.contains("fiber switch") && l.contains("to 3.4")),
            "{said:#?}"
        );
    }

    /// Figures of one unit over versions, with seven samples each.
    fn over_versions(metric: &str, values: &[f64]) -> Vec<Record> {
        let record = |(at, value): (usize, &f64)| {
            let subject = Subject {
                runtime: "ruby".into(),
                unit: "fiber".into(),
                workload: "alloc".into(),
                version: format!("3.{at}"),
                ..Subject::default()
            };
            let samples: Vec<f64> = [0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03]
                .iter()
                .map(|noise| noise * value)
                .collect();
            let result = Measurement {
                subject,
                metric: metric.into(),
                median: *value,
                samples,
                ..Measurement::default()
            };
            Record { results: vec![result], ..Record::default() }
        };
        values.iter().enumerate().map(record).collect()
    }

    #[test]
    fn a_gradual_change_is_named_as_one() {
        // Each is 4% more than the one before, which is too small for a step.
        let slow = [100.0, 104.0, 108.0, 112.0, 117.0, 121.0, 126.0, 131.0, 137.0, 143.0];
        let said = sentences(&over_versions("time_per_unit", &slow));
        let expected = "ruby: fiber allocation 1.43x slower from 3.0 to 3.9, little by little (100 \
                        ns to 143 ns)";
        assert_eq!(said, [expected]);
        // A step amid it is told by itself, and what is left on each side of it.
        let stepped = [100.0, 104.0, 108.0, 200.0, 207.0, 214.0];
        let said = sentences(&over_versions("time_per_unit", &stepped));
        let starts = ["1.85x slower from 3.2 to 3.3 (", "1.08x slower from 3.0 to 3.2, little by"];
        assert!(starts.iter().all(|s| said.iter().any(|line| line.contains(s))), "{said:#?}");
        // Small steps amid it are part of it, and one alone is none.
        let small = [100.0, 104.0, 108.0, 116.0, 120.0, 125.0, 130.0];
        let said = sentences(&over_versions("time_per_unit", &small));
        assert!(
            said.len() == 1 && said[0].contains("1.30x slower from 3.0 to 3.6, little"),
            "{said:?}"
        );
        let said = sentences(&over_versions("time_per_unit", &[100.0, 100.5, 110.0, 110.5]));
        assert!(said.len() == 1 && said[0].contains("1.09x slower from 3.1 to 3.2 ("), "{said:?}");
        // There and back is no drift.
        assert!(sentences(&over_versions("time_per_unit", &[100.0, 104.0, 100.0])).is_empty());
        // Nor is a zigzag, whose ends happen to differ: as published, without samples.
        let mut zigzag =
            over_versions("time_per_unit", &[734.0, 535.0, 477.0, 540.0, 684.0, 524.0]);
        zigzag.iter_mut().for_each(|record| record.results[0].samples.clear());
        assert_eq!(sentences(&zigzag), [""; 0]);
    }

    #[test]
    fn versions_are_compared_within_one_run() {
        // The machine was slower in the second run, for both.
        let run = |started: &str, values: &[f64]| {
            let results =
                over_versions("time_per_unit", values).into_iter().flat_map(|r| r.results);
            let environment = Environment { started: started.into(), ..Environment::default() };
            Record { results: results.collect(), environment, ..Record::default() }
        };
        let mut records = [run("one", &[100.0, 101.0]), run("two", &[150.0, 151.0])];
        let between: Vec<(String, String)> =
            series(&records)[0].steps().into_iter().map(|step| step.between).collect();
        let time = ("one".to_owned(), "two".to_owned());
        assert_eq!(between, [time.clone(), time], "from run to run, not from version to version");
        // Of two versions that no run has both of, the last of each.
        records[0].results.truncate(1);
        records[1].results.remove(0);
        let said = sentences(&records);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].contains("1.51x slower from 3.0 to 3.1"), "{said:#?}");
    }

    #[test]
    fn single_samples_make_no_step_and_no_drift() {
        for kept in [1, 2] {
            let mut records = over_versions("time_per_unit", &[100.0, 140.0, 400.0, 900.0]);
            for record in &mut records {
                record.results[0].samples.truncate(kept);
            }
            assert!(sentences(&records).is_empty(), "{:?}", sentences(&records));
            assert_eq!(series(&records)[0].points.len(), 4, "they stay in the table");
        }
    }

    #[test]
    fn own_memory_and_the_whole_are_told_once() {
        let mut records = over_versions("memory_per_unit", &[100.0, 200.0]);
        for (record, more) in
            records.iter_mut().zip(over_versions("whole_memory_per_unit", &[150.0, 310.0]))
        {
            record.results.extend(more.results);
        }
        let said = sentences(&records);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].starts_with("ruby: fiber memory, all told, 2.1x more"), "{said:#?}");
    }

    #[test]
    fn one_version_over_time_is_told_by_its_dates() {
        let mut records = record::published();
        records.truncate(1);
        let mut now = records[0].clone();
        (records[0].environment.started, now.environment.started) =
            ("2026-01-01T00:00:00Z".into(), "2026-02-01T00:00:00Z".into());
        now.results.retain(|m| m.subject.version == "3.5-rc" && m.metric == "time_per_switch");
        records[0].results.retain(|m| m.subject.version == "3.5-rc");
        now.results.iter_mut().for_each(|m| m.median *= 4.0);
        records.push(now);
        let said = sentences(&records);
        assert_eq!(said.len(), 2, "{said:#?}");
        let between = "switch 4.0x slower from 2026-01-01T00:00:00Z to 2026-02-01T00:00:00Z";
        assert!(said.iter().all(|line| line.contains(between)), "{said:#?}");
        for (record, label) in records.iter_mut().zip(["1a2b3c", "4d5e6f"]) {
            record.run.label = Some(label.into());
        }
        let said = sentences(&records);
        assert!(said.iter().all(|line| line.contains("from 1a2b3c to 4d5e6f")), "{said:#?}");
        records[0].run.label = Some("4d5e6f".into());
        let said = sentences(&records);
        assert!(said.iter().all(|line| line.contains(between)), "one label of both: {said:#?}");
    }

    /// The runtime is the same: it is not blamed alone.
    #[test]
    fn a_step_says_where_the_labs_program_has_changed() {
        let record = |started: &str, [runtime, version, program, source]: [&str; 4], value: f64| {
            let reading = |at: usize| Reading {
                subject: Subject {
                    runtime: runtime.into(),
                    version: version.into(),
                    unit: "fiber".into(),
                    workload: "alloc".into(),
                    ..Subject::default()
                },
                run: started.into(),
                position: at,
                program: program.into(),
                source: source.into(),
                figures: BTreeMap::from([("time_per_unit".to_owned(), value + at as f64)]),
                ..Reading::default()
            };
            let environment = Environment { started: started.into(), ..Environment::default() };
            let samples = (0..7).map(reading).collect();
            Record::new(environment, RunFacts::default(), samples, Vec::new()).without_proofs()
        };
        let blamed = |old: [&str; 4], new: [&str; 4]| {
            let said = sentences(&[record("may", old, 100.0), record("june", new, 300.0)]);
            assert_eq!(said.len(), 1, "{said:?}");
            said[0].split_once("; ").map(|(_, blame)| blame.to_owned()).unwrap_or_default()
        };
        let was = ["ruby", "3.3", "b1", "s1"];
        assert_eq!(blamed(was, was), "");
        let other = blamed(was, ["ruby", "3.3", "b2", "s2"]);
        assert_eq!(other, "the lab's program is another since");
        let other = blamed(was, ["ruby", "3.4", "b2", "s2"]);
        assert_eq!(other, "the lab's program is another since");
        assert_eq!(blamed(was, ["ruby", "3.4", "b2", "s1"]), "", "a new version alone");
        let built = blamed(was, ["ruby", "3.3", "b2", "s1"]);
        assert_eq!(built, "the build is another since");
        let untold = blamed(["ruby", "3.3", "b1", ""], ["ruby", "3.3", "b2", ""]);
        assert_eq!(untold, "the lab's program or the build is another since");
    }

    #[test]
    fn samples_that_were_used_again_make_no_second_point() {
        let reading = |run: &str, position, value| Reading {
            subject: Subject { version: "3.3".into(), ..Subject::default() },
            run: run.into(),
            position,
            figures: BTreeMap::from([("time_per_unit".to_owned(), value)]),
            ..Reading::default()
        };
        let record = |started: &str, samples: Vec<Reading>| {
            let environment = Environment { started: started.into(), ..Environment::default() };
            Record::new(environment, RunFacts::default(), samples, Vec::new())
        };
        let first: Vec<Reading> = (0..2).map(|at| reading("one", at, 1.0 + at as f64)).collect();
        let all: Vec<Reading> = first.iter().cloned().chain([reading("two", 2, 9.0)]).collect();
        let broken_off = record("one", first);
        let resumed = record("two", all);
        let anew = record("three", vec![reading("three", 0, 5.0)]);
        let points = |records: &[Record]| {
            let all = series(records);
            let times = |one: &Series<'_>| one.points.iter().map(|(_, at)| (*at).into()).collect();
            all.iter().map(times).collect::<Vec<Vec<String>>>()
        };
        assert!(points(&[broken_off.clone(), resumed.clone()]).is_empty(), "one measurement");
        let found = points(&[broken_off, resumed, anew]);
        assert_eq!(found, [vec!["three", "two"]], "in the order of their times");
    }

    #[test]
    fn a_step_on_several_machines_is_told_once_with_how_many_show_it() {
        let mut records = over_versions("time_per_unit", &[100.0, 200.0]);
        for (cores, then) in [(4, 220.0), (8, 101.0)] {
            for mut record in over_versions("time_per_unit", &[100.0, then]) {
                record.environment.cores_allowed = cores;
                records.push(record);
            }
        }
        let expected = "ruby: fiber allocation 2.2x slower from 3.0 to 3.1 (100 ns to 220 ns), on 2 of \
                        3 machines";
        assert_eq!(sentences(&records), [expected]);
    }

    #[test]
    fn figures_of_two_machines_are_two_histories() {
        let mut records = record::published();
        records.truncate(1);
        let mut other = records[0].clone();
        other.environment.cores_allowed = 2;
        records.push(other);
        let (one, two) = (series(&records[..1]).len(), series(&records).len());
        assert_eq!(two, 2 * one);
    }
}
