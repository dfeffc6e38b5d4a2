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

/// How long a sample of `trial` would take, by the largest meal of the same kind so far: bites
/// take about the same time however many there are. `None` before the first.
pub(crate) fn forecast(trial: &Trial, taken: &[Taken]) -> Option<Duration> {
    let same = |taken: &&Taken| {
        let other = &taken.trial;
        let way = |trial: &Trial| (order::<How>(trial, "how"), order::<u8>(trial, "yields"));
        (&other.runtime, &other.version, &other.unit, other.workload)
            == (&trial.runtime, &trial.version, &trial.unit, trial.workload)
            && way(other) == way(trial)
            && bites(other) < bites(trial)
    };
    let largest = taken.iter().filter(same).max_by_key(|taken| bites(&taken.trial))?;
    let round = largest.sample.rounds.last()?.total_ns();
    let rounds = trial.parameters.rounds + trial.warmup;
    // Starting the runtime is in the time of a small meal and does not grow with it; but a
    // forecast that is too long by that much leaves out nothing that would have been quick.
    let ns = u128::from(round) * u128::from(bites(trial)) * u128::from(rounds)
        / u128::from(bites(&largest.trial).max(1));
    Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
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
