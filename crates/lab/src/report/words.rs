//! What the figures come down to, in plain words.

use super::number::{grouped, times, value};
use super::tables;
use super::view::{Crew, Seat, View, Who};
use crate::record::Measurement;

/// A comparison worth a sentence. `{w}` is the unit that did better, `{l}` the other one, `{x}` how
/// many times.
struct Point {
    workload: &'static str,
    metric: &'static str,
    better: &'static str,
    /// What to say where the samples cannot tell them apart.
    equal: &'static str,
    /// What the figures in brackets need said.
    remark: &'static str,
}

const POINTS: [Point; 5] = [
    Point {
        workload: "alloc",
        metric: "time_per_unit",
        better: "Here a {w} starts {x} faster than a {l}",
        equal: "Here a {w} starts as fast as a {l}",
        remark: "",
    },
    Point {
        workload: "warm",
        metric: "last_time_per_unit",
        better: "Here, once warm, a {w} starts {x} faster than a {l}",
        equal: "Here, once warm, a {w} starts as fast as a {l}",
        remark: "",
    },
    Point {
        workload: "switch",
        metric: "time_per_switch",
        better: "Here a {w} switches {x} faster than a {l}",
        equal: "Here a {w} switches as fast as a {l}",
        remark: "",
    },
    Point {
        workload: "throughput",
        metric: "time",
        better: "Here {w}s serve requests {x} faster than {l}s",
        equal: "Here {w}s serve requests as fast as {l}s",
        remark: "",
    },
    Point {
        workload: "alloc",
        metric: "whole_memory_per_unit",
        better: "Here a {w} takes {x} less memory than a {l}",
        equal: "Here a {w} takes as much memory as a {l}",
        remark: ", all told",
    },
];

/// One sentence for each comparison of a fiber, or else of a coroutine, with a thread; where a
/// runtime is there in several versions that agree, one for all of them.
pub(super) fn sentences(view: &View<'_>) -> Vec<String> {
    let crews = view.crews();
    let mut said = Vec::new();
    for point in &POINTS {
        let outcomes: Vec<Outcome<'_>> =
            crews.iter().filter_map(|crew| outcome(view, crew, point)).collect();
        let mut runs: Vec<Vec<Outcome<'_>>> = Vec::new();
        for outcome in outcomes {
            match runs.last_mut().filter(|run| run[0].joins(&outcome)) {
                Some(run) => run.push(outcome),
                None => runs.push(vec![outcome]),
            }
        }
        said.extend(runs.iter().map(|run| sentence(view, point, run, crews.len() == 1)));
    }
    said.extend(feeding(view));
    said.extend(fetching(view));
    said
}

/// What a comparison comes to for one crew.
struct Outcome<'a> {
    who: Who<'a>,
    /// The lighter unit's figure, and the thread's.
    light: &'a Measurement,
    thread: &'a Measurement,
    verdict: Verdict,
}

/// Who did better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Light,
    Thread,
    /// The intervals meet: chance may have decided.
    Open,
}

impl Outcome<'_> {
    /// Whether one sentence can tell both.
    fn joins(&self, other: &Outcome<'_>) -> bool {
        let kind = |outcome: &Outcome<'_>| {
            let units = (outcome.light.subject.unit.clone(), outcome.thread.subject.unit.clone());
            (outcome.who.place, outcome.who.runtime.to_owned(), units)
        };
        kind(self) == kind(other) && self.verdict == other.verdict && self.verdict != Verdict::Open
    }

    fn factor(&self) -> f64 {
        let ratio = self.thread.median / self.light.median;
        if self.verdict == Verdict::Thread { ratio.recip() } else { ratio }
    }
}

fn outcome<'a>(view: &View<'a>, crew: &Crew<'a>, point: &Point) -> Option<Outcome<'a>> {
    let find = |seat| {
        let who = crew.at(seat)?;
        Some((who, view.find(who, point.workload, point.metric)?))
    };
    let (_, thread) = find(Seat::Thread)?;
    let (who, light) = find(Seat::Fiber).or_else(|| find(Seat::Coroutine))?;
    // Of all these figures less is better.
    let lighter = light.median <= thread.median;
    let (winner, loser) = if lighter { (light, thread) } else { (thread, light) };
    let open = match (winner.ci_high, loser.ci_low) {
        (Some(high), Some(low)) => high >= low,
        // A published figure stands as it was published.
        _ => false,
    };
    let verdict = match (open, lighter) {
        (true, _) => Verdict::Open,
        (false, true) => Verdict::Light,
        (false, false) => Verdict::Thread,
    };
    Some(Outcome { who, light, thread, verdict })
}

