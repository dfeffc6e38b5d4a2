//! What the figures say, in plain words.

use std::collections::{BTreeMap, BTreeSet};

use carefree_workloads::named::{distinct, list};

use super::contest;
use super::crowds::{self, are_comparable};
use super::serving;
use super::tables;
use super::tables::meal;
use super::topic::{Topic, ends, noun, plural, unit_of};
use super::view::{Crew, Seat, View, Who};
use crate::metric::{Claim, FIGURES, Figure, TIME};
use crate::number::times;
use crate::record::Measurement;
use crate::version::version_and_build;

/// The figures that sentences compare, by what those are about.
fn compared() -> Vec<(&'static Figure, Claim)> {
    let mut all: Vec<(&Figure, Claim)> =
        FIGURES.iter().filter_map(|figure| Some((figure, figure.claim?))).collect();
    all.sort_by_key(|(_, claim)| claim.topic);
    all
}

/// What there is to say, by topic: one sentence for each comparison of a fiber, or else of a
/// coroutine, with a thread; where a runtime is there in several versions that agree, one for all
/// of them.
pub(super) fn topics(view: &View<'_>) -> Vec<Topic> {
    let crews = view.crews();
    let mut leads = leads(view);
    let mut topics = Vec::new();
    let mut add = |title: &str, lead: Option<String>, said: Vec<String>| {
        topics.push(Topic { title: title.to_owned(), lead, load: None, said });
    };
    for (figure, claim) in compared() {
        let outcomes: Vec<Outcome<'_>> =
            crews.iter().filter_map(|crew| outcome(view, crew, figure)).collect();
        let mut runs: Vec<Vec<Outcome<'_>>> = Vec::new();
        for outcome in outcomes {
            match runs.last_mut().filter(|run| run[0].joins(&outcome)) {
                Some(run) => run.push(outcome),
                None => runs.push(vec![outcome]),
            }
        }
        let said = runs.iter().map(|run| sentence(view, &claim, run, crews.len() == 1)).collect();
        let title = claim.topic.title();
        add(title, leads.remove(title), said);
    }
    add("Feeding", None, with_mark_explained(feeding(view)));
    add("Fetching", None, fetching(view));
    topics.extend(serving::topics(view));
    topics.retain(|topic| !topic.said.is_empty());
    topics
}

/// The sentences, and after them, where one has the mark of few samples, what that means.
fn with_mark_explained(mut said: Vec<String>) -> Vec<String> {
    if said.iter().any(|sentence| sentence.contains('*')) {
        said.push("Marked *: of fewer than three samples.".to_owned());
    }
    said
}

/// A line for each topic with the least and the most of all runtimes that can be compared by it, and
/// how many these are; nothing where there are not several.
fn leads(view: &View<'_>) -> BTreeMap<&'static str, String> {
    let crews = view.crews();
    // Published figures are of other machines; these sentences are about this one.
    let here = |crew: &&Crew<'_>| {
        let place = crew.seats.iter().flatten().next().map_or(0, |who| who.place);
        view.places[place] != "published"
    };
    let mine: Vec<&Crew<'_>> = crews.iter().filter(here).collect();
    let mut several = false;
    let mut leads = BTreeMap::new();
    for (figure, claim) in compared() {
        let outcomes: Vec<Outcome<'_>> =
            mine.iter().filter_map(|crew| outcome(view, crew, figure)).collect();
        let runtimes: BTreeSet<&str> = outcomes.iter().map(|o| o.who.runtime).collect();
        several |= runtimes.len() > 1;
        if !outcomes.is_empty() {
            leads.insert(claim.topic.title(), lead(&outcomes, runtimes.len()));
        }
    }
    if several { leads } else { BTreeMap::new() }
}

