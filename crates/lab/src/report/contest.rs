//! Whether fibers or threads feed faster, by the length of the meal: the answer that the curves of
//! feeding are measured for.

use std::collections::BTreeSet;

use super::meals::{bites, bites_above, explained, how, meal, people, yields};
use super::table::{Align, NOTHING, Table};
use super::view::{Family, Seat, View};
use crate::metric::TIME;
use crate::number::{MARK, grouped, times};
use crate::record::Measurement;

/// Meals that all have the same work, for the most people there were.
pub(super) struct Contest<'a> {
    /// `ruby 3.3.8`.
    pub(super) label: String,
    /// Whether there is a yield at every bite.
    pub(super) work: Work,
    pub(super) people: u64,
    /// From the shortest meal to the longest.
    pub(super) meals: Vec<Meal<'a>>,
}

/// Which meals are compared with which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Both sides yield at every bite.
    Yields,
    /// Neither does.
    Plain,
    /// Fibers yield and threads do not, for the kernel takes turns for them: as published.
    Mixed,
}

/// A meal, with the fastest way of each side.
pub(super) struct Meal<'a> {
    pub(super) bites: u64,
    pub(super) light: &'a Measurement,
    pub(super) thread: &'a Measurement,
}

/// Which side is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Winner {
    Light,
    Thread,
    /// Their intervals meet.
    Open,
}

/// Where threads overtake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Crossing {
    /// From about so many bites on.
    At(f64),
    /// From the shortest meal on that was measured.
    Always,
    /// Not up to the longest meal that was measured.
    Never,
    /// For no meal do the samples tell which side is faster.
    Open,
}

impl Meal<'_> {
    /// How many times what the lighter unit takes the thread takes.
    pub(super) fn ratio(&self) -> f64 {
        self.thread.median / self.light.median
    }

    pub(super) fn winner(&self) -> Winner {
        let (winner, loser, won) = match self.ratio() >= 1.0 {
            true => (self.light, self.thread, Winner::Light),
            false => (self.thread, self.light, Winner::Thread),
        };
        match (winner.ci_high, loser.ci_low) {
            (Some(high), Some(low)) if high >= low => Winner::Open,
            _ => won,
        }
    }

    /// Stands behind what rests on fewer than three samples of one side.
    pub(super) fn mark(&self) -> String {
        let rough = self.light.is_rough() || self.thread.is_rough();
        if rough { MARK.to_string() } else { String::new() }
    }

    /// `fibers 3.2x`; `open`, where chance may have decided.
    pub(super) fn cell(&self) -> String {
        let (ratio, mark) = (self.ratio(), self.mark());
        match self.winner() {
            Winner::Light => format!("{} {}{mark}", side(self.light), times(ratio)),
            Winner::Thread => format!("threads {}{mark}", times(ratio.recip())),
            Winner::Open => "open".to_owned(),
        }
    }
}

/// What a way to feed is called: `fibers`, `hybrid`; what is no plain fiber by its unit, `task`.
fn side(m: &Measurement) -> String {
    match (how(m).as_str(), m.subject.unit.as_str()) {
        (how @ ("hybrid" | "processes"), _) => how.to_owned(),
        (_, "fiber") => "fibers".to_owned(),
        (_, unit) => unit.to_owned(),
    }
}

impl Contest<'_> {
    /// The last change from fibers to threads, between two meals for which it is beyond doubt which side is
    /// faster, by the logarithms of bites and times.
    pub(super) fn crossing(&self) -> Crossing {
        let told = self.meals.iter().filter(|meal| meal.winner() != Winner::Open);
        let told: Vec<&Meal<'_>> = told.collect();
        let turn = told.windows(2).rev().find_map(|pair| {
            let [one, other] = pair else { return None };
            let (before, after) = (one.ratio().ln(), other.ratio().ln());
            let crosses = before >= 0.0 && after < 0.0;
            crosses.then(|| {
                let share = before / (before - after);
                let (from, to) = ((one.bites as f64).ln(), (other.bites as f64).ln());
                Crossing::At((from + share * (to - from)).exp())
            })
        });
        match (turn, told.last().map(|meal| meal.winner())) {
            (_, None) => Crossing::Open,
            (Some(turn), Some(Winner::Thread)) => turn,
            (None, Some(Winner::Thread)) => Crossing::Always,
            _ => Crossing::Never,
        }
    }

    /// `from 3,400 bites`.
    pub(super) fn overtaken(&self) -> String {
        let ends = |meal: Option<&Meal<'_>>| bites(meal.map_or(0, |meal| meal.bites));
        let overtaken = match self.crossing() {
            Crossing::At(at) => format!("from {}", bites(rounded(at).round() as u64)),
            Crossing::Always => format!("from {} or fewer", ends(self.meals.first())),
            Crossing::Never => format!("not up to {}", ends(self.meals.last())),
            Crossing::Open => return "no difference shown".to_owned(),
        };
        overtaken + &self.mark()
    }

    /// Stands behind what is concluded from meals of which one has a mark.
    fn mark(&self) -> String {
        let told = self.meals.iter().filter(|meal| meal.winner() != Winner::Open);
        told.map(Meal::mark).find(|mark| !mark.is_empty()).unwrap_or_default()
    }
}