fn sentence(view: &View<'_>, point: &Point, run: &[Outcome<'_>], alone: bool) -> String {
    let first = &run[0];
    let (template, winner, loser) = match first.verdict {
        Verdict::Light => (point.better, first.light, first.thread),
        Verdict::Thread => (point.better, first.thread, first.light),
        Verdict::Open => (point.equal, first.light, first.thread),
    };
    let name = |m: &Measurement| match m.subject.unit.as_str() {
        "platform" | "virtual" => format!("{} thread", m.subject.unit),
        unit => unit.to_owned(),
    };
    let mut factors: Vec<f64> = run.iter().map(Outcome::factor).collect();
    factors.sort_by(f64::total_cmp);
    let most = times(factors[factors.len() - 1]);
    let factor = match times(factors[0]) {
        least if least == most => most,
        least => format!("{least} to {most}"),
    };
    let claim =
        template.replace("{w}", &name(winner)).replace("{l}", &name(loser)).replace("{x}", &factor);
    let claim = match alone {
        true => claim,
        false => claim.replacen("Here", &place(view, run), 1),
    };
    let doubt = match first.verdict {
        Verdict::Open => ", as far as these samples can tell",
        _ => "",
    };
    if run.len() > 1 {
        return format!("{claim}{doubt}.");
    }
    let figure = |median| value(point.metric, median);
    format!(
        "{claim}{doubt} ({} against {}{}).",
        figure(winner.median),
        figure(loser.median),
        point.remark
    )
}

/// `In ruby 2.5 to 3.4`.
fn place(view: &View<'_>, run: &[Outcome<'_>]) -> String {
    let (first, last) = (run[0].who, run[run.len() - 1].who);
    let versions = match first.version == last.version {
        true => first.version.to_owned(),
        false => format!("{} to {}", first.version, last.version),
    };
    match view.places[first.place].as_str() {
        "" => format!("In {} {versions}", first.runtime),
        place => format!("In {} {versions} ({place})", first.runtime),
    }
}

/// The fastest way to feed the most people, for the fewest and the most nutrients.
fn feeding(view: &View<'_>) -> Vec<String> {
    let number = |m: &Measurement, name| m.subject.parameters.number(name).unwrap_or(0);
    let all: Vec<&Measurement> = view
        .figures
        .iter()
        .map(|f| f.m)
        .filter(|m| m.subject.workload == "feed" && m.metric == "time")
        .collect();
    let mut groups: Vec<(&str, &str, &str)> =
        all.iter().map(|m| (&*m.subject.runtime, &*m.subject.version, tables::yields(m))).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut said = Vec::new();
    for group in groups {
        let of_group: Vec<&&Measurement> = all
            .iter()
            .filter(|m| (&*m.subject.runtime, &*m.subject.version, tables::yields(m)) == group)
            .collect();
        let people = of_group.iter().map(|m| number(m, "people")).max().unwrap_or(0);
        let nutrients = || of_group.iter().map(|m| number(m, "nutrients"));
        for bites in [nutrients().min(), nutrients().max()].into_iter().flatten() {
            let mut ways: Vec<&&&Measurement> = of_group
                .iter()
                .filter(|m| number(m, "people") == people && number(m, "nutrients") == bites)
                .collect();
            ways.sort_by(|a, b| a.median.total_cmp(&b.median));
            let [best, .., worst] = ways[..] else { continue };
            let yielding = match group.2 {
                "yes" => ", a yield at each",
                "no" => " without a yield",
                _ => "",
            };
            said.push(format!(
                "In {} {}, to feed {} people {} bites each{yielding}, {} take {} and {} {}.",
                group.0,
                group.1,
                grouped(people as f64, 0),
                grouped(bites as f64, 0),
                spoken(best),
                value("time", best.median),
                spoken(worst),
                value("time", worst.median),
            ));
        }
    }
    said
}

/// A way to feed, as one says it.
fn spoken(m: &Measurement) -> String {
    match tables::how(m).as_str() {
        "hybrid" => "fibers on a few threads".into(),
        "processes" => "processes of fibers".into(),
        how => how.to_owned(),
    }
}

/// The fastest way to fetch, against one after the other.
fn fetching(view: &View<'_>) -> Vec<String> {
    let of_fetch = |m: &&Measurement| m.subject.workload == "fetch" && m.metric == "time";
    let all = || view.figures.iter().map(|f| f.m).filter(of_fetch);
    all()
        .filter(|m| m.subject.unit == "sequential")
        .filter_map(|plain| {
            let s = &plain.subject;
            let alike = |m: &&Measurement| {
                (&m.subject.runtime, &m.subject.version) == (&s.runtime, &s.version)
                    && m.subject.parameters == s.parameters
            };
            let best = all().filter(alike).min_by(|a, b| a.median.total_cmp(&b.median))?;
            let requests = s.parameters.number("requests")?;
            (best.subject.unit != "sequential").then(|| {
                format!(
                    "In {} {}, {requests} pages are there soonest by {}: {} against {} one after \
                     the other.",
                    s.runtime,
                    s.version,
                    best.subject.unit,
                    value("time", best.median),
                    value("time", plain.median),
                )
            })
        })
        .collect()
}
