//! The samples that a run of `feed` orders, and the check of what they did.

use std::time::Duration;

use carefree_workloads::answer::{Account, Failure};
use carefree_workloads::feed::How;
use carefree_workloads::parameters::Parameters;
use carefree_workloads::role::Role;
use carefree_workloads::workload::Size;

use crate::sample::astray;
use crate::trial::Trial;

/// Which points of the curves are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Numbers of people.
    pub people: Vec<u64>,
    /// Bites each of them needs; one chart for each.
    pub nutrients: Vec<u64>,
    /// How long one point may be expected to take; those that would take longer are left out.
    /// Nothing: none is.
    pub most: Option<Duration>,
}

impl Sweep {
    /// The points of `carefree bench feed`: most powers of four, in three seconds each.
    pub fn new(size: Size) -> Sweep {
        match size {
            Size::Full => Sweep {
                people: vec![1, 4, 16, 64, 256, 1024, 2048],
                nutrients: vec![10, 100, 1_000, 10_000],
                most: Some(Duration::from_secs(3)),
            },
            Size::Quick => Sweep {
                people: vec![1, 32, 1024],
                nutrients: vec![10, 1_000],
                most: Some(Duration::from_millis(500)),
            },
        }
    }

    /// All of the experiment, however long it takes: every power of two.
    pub fn full() -> Sweep {
        Sweep {
            people: (0..=11).map(|power| 1 << power).collect(),
            nutrients: vec![10, 100, 1_000, 10_000],
            most: None,
        }
    }

    /// The kinds of samples of a unit that `base` describes, by those `ways` it has.
    pub(crate) fn of_unit(&self, base: &Trial, ways: Option<&[How]>) -> Vec<Trial> {
        let usual: &[How] = match base.role {
            Role::Fiber => &How::ALL,
            // Threads over threads are threads, and processes of them are what the kernel has.
            Role::Thread => &[How::Units],
        };
        let cores = base.parameters.cores();
        let mut trials = Vec::new();
        for &how in ways.unwrap_or(usual) {
            for yields in [true, false] {
                for &nutrients in &self.nutrients {
                    for &people in &self.people {
                        let mut trial = base.clone();
                        trial.parameters.set("units", people);
                        // A just-in-time compiler has seen the meal once.
                        trial.warmup = base.warmup.min(1);
                        trial.parameters.set("nutrients", nutrients);
                        trial.parameters.set("yields", u64::from(yields));
                        trial.parameters.set("how", how.name());
                        // Even on one core there is a difference between one and two.
                        trial.parameters.set("workers", cores.max(2));
                        trials.push(trial);
                    }
                }
            }
        }
        trials
    }
}

/// Bites in all; 0 for what is no meal.
pub(crate) fn bites(trial: &Trial) -> u64 {
    trial.parameters.units() * trial.parameters.parse::<u64>("nutrients").unwrap_or(0)
}

/// How long a sample of `trial` would take, by smaller meals of its kind: in proportion to one with
/// as many bites for fewer people; else, where as many people had two smaller numbers of bites, in
/// proportion to those. `None` where neither is known.
///
/// No other meals are used: a thread's creation costs as much as many bites, and most of the time of
/// a small meal is something else, which a large factor would multiply.
pub(crate) fn forecast<'a>(
    trial: &Trial,
    known: impl IntoIterator<Item = (&'a Trial, Duration)>,
) -> Option<Duration> {
    let same = |&(other, _): &(&Trial, Duration)| {
        let way = |trial: &Trial| {
            (trial.parameters.parse::<How>("how"), trial.parameters.parse::<u8>("yields"))
        };
        (&other.runtime, &other.version, &other.unit, other.workload)
            == (&trial.runtime, &trial.version, &trial.unit, trial.workload)
            && way(other) == way(trial)
    };
    let table =
        |trial: &Trial| (trial.parameters.units(), trial.parameters.parse::<u64>("nutrients"));
    let (people, nutrients) = table(trial);
    let mut fewer_people = Vec::new();
    let mut fewer_bites = Vec::new();
    let mut start = f64::INFINITY;
    for (other, time) in known.into_iter().filter(same) {
        let time = time.as_secs_f64();
        let (others, theirs) = table(other);
        if theirs == nutrients && others < people {
            fewer_people.push((others as f64, time));
        } else if others == people && theirs < nutrients {
            fewer_bites.push((theirs.unwrap_or(0) as f64, time));
        }
        // The part that does not depend on the meal's size, such as starting processes.
        start = start.min(time);
    }
    let most = |known: Vec<(f64, f64)>| known.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    // At least a tenth of the time is the meal's: noise must not make a large one look free.
    let own = |time: f64, less: f64| (time - less).max(time / 10.0);
    let round = if let Some((others, time)) = most(fewer_people) {
        start + own(time, start) * people as f64 / others
    } else {
        let least = fewer_bites.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let most = most(fewer_bites).filter(|most| most.0 > least.0)?;
        let bite = own(most.1, least.1) / (most.0 - least.0);
        most.1 + bite * (nutrients? as f64 - most.0)
    };
    let rounds = (trial.parameters.rounds() + trial.warmup) as f64;
    Some(Duration::from_secs_f64((round * rounds).min(1e9)))
}