/// Two digits: more would claim what an interpolation does not have.
fn rounded(bites: f64) -> f64 {
    let step = 10f64.powf(bites.max(1.0).log10().floor() - 1.0);
    (bites / step).round() * step
}

impl Work {
    pub(super) const ALL: [Work; 3] = [Work::Yields, Work::Plain, Work::Mixed];

    pub(super) fn title(self) -> &'static str {
        match self {
            Work::Yields => "a yield at every bite",
            Work::Plain => "no yields",
            Work::Mixed => "fibers yield at every bite, threads do not",
        }
    }

    fn holds(self, m: &Measurement) -> bool {
        match (self, Seat::of(m)) {
            (Work::Yields, _) => yields(m) == "yes",
            (Work::Plain, _) => yields(m) != "yes",
            (Work::Mixed, Seat::Thread) => yields(m) != "yes",
            (Work::Mixed, _) => yields(m) == "yes",
        }
    }
}

/// All contests, by the work and then by the runtime.
pub(super) fn all<'a>(view: &View<'a>) -> Vec<Contest<'a>> {
    let families = view.families("feed");
    let mut found = Vec::new();
    for work in Work::ALL {
        for family in &families {
            // Only where the same work was not measured on both sides.
            let is_known = found.iter().any(|known: &Contest<'_>| known.label == family.label);
            if work != Work::Mixed || !is_known {
                found.extend(of_family(family, work));
            }
        }
    }
    found
}

fn of_family<'a>(family: &Family<'a>, work: Work) -> Option<Contest<'a>> {
    let figures: Vec<&'a Measurement> = family
        .figures
        .iter()
        .copied()
        .filter(|m| m.metric == TIME.name && m.median > 0.0 && work.holds(m))
        .collect();
    let fastest = |people: u64, bites: u64, thread: bool| {
        let is_there = |m: &&&'a Measurement| {
            (meal(m, "people"), meal(m, "nutrients")) == (people, bites)
                && (Seat::of(m) == Seat::Thread) == thread
        };
        figures.iter().filter(is_there).min_by(|a, b| a.median.total_cmp(&b.median)).copied()
    };
    let sizes: BTreeSet<u64> = figures.iter().map(|m| meal(m, "people")).collect();
    let bites: BTreeSet<u64> = figures.iter().map(|m| meal(m, "nutrients")).collect();
    let meals = |people: u64| -> Vec<Meal<'a>> {
        let meal = |&bites: &u64| {
            let (light, thread) = (fastest(people, bites, false)?, fastest(people, bites, true)?);
            Some(Meal { bites, light, thread })
        };
        bites.iter().filter_map(meal).collect()
    };
    // The largest crowd that had both sides at most of the meals. One alone has no other to yield to.
    let crowds = sizes.iter().map(|&people| (people, meals(people)));
    let crowds = crowds.filter(|(_, meals)| !meals.is_empty());
    let (people, meals) =
        crowds.max_by_key(|(people, meals)| (*people > 1, meals.len(), *people))?;
    let label = family.label.clone();
    Some(Contest { label, work, people, meals })
}