/// The least and the most of these, of so many runtimes. What chance may have made is neither.
fn lead(outcomes: &[Outcome<'_>], runtimes: usize) -> String {
    const NAMED: usize = 2;
    let (open, decided): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| outcome.verdict == Verdict::Open);
    let ratio = |outcome: &Outcome<'_>| outcome.thread.median / outcome.light.median;
    let Some(ends) = ends(decided.iter().map(|o| (ratio(o), &o.light.subject)).collect()) else {
        return "no difference shown".to_owned();
    };
    let of = match runtimes > 1 && decided.len() > 1 {
        true => format!(", of {runtimes} runtimes"),
        false => String::new(),
    };
    let open = distinct(open.iter().map(|o| unit_of(&o.light.subject)));
    let open: Vec<&str> = open.iter().map(String::as_str).collect();
    let open = match open.len() {
        0 => String::new(),
        1..=NAMED => format!("; no difference shown for {}", list(&open)),
        more => format!("; no difference shown for {more} others"),
    };
    format!("{ends}{of}{open}")
}

/// What a comparison comes to for one crew.
struct Outcome<'a> {
    who: Who<'a>,
    /// The lighter unit's figure, and the thread's.
    light: &'a Measurement,
    thread: &'a Measurement,
    verdict: Verdict,
}

/// Which of the two did better.
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
        kind(self) == kind(other)
            && are_series(self.who.version, other.who.version)
            && self.verdict == other.verdict
            && self.verdict != Verdict::Open
    }

    fn factor(&self) -> f64 {
        let ratio = self.thread.median / self.light.median;
        match self.verdict {
            Verdict::Light => ratio,
            Verdict::Thread => ratio.recip(),
            Verdict::Open => ratio.max(ratio.recip()),
        }
    }

    /// Whether the medians are too far apart to be called equal, whatever the intervals say.
    fn is_apart(&self) -> bool {
        self.thread.median.max(self.light.median) > 1.25 * self.thread.median.min(self.light.median)
    }
}

/// Whether one version follows on the other: not if it is a variant or another build. (Those have no
/// colon in their names; images have, and each version has one of its own.)
fn are_series(one: &str, other: &str) -> bool {
    let builds = [one, other].map(|version| version_and_build(version).1);
    builds[0] == builds[1] || builds.iter().all(|build| build.is_some_and(|b| b.contains(':')))
}

