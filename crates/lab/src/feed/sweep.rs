//! What a run of `feed` orders, and how what came of it is checked.

use std::time::Duration;

use super::How;
use crate::record;
use crate::role::Role;
use crate::run::Taken;
use crate::sample::{Account, Failure, Trial};
use crate::workload::Size;

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
    /// The points of `carefree bench feed`: each fourth power of two, in three seconds each.
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
        let cores = base.parameters.cores;
        let mut trials = Vec::new();
        for &how in ways.unwrap_or(usual) {
            for yields in [true, false] {
                for &nutrients in &self.nutrients {
                    for &people in &self.people {
                        let mut trial = base.clone();
                        trial.parameters.units = people;
                        // A just-in-time compiler has seen the meal once.
                        trial.warmup = base.warmup.min(1);
                        trial.parameters.orders.extend(
                            [
                                ("nutrients", nutrients.to_string()),
                                ("yields", u8::from(yields).to_string()),
                                ("how", how.to_string()),
                                // Even on one core there is a difference between one and two.
                                ("workers", cores.max(2).to_string()),
                            ]
                            .map(|(key, value)| (key.to_owned(), value)),
                        );
                        trials.push(trial);
                    }
                }
            }
        }
        trials
    }
}

fn order<T: std::str::FromStr>(trial: &Trial, key: &str) -> Option<T> {
    trial.parameters.orders.get(key)?.parse().ok()
}

/// Bites in all; 0 for what is no meal.
pub(crate) fn bites(trial: &Trial) -> u64 {
    trial.parameters.units * order::<u64>(trial, "nutrients").unwrap_or(0)
}

/// How long a sample of `trial` would take, by the smaller meals of its kind so far: each bite takes
/// about as long as any other, and a part of the time, such as starting processes, is there however
/// few there are. `None` where fewer than two are known.
pub(crate) fn forecast(trial: &Trial, taken: &[Taken]) -> Option<Duration> {
    let same = |taken: &&Taken| {
        let other = &taken.trial;
        let way = |trial: &Trial| (order::<How>(trial, "how"), order::<u8>(trial, "yields"));
        (&other.runtime, &other.version, &other.unit, other.workload)
            == (&trial.runtime, &trial.version, &trial.unit, trial.workload)
            && way(other) == way(trial)
            && bites(other) < bites(trial)
    };
    let mut known: Vec<(f64, f64)> = taken
        .iter()
        .filter(same)
        .filter_map(|taken| {
            Some((bites(&taken.trial) as f64, taken.sample.rounds.last()?.total_ns() as f64))
        })
        .collect();
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (&(few, start), &(many, time)) = (known.first()?, known.last()?);
    let more = if many > few { (time - start).max(0.0) / (many - few) } else { return None };
    let round = time + more * (bites(trial) as f64 - many);
    let rounds = trial.parameters.rounds + trial.warmup;
    Some(Duration::from_secs_f64((round * rounds as f64 / 1e9).min(1e9)))
}

/// Makes sure that everybody was fed.
///
/// # Errors
/// A failure that says what is missing.
pub(crate) fn check(trial: &Trial, account: &Account) -> Result<(), Failure> {
    let due = 3 * bites(trial) * trial.parameters.rounds;
    let eaten = account.more.get("eaten").and_then(serde_json::Value::as_u64);
    if eaten == Some(due) {
        return Ok(());
    }
    let eaten = eaten.map_or("it does not say how much".into(), |eaten| eaten.to_string());
    Err(Failure {
        message: format!("people were to eat {due} nutrients in all; they ate: {eaten}"),
        advice: Some("see docs/targets.md for what a program has to do".into()),
    })
}

/// The parameters under which a record keeps it.
pub(crate) fn parameters(trial: &Trial) -> record::Parameters {
    let how = match (order(trial, "how").unwrap_or(How::Units), trial.role) {
        (How::Units, Role::Thread) => "threads",
        (How::Units, Role::Fiber) => "fibers",
        (how, _) => how.name(),
    };
    record::Parameters::default()
        .with("people", trial.parameters.units)
        .with("nutrients", order::<u64>(trial, "nutrients").unwrap_or(0))
        .with("yields", order::<u8>(trial, "yields") == Some(1))
        .with("how", how)
        .with("cores", trial.parameters.cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use crate::sample::{Round, Sample};
    use crate::unit::Unit;
    use crate::workload::Workload;
    use std::collections::BTreeMap;

    fn points(unit: Unit, ways: Option<&[How]>) -> Vec<Trial> {
        let base = plan::tests::kind(unit, Workload::Feed);
        let sweep = Sweep { people: vec![1, 10, 100], nutrients: vec![10, 1000], most: None };
        sweep.of_unit(&base, ways)
    }

    /// A sample that took so long.
    fn took(trial: &Trial, ms: u64) -> Taken {
        let sample = Sample {
            process: 1,
            parameters: trial.parameters.clone(),
            switches_asked: 0,
            switches_made: 0,
            voluntary: 0,
            involuntary: 0,
            user_ns: 0,
            system_ns: 0,
            rounds: vec![Round { create_ns: 0, run_ns: ms * 1_000_000 }],
            memory: None,
            warmup: None,
            gc: None,
            figures: BTreeMap::new(),
            notes: Vec::new(),
            more: serde_json::Map::new(),
        };
        Taken { trial: trial.clone(), position: 0, sample }
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

    #[test]
    fn a_forecast_counts_what_is_there_however_few_there_are_once() {
        // 10, 100, 1000, 1000, 10000 and 100000 bites.
        let mut points = points(Unit::Fiber, Some(&[How::Units]));
        points.retain(|trial| order::<u8>(trial, "yields") == Some(1));
        points.sort_by_key(bites);
        let [few, some, .., most] = &points[..] else { panic!("six points") };
        assert_eq!(forecast(most, &[]), None);
        assert_eq!(forecast(most, &[took(few, 300)]), None, "one point has no slope");
        let known = [took(few, 300), took(some, 309)];
        // 309 ms, and 0.1 ms for each of 99,900 bites more.
        let seconds = forecast(most, &known).expect("two points").as_secs_f64();
        assert!((seconds - 10.299).abs() < 1e-6, "{seconds}");
        let flat = [took(few, 300), took(some, 290)];
        let seconds = forecast(most, &flat).expect("two points").as_secs_f64();
        assert!((seconds - 0.290).abs() < 1e-6, "{seconds}");
        assert_eq!(forecast(few, &known), None, "no smaller one is known");
    }

    #[test]
    fn another_way_or_unit_tells_nothing() {
        let (fibers, threads) = (points(Unit::Fiber, None), points(Unit::Thread, None));
        let known: Vec<Taken> = threads.iter().map(|trial| took(trial, 5)).collect();
        assert!(fibers.iter().all(|trial| forecast(trial, &known).is_none()));
    }

    #[test]
    fn whoever_is_still_hungry_is_found_out() {
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