/// Checks that all people were fed.
///
/// # Errors
/// A failure that says what is missing.
pub(crate) fn check(trial: &Trial, account: &Account) -> Result<(), Failure> {
    let due = 3 * bites(trial) * trial.parameters.rounds();
    let eaten = account.more.get("eaten").and_then(serde_json::Value::as_u64);
    if eaten == Some(due) {
        return Ok(());
    }
    let eaten = eaten.map_or("it does not say how much".into(), |eaten| eaten.to_string());
    Err(astray(format!("people were to eat {due} nutrients in all; they ate: {eaten}")))
}

/// The parameters under which a record keeps it.
pub(crate) fn parameters(trial: &Trial) -> Parameters {
    let how = match (trial.parameters.parse("how").unwrap_or(How::Units), trial.role) {
        (How::Units, Role::Thread) => "threads",
        (How::Units, Role::Fiber) => "fibers",
        (how, _) => how.name(),
    };
    Parameters::default()
        .with("people", trial.parameters.units())
        .with("nutrients", trial.parameters.parse::<u64>("nutrients").unwrap_or(0))
        .with("yields", trial.parameters.parse::<u8>("yields") == Some(1))
        .with("how", how)
        .with("cores", trial.parameters.cores())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use carefree_workloads::unit::Unit;
    use carefree_workloads::workload::Workload;

    fn points(unit: Unit, ways: Option<&[How]>) -> Vec<Trial> {
        let base = plan::tests::kind(unit, Workload::Feed);
        let sweep = Sweep { people: vec![1, 10, 100], nutrients: vec![10, 1000], most: None };
        sweep.of_unit(&base, ways)
    }

    /// A sample that took so long.
    fn took(trial: &Trial, ms: u64) -> (&Trial, Duration) {
        (trial, Duration::from_millis(ms))
    }

    #[test]
    fn threads_have_one_way_fibers_have_three_and_each_has_both_kinds_of_meal() {
        let told = |trials: &[Trial]| {
            let mut told: Vec<String> = trials.iter().map(|t| parameters(t).to_string()).collect();
            told.sort();
            told.dedup();
            told.len()
        };
        let (threads, fibers) = (points(Unit::Thread, None), points(Unit::Fiber, None));
        assert_eq!((threads.len(), fibers.len()), (12, 36));
        assert_eq!((told(&threads), told(&fibers)), (12, 36), "each point is one of its own");
        assert_eq!(points(Unit::Fiber, Some(&[How::Units])).len(), 12);
        let way = |trial: &Trial| parameters(trial).to_string();
        assert!(way(&threads[0]).contains("threads"), "{}", way(&threads[0]));
        assert!(way(&fibers[0]).contains("fibers"), "{}", way(&fibers[0]));
    }

    fn seconds(trial: &Trial, known: &[(&Trial, Duration)]) -> f64 {
        forecast(trial, known.iter().copied()).expect("enough is known").as_secs_f64()
    }

    #[test]
    fn a_forecast_goes_by_the_people_and_leaves_alone_what_is_there_anyway() {
        let mut points = points(Unit::Fiber, Some(&[How::Units]));
        points.retain(|trial| trial.parameters.parse::<u8>("yields") == Some(1));
        // 1, 10 and 100 people with 10 bites each; the same with 1,000.
        let [one, ten, hundred, .., many] = &points[..] else { panic!("six points") };
        assert_eq!(forecast(hundred, []), None);
        // 300 ms anyway, 100 ms for ten people.
        let known = [took(one, 300), took(ten, 400)];
        assert!((seconds(hundred, &known) - 1.3).abs() < 1e-6);
        assert_eq!(forecast(one, known), None, "no smaller one is known");
        assert_eq!(forecast(many, known), None, "these are other meals");
    }

    #[test]
    fn where_all_are_as_many_the_bites_tell() {
        let base = plan::tests::kind(Unit::Fiber, Workload::Feed);
        let sweep = Sweep { people: vec![50], nutrients: vec![10, 100, 1_000], most: None };
        let points = sweep.of_unit(&base, Some(&[How::Units]));
        let [few, some, many, ..] = &points[..] else { panic!("six points") };
        assert_eq!(forecast(many, [took(few, 100)]), None, "one point has no slope");
        // A millisecond for each of the 900 bites more.
        let known = [took(few, 100), took(some, 190)];
        assert!((seconds(many, &known) - 1.09).abs() < 1e-6);
        // Nothing more for 90 more bites? Then at least a tenth of the time was theirs.
        let noise = [took(few, 100), took(some, 90)];
        assert!((seconds(many, &noise) - 0.18).abs() < 1e-6);
    }

    #[test]
    fn another_way_or_unit_tells_nothing() {
        let (fibers, threads) = (points(Unit::Fiber, None), points(Unit::Thread, None));
        let known = || threads.iter().map(|trial| took(trial, 5));
        assert!(fibers.iter().all(|trial| forecast(trial, known()).is_none()));
    }

    #[test]
    fn a_person_who_was_not_fed_is_found_out() {
        let trial = &points(Unit::Fiber, None)[0];
        let ate = |eaten: u64| {
            let mut account = Account::default();
            account.more.insert("eaten".into(), eaten.into());
            check(trial, &account)
        };
        assert_eq!(ate(3 * bites(trial)), Ok(()));
        let failure = ate(3 * bites(trial) - 1).expect_err("a bite is missing");
        assert!(failure.message.starts_with("people were to eat 30 nutrients"), "{failure:?}");
        assert!(check(trial, &Account::default()).is_err(), "it does not say");
    }
}