fn outcome<'a>(view: &View<'a>, crew: &Crew<'a>, figure: &Figure) -> Option<Outcome<'a>> {
    let find = |seat| {
        let who = crew.at(seat)?;
        Some((who, view.find(who, figure.name())?))
    };
    let (_, thread) = find(Seat::Thread)?;
    let (who, light) = find(Seat::Fiber).or_else(|| find(Seat::Coroutine))?;
    // One or two samples tell nothing from chance. (A published figure has none, and stands.)
    if [light, thread].iter().any(|m| m.is_rough()) || !are_comparable(light, thread) {
        return None;
    }
    // What took nothing is no multiple of anything.
    if [light, thread].iter().any(|m| m.median <= 0.0) {
        return None;
    }
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

fn sentence(view: &View<'_>, claim: &Claim, run: &[Outcome<'_>], alone: bool) -> String {
    let first = &run[0];
    let (light, thread) = (first.light, first.thread);
    let (how, winner, loser) = match first.verdict {
        Verdict::Open if !first.is_apart() => (claim.equal, light, thread),
        _ if light.median > thread.median => (claim.better, thread, light),
        _ => (claim.better, light, thread),
    };
    let mut factors: Vec<f64> = run.iter().map(Outcome::factor).collect();
    factors.sort_by(f64::total_cmp);
    let most = times(factors[factors.len() - 1]);
    let factor = match times(factors[0]) {
        least if least == most => most,
        least => format!("{least} to {most}"),
    };
    let said = claim
        .sentence
        .replace("{how}", how)
        .replace("{w}s", &plural(&noun(winner)))
        .replace("{l}s", &plural(&noun(loser)))
        .replace("{w}", &noun(winner))
        .replace("{l}", &noun(loser))
        .replace("{x}", &factor)
        .replace(" a async", " an async");
    let said = match alone {
        true => said,
        false => said.replacen("Here", &place(view, run), 1),
    };
    let doubt = match first.verdict {
        Verdict::Open if first.is_apart() => " by the medians alone, for the intervals overlap",
        Verdict::Open => ", as far as these samples can tell",
        _ => "",
    };
    let crowds = crowds::sizes(winner, loser);
    if run.len() > 1 {
        let crowds = crowds.map_or_else(String::new, |crowds| format!(" ({crowds})"));
        return format!("{said}{doubt}{crowds}.");
    }
    let crowds = crowds.map_or_else(String::new, |crowds| format!(", {crowds}"));
    let (winner, loser) = (winner.shown(), loser.shown());
    format!("{said}{doubt} ({winner} against {loser}{}{crowds}).", claim.remark)
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

/// From where on threads overtake; and the fastest and the slowest way to feed the most people, for the fewest and the most nutrients.
fn feeding(view: &View<'_>) -> Vec<String> {
    let mut said = contest::sentences(view);
    for family in view.families("feed") {
        for (yielding, remark) in [("yes", ", a yield at each"), ("no", " without a yield")] {
            let all: Vec<&Measurement> = family
                .figures
                .iter()
                .copied()
                .filter(|m| m.metric == TIME.name && tables::yields(m) == yielding)
                .collect();
            let people = all.iter().map(|m| meal(m, "people")).max().unwrap_or(0);
            let bites: BTreeSet<u64> = all.iter().map(|m| meal(m, "nutrients")).collect();
            let ends: BTreeSet<u64> =
                bites.first().into_iter().chain(bites.last()).copied().collect();
            for bites in ends {
                let mut ways: Vec<&&Measurement> = all
                    .iter()
                    .filter(|m| (meal(m, "people"), meal(m, "nutrients")) == (people, bites))
                    .collect();
                ways.sort_by(|a, b| a.median.total_cmp(&b.median));
                let [best, .., worst] = ways[..] else { continue };
                let spoken = |m| whose(&family.figures, m) + &spoken(m);
                said.push(format!(
                    "In {}, to feed {} {} each{remark}, {} take {} and {} {}.",
                    family.label,
                    tables::people(people),
                    tables::bites(bites),
                    spoken(best),
                    best.shown(),
                    spoken(worst),
                    worst.shown(),
                ));
            }
        }
    }
    said
}

/// `rust's `, where these figures are of several runtimes.
fn whose(figures: &[&Measurement], m: &Measurement) -> String {
    let runtime = &m.subject.runtime;
    match figures.iter().all(|other| other.subject.runtime == *runtime) {
        true => String::new(),
        false => format!("{runtime}'s "),
    }
}

/// A way to feed, in a sentence.
fn spoken(m: &Measurement) -> String {
    let units = plural(&noun(m));
    match tables::how(m).as_str() {
        "hybrid" => format!("{units} on a few threads"),
        "processes" => format!("{units} in a few processes"),
        _ => units,
    }
}

/// The fastest ways to fetch, of which the samples do not tell which is the fastest, against one after
/// the other. One or two samples tell nothing from chance.
fn fetching(view: &View<'_>) -> Vec<String> {
    let mut said = Vec::new();
    let all = tables::fetches(view);
    for fetches in &all {
        let of = |way: &str| fetches.find(way, TIME.name).filter(|m| !m.is_rough());
        let ways = || fetches.ways.iter().filter_map(|(way, time)| Some((*way, *time, of(way)?)));
        let Some((best, time, soonest)) = ways().next() else { continue };
        let Some((_, alone, plain)) = ways().find(|(way, ..)| *way == "sequential") else {
            continue;
        };
        // Published figures have no intervals, and stand.
        let meets = |m: &Measurement| match (soonest.ci_high, m.ci_low) {
            (Some(high), Some(low)) => low <= high,
            _ => m.subject == soonest.subject,
        };
        let requests = fetches.parameters.number("requests").unwrap_or(0);
        let own = tables::own_work(&all, fetches).to_string().replace(' ', ", ");
        let label = match own.is_empty() {
            true => fetches.label.clone(),
            false => format!("{} ({own})", fetches.label),
        };
        let [short, long] = [shown(soonest, time), shown(plain, alone)];
        let figures = format!("{short} against {long} one after the other");
        let named = |way: &str, m| whose(&fetches.figures, m) + way;
        let best = named(best, soonest);
        if meets(plain) || short == long {
            said.push(format!(
                "In {label}, no way is shown to have {requests} pages sooner than one after the \
                 other ({best}: {figures})."
            ));
            continue;
        }
        let equals = ways().filter(|(.., m)| meets(m)).map(|(way, _, m)| named(way, m));
        let equals: Vec<String> = equals.collect();
        said.push(format!(
            "In {label}, {requests} pages are there soonest by {}: {figures}.",
            equals.join(" or ")
        ));
    }
    said
}

/// A time to fetch, with the digits that its samples have; a published one by what its authors
/// compared.
fn shown(m: &Measurement, time: f64) -> String {
    if m.samples.is_empty() { TIME.quantity.show(time) } else { m.shown() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parameters, Record, Subject};

    fn sentences(view: &View<'_>) -> Vec<String> {
        topics(view).into_iter().flat_map(|topic| topic.said).collect()
    }

    #[test]
    fn the_lead_has_the_least_and_the_most_of_what_is_decided() {
        let lead = |ratios: &[(&str, f64, f64)]| {
            let mut results = Vec::new();
            for (runtime, ratio, spread) in ratios {
                for (unit, median) in [("task", 100.0), ("thread", 100.0 * ratio)] {
                    results.push(Measurement {
                        subject: Subject::new(
                            [runtime, "1.0", unit, "switch"],
                            Parameters::of([("units", 2)]),
                        ),
                        metric: "time_per_switch".into(),
                        median,
                        ci_low: Some(median * (1.0 - spread)),
                        ci_high: Some(median * (1.0 + spread)),
                        samples: vec![median; 5],
                        ..Measurement::default()
                    });
                }
            }
            let records = [Record { results, ..Record::default() }];
            let topics = topics(&View::new(&records));
            topics.into_iter().find_map(|topic| topic.lead).unwrap_or_default()
        };
        let (python, ruby, rust) =
            (("python", 0.4, 0.01), ("ruby", 1.02, 0.1), ("rust", 72.0, 0.01));
        assert_eq!(lead(&[python, rust]), "0.4x (python task) to 72x (rust task), of 2 runtimes");
        assert_eq!(
            lead(&[python, ruby, rust]),
            "0.4x (python task) to 72x (rust task), of 3 runtimes; no difference shown for ruby task"
        );
        // However large: chance may have made it.
        let wild = ("d", 90.0, 0.999);
        assert_eq!(lead(&[wild, rust]), "72x (rust task); no difference shown for d task");
        assert_eq!(lead(&[ruby, ("d", 1.0, 0.1)]), "no difference shown");
    }

    #[test]
    fn crowds_of_two_sizes_are_told() {
        let said = |threads: u64| {
            let figure = |unit: &str, units, median| Measurement {
                subject: Subject::new(
                    ["ruby", "3.4", unit, "warm"],
                    Parameters::of([("units", units)]),
                ),
                metric: "last_time_per_unit".into(),
                median,
                ..Measurement::default()
            };
            let results = vec![figure("fiber", 10_000, 1e3), figure("thread", threads, 9e3)];
            sentences(&View::new(&[Record { results, ..Record::default() }])).join(" ")
        };
        assert!(said(10_000).ends_with("(1.00 µs against 9.00 µs)."), "{}", said(10_000));
        let told = "(1.00 µs against 9.00 µs, in crowds of 10,000 and 1,000).";
        assert!(said(1_000).ends_with(told), "{}", said(1_000));
    }

    #[test]
    fn the_soonest_way_is_claimed_of_those_that_the_samples_tell_apart() {
        let said = |times: [(&str, f64); 3], samples: usize| {
            let figure = |(unit, median): (&str, f64)| Measurement {
                subject: Subject::new(
                    ["ruby", "3.4", unit, "fetch"],
                    Parameters::of([("requests", 50)]),
                ),
                metric: TIME.name.into(),
                median,
                ci_low: Some(median * 0.95),
                ci_high: Some(median * 1.05),
                samples: vec![median; samples],
                ..Measurement::default()
            };
            let results = times.map(figure).to_vec();
            sentences(&View::new(&[Record { results, ..Record::default() }])).join(" ")
        };
        let ways = |fiber| [("sequential", 1000.0), ("thread", 30.0), ("fiber", fiber)];
        assert_eq!(
            said(ways(20.0), 5),
            "In ruby 3.4, 50 pages are there soonest by fiber: 20.0 ms against 1.000 s one after the \
             other."
        );
        let open = said(ways(29.0), 5);
        assert!(open.contains("soonest by fiber or thread: 29.0 ms against"), "{open}");
        let none = said([("sequential", 30.0), ("thread", 29.0), ("fiber", 29.5)], 5);
        assert!(none.contains("no way is shown to have 50 pages sooner"), "{none}");
        assert_eq!(said(ways(20.0), 2), "");
    }

    #[test]
    fn a_way_is_said_to_be_of_its_runtime_where_a_sentence_is_about_two() {
        let figure = |runtime: &str, unit: &str, median: f64| Measurement {
            subject: Subject::new(
                [runtime, "1.0", unit, "fetch"],
                Parameters::of([("requests", 50)]),
            ),
            metric: TIME.name.into(),
            median,
            ci_low: Some(median * 0.95),
            ci_high: Some(median * 1.05),
            samples: vec![median; 5],
            ..Measurement::default()
        };
        let results = vec![
            figure("rust", "sequential", 1000.0),
            figure("rust", "task", 20.0),
            figure("carefree", "fiber", 20.5),
        ];
        let said = sentences(&View::new(&[Record { results, ..Record::default() }])).join(" ");
        assert!(said.contains("soonest by rust's task or carefree's fiber: 20.0 ms"), "{said}");
    }

    #[test]
    fn variants_are_no_later_versions() {
        assert!(are_series("3.3.1", "3.4.0") && are_series("3.3.1 (yjit)", "3.4.0 (yjit)"));
        assert!(are_series("3.3.1 (ruby:3.3)", "3.4.0 (ruby:3.4)"));
        assert!(!are_series("3.3.1", "3.3.1 (yjit)") && !are_series("3.3.1 (mn)", "3.3.1 (yjit)"));
    }

    #[test]
    fn units_are_said_as_one_says_them() {
        let said = |unit: &str| {
            let mut m = crate::record::published()[0].results[0].clone();
            m.subject.unit = unit.into();
            (noun(&m), plural(&noun(&m)))
        };
        let pair = |one: &str, many: &str| (one.to_owned(), many.to_owned());
        assert_eq!(said("goroutine"), pair("goroutine", "goroutines"));
        assert_eq!(said("process"), pair("process", "processes"));
        assert_eq!(said("virtual"), pair("virtual thread", "virtual threads"));
        assert_eq!(said("thread (carefree)"), pair("thread (carefree)", "threads (carefree)"));
        assert_eq!(
            said("puma (carefree)"),
            pair("thread of Puma (carefree)", "threads of Puma (carefree)")
        );
        assert_eq!(said("may"), pair("coroutine of may", "coroutines of may"));
    }
}