/// What each contest comes to, in a sentence.
pub(super) fn sentences(view: &View<'_>) -> Vec<String> {
    let sentence = |contest: Contest<'_>| {
        let ends = |meal: Option<&Meal<'_>>| bites(meal.map_or(0, |meal| meal.bites));
        let outcome = match contest.crossing() {
            Crossing::At(at) => {
                format!("threads overtake from about {} on", bites(rounded(at).round() as u64))
            }
            Crossing::Always => {
                let least = ends(contest.meals.first());
                format!("threads are faster from {least} on, the fewest measured")
            }
            Crossing::Open => "no difference is shown".to_owned(),
            Crossing::Never => {
                let most = ends(contest.meals.last());
                format!("threads do not overtake up to {most}, the most measured")
            }
        };
        let doubt = match contest.mark().is_empty() || contest.crossing() == Crossing::Open {
            true => "",
            false => "*",
        };
        let people = people(contest.people);
        format!(
            "In {}, feeding {people} ({}), {outcome}{doubt}.",
            contest.label,
            contest.work.title()
        )
    };
    all(view).into_iter().map(sentence).collect()
}

/// A row for each runtime, a column for each length of meal: which side is faster, and how many times; and
/// from where on it is threads.
pub(super) fn table(view: &View<'_>) -> Table {
    let all = all(view);
    let bites: BTreeSet<u64> =
        all.iter().flat_map(|contest| &contest.meals).map(|meal| meal.bites).collect();
    let mut table = Table::new("Fibers or Threads, by the Length of the Meal")
        .left(["Runtime", "Yields"])
        .right(["People"]);
    for bites in &bites {
        table.add(bites_above(*bites), Align::Left);
    }
    table.add("Threads Overtake", Align::Left);
    for contest in &all {
        let yields = match contest.work {
            Work::Yields => "yes",
            Work::Plain => "no",
            Work::Mixed => "fibers",
        };
        let mut row = vec![
            contest.label.replace(", ", "\n"),
            yields.to_owned(),
            grouped(contest.people as f64, 0),
        ];
        for bites in &bites {
            let meal = contest.meals.iter().find(|meal| meal.bites == *bites);
            let won = match meal.map(Meal::winner) {
                Some(Winner::Light) => Some("fiber"),
                Some(Winner::Thread) => Some("thread"),
                Some(Winner::Open) | None => None,
            };
            table.won.extend(won.map(|won| ((table.rows.len(), row.len()), won)));
            row.push(meal.map_or_else(|| NOTHING.to_owned(), Meal::cell));
        }
        row.push(contest.overtaken());
        table.rows.push(row);
    }
    if all.is_empty() {
        return table;
    }
    table.notes = vec![
        "The faster side of each meal, by its fastest way, and how many times.".into(),
        "Where threads overtake lies between two meals that were measured: interpolated by the \
         logarithms of bites and times."
            .into(),
    ];
    let meals = || all.iter().flat_map(|contest| &contest.meals);
    if meals().any(|meal| meal.winner() == Winner::Open) {
        table.notes.push("Open: the intervals meet.".into());
    }
    table.notes.extend(explained(meals().flat_map(|meal| [meal.light, meal.thread])));
    if all.iter().any(|contest| contest.work == Work::Mixed) {
        table.notes.push(
            "Yields, fibers: they yield at every bite and the threads do not, for the kernel takes \
             turns for them."
                .into(),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{self, Parameters, Record, Subject};
    use crate::report::{Format, render};

    /// Times of threads and of fibers, for 10, 100, 1,000 and 10,000 bites.
    fn record(threads: [f64; 4], fibers: [f64; 4]) -> Record {
        let times = [("thread", threads), ("fiber", fibers)];
        let results = times.into_iter().flat_map(|(unit, times)| {
            let bites = [10_u64, 100, 1_000, 10_000];
            times.into_iter().zip(bites).map(move |(median, bites)| Measurement {
                subject: Subject::new(
                    ["x", "1", unit, "feed"],
                    Parameters::of([("people", 64), ("nutrients", bites)]).with("yields", true),
                ),
                metric: TIME.name.into(),
                median,
                ci_low: Some(median * 0.99),
                ci_high: Some(median * 1.01),
                ..Measurement::default()
            })
        });
        Record { results: results.collect(), ..Record::default() }
    }

    fn row(threads: [f64; 4], fibers: [f64; 4]) -> Vec<String> {
        let records = [record(threads, fibers)];
        let mut table = table(&View::new(&records));
        assert_eq!(table.rows.len(), 1);
        table.rows.remove(0)
    }

    #[test]
    fn the_faster_side_is_named_with_its_factor_and_where_that_changes() {
        // Twice as fast and half as fast: the turn is in the middle of 1,000 and 10,000.
        let row = row([50.0, 50.0, 60.0, 100.0], [5.0, 50.2, 30.0, 200.0]);
        assert_eq!(row[..3], ["x 1", "yes", "64"]);
        assert_eq!(
            row[3..],
            ["fibers 10x", "open", "fibers 2.0x", "threads 2.0x", "from 3,200 bites"]
        );
    }

    #[test]
    fn what_is_no_plain_fiber_is_named() {
        let cells = |unit: &str| {
            let mut record = record([50.0; 4], [5.0; 4]);
            for m in record.results.iter_mut().filter(|m| m.subject.unit == "fiber") {
                m.subject.unit = unit.into();
                m.role = Some("fiber".into());
            }
            table(&View::new(&[record])).rows[0][3].clone()
        };
        assert_eq!(cells("fiber"), "fibers 10x");
        assert_eq!(cells("task"), "task 10x");
        assert_eq!(cells("thread (carefree)"), "thread (carefree) 10x");
    }

    #[test]
    fn one_bite_is_no_bites() {
        let mut record = record([50.0, 50.0, 60.0, 100.0], [5.0, 50.2, 30.0, 200.0]);
        for m in &mut record.results {
            if meal(m, "nutrients") == 10 {
                m.subject.parameters.set("nutrients", 1_u64);
            }
        }
        for format in [Format::Text, Format::Html, Format::Markdown] {
            let shown = render(&record, format, false);
            assert!(shown.contains("1 Bite"), "{shown}");
            assert!(!shown.contains("1 bites") && !shown.contains("1 Bites"), "{shown}");
            assert!(!shown.contains("1 nutrients"), "{shown}");
        }
    }

    #[test]
    fn one_person_is_no_people() {
        let mut record = record([9.0; 4], [1.0; 4]);
        record.results.iter_mut().for_each(|m| m.subject.parameters.set("people", 1_u64));
        let records = [record];
        let said = sentences(&View::new(&records));
        assert!(said[0].starts_with("In x 1, feeding 1 person (a yield"), "{said:?}");
    }

    #[test]
    fn one_alone_stands_for_no_crowd() {
        let mut record = record([9.0; 4], [1.0; 4]);
        let mut alone = record.results.clone();
        alone.iter_mut().for_each(|m| m.subject.parameters.set("people", 1_u64));
        // Of the crowd, the longest meals were left out.
        record.results.retain(|m| m.subject.parameters.number("nutrients") < Some(100));
        record.results.extend(alone);
        let records = [record];
        assert_eq!(table(&View::new(&records)).rows[0][2], "64");
    }

    #[test]
    fn what_rests_on_few_samples_is_marked() {
        let mut record = record([50.0, 50.0, 60.0, 100.0], [5.0, 50.2, 30.0, 200.0]);
        for m in &mut record.results {
            m.samples = vec![m.median; 2];
        }
        let records = [record];
        let view = View::new(&records);
        let marked = ["fibers 10x*", "open", "fibers 2.0x*", "threads 2.0x*", "from 3,200 bites*"];
        assert_eq!(table(&view).rows[0][3..], marked);
        let said = "threads overtake from about 3,200 bites on*.";
        assert!(sentences(&view)[0].ends_with(said), "{:?}", sentences(&view));
    }

    #[test]
    fn one_side_may_be_faster_throughout() {
        let fibers = row([9.0; 4], [1.0; 4]);
        assert_eq!(fibers.last().map(String::as_str), Some("not up to 10,000 bites"));
        let threads = row([1.0; 4], [9.0; 4]);
        assert_eq!(threads.last().map(String::as_str), Some("from 10 bites or fewer"));
        let none = row([1.0; 4], [1.001; 4]);
        assert_eq!(none.last().map(String::as_str), Some("no difference shown"));
        // Where chance may have decided at the end, nothing is overtaken.
        let open = row([9.0, 9.0, 9.0, 1.0], [1.0, 1.0, 1.0, 1.001]);
        assert_eq!(open.last().map(String::as_str), Some("not up to 10,000 bites"));
    }

    #[test]
    fn published_meals_are_compared_as_they_were_published() {
        let records = record::published();
        let table = table(&View::new(&records));
        assert_eq!(table.rows.len(), 1, "{:?}", table.rows);
        assert_eq!(table.rows[0][1], "fibers");
        assert!(table.rows[0].last().is_some_and(|end| end.starts_with("from ")), "{table:?}");
    }
}
