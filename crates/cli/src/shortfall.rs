//! What a run had no time for, said in warnings.

use std::cmp::Reverse;
use std::time::Duration;

use carefree_lab::noise::{Warning, WarningKind};
use carefree_lab::number::whole;
use carefree_lab::stats::FEWEST;
use carefree_lab::trial::Trial;
use carefree_workloads::named::distinct;
use carefree_workloads::workload::Workload;

use crate::progress::spoken;

/// The most kinds of samples that a warning names.
const NAMED: usize = 8;

/// A warning for each unit with points that would have taken too long.
pub(crate) fn left_out(points: &[(Trial, Duration)]) -> Vec<Warning> {
    let mut units: Vec<(String, u32, Duration)> = Vec::new();
    for (trial, forecast) in points {
        let unit = trial.to_string();
        match units.iter_mut().find(|(known, ..)| *known == unit) {
            Some((_, count, longest)) => {
                *count += 1;
                *longest = (*longest).max(*forecast);
            }
            None => units.push((unit, 1, *forecast)),
        }
    }
    let warning = |(unit, count, longest): (String, u32, Duration)| {
        let points = if count == 1 { "point is" } else { "points are" };
        let longest = spoken(longest);
        Warning {
            kind: WarningKind::LeftOut,
            message: format!(
                "{unit}: {count} {points} left out for want of time (up to {longest} each)"
            ),
            advice: "take the time and run with --full, or name fewer --people and --nutrients"
                .into(),
        }
    };
    units.into_iter().map(warning).collect()
}

/// `ruby 3.3.8 thread alloc`; of a meal also for how many and how long, for a unit is fed many.
fn name(trial: &Trial) -> String {
    let number = |name| whole(trial.parameters.number(name).unwrap_or(0));
    match trial.workload {
        Workload::Feed => {
            format!("{trial} of {} people, {} bites", number("people"), number("nutrients"))
        }
        _ => trial.to_string(),
    }
}

/// A warning on kinds that have fewer samples than the rest, because each takes long; slowest first. `budget`: the
/// time that the whole run had, if it had an end.
pub(crate) fn cut(budget: Option<Duration>, kinds: &[(Trial, u32, Duration)]) -> Option<Warning> {
    let mut kinds: Vec<_> = kinds.iter().collect();
    if kinds.is_empty() {
        return None;
    }
    kinds.sort_by_key(|(.., cost)| Reverse(*cost));
    let names: Vec<String> = kinds
        .iter()
        .take(NAMED)
        .map(|(trial, samples, cost)| {
            format!("{} ({samples}, of {} each)", name(trial), spoken(*cost))
        })
        .collect();
    let more = match kinds.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let whole = budget.map(|budget| format!(" of {}", spoken(budget))).unwrap_or_default();
    let all = |part: &dyn Fn(&Trial) -> String, between| {
        distinct(kinds.iter().map(|(trial, ..)| part(trial))).join(between)
    };
    Some(Warning {
        kind: WarningKind::Cut,
        message: format!(
            "fewer than {FEWEST} samples for want of time{whole}: {}{more}",
            names.join(", ")
        ),
        advice: format!(
            "run again, which takes more of them, or take the time: carefree bench {} --runtime {} \
             --unit '{}' --samples {FEWEST}",
            all(&|trial| trial.workload.to_string(), " "),
            all(&|trial| trial.runtime.clone(), ","),
            all(&|trial| trial.unit.clone(), ",")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carefree_workloads::parameters::Parameters;
    use carefree_workloads::role::Role;

    fn trial(runtime: &str, unit: &str, workload: Workload) -> Trial {
        Trial {
            runtime: runtime.into(),
            version: "1".into(),
            unit: unit.into(),
            role: Role::Thread,
            kernel: true,
            program: String::new(),
            source: String::new(),
            workload,
            parameters: Parameters::default(),
            warmup: 0,
            pin: None,
        }
    }

    #[test]
    fn what_has_few_samples_is_named_slowest_first_with_a_command_for_all_of_it() {
        let seconds = Duration::from_secs;
        assert_eq!(cut(Some(seconds(60)), &[]), None);
        let kinds = [
            (trial("ruby", "thread", Workload::Alloc), 3, seconds(9)),
            (trial("python", "thread", Workload::Warm), 1, seconds(40)),
            (trial("ruby", "thread (carefree)", Workload::Alloc), 2, seconds(20)),
        ];
        let warning = cut(Some(seconds(1_200)), &kinds).expect("three kinds");
        assert_eq!(
            warning.message,
            "fewer than 5 samples for want of time of 20 min 0 s: python 1 thread warm (1, of 40 s each), ruby 1 \
             thread (carefree) alloc (2, of 20 s each), ruby 1 thread alloc (3, of 9 s each)"
        );
        assert_eq!(
            warning.advice,
            "run again, which takes more of them, or take the time: carefree bench warm alloc --runtime \
             python,ruby --unit 'thread,thread (carefree)' --samples 5"
        );
    }

    #[test]
    fn of_many_kinds_the_slowest_are_named_and_the_others_counted() {
        let of = |number: u64| {
            (
                trial(&format!("r{number}"), "thread", Workload::Alloc),
                1,
                Duration::from_secs(number),
            )
        };
        let warning = cut(None, &(1..=11).map(of).collect::<Vec<_>>()).expect("eleven kinds");
        assert!(
            warning.message.starts_with("fewer than 5 samples for want of time: r11 1"),
            "{warning:?}"
        );
        assert!(
            warning.message.ends_with("r4 1 thread alloc (1, of 4 s each) and 3 more"),
            "{warning:?}"
        );
        assert!(warning.advice.contains("r11,r10,r9,r8,r7,r6,r5,r4,r3,r2,r1"), "{warning:?}");
    }

    #[test]
    fn a_meal_is_named_by_its_size() {
        let mut meal = trial("ruby", "thread", Workload::Feed);
        meal.parameters = Parameters::of([("nutrients", 100), ("people", 64)]);
        let said = cut(None, &[(meal, 1, Duration::from_secs(2))]).expect("one").message;
        assert!(
            said.ends_with("ruby 1 thread feed of 64 people, 100 bites (1, of 2 s each)"),
            "{said}"
        );
    }

    #[test]
    fn points_left_out_are_counted_for_each_unit() {
        let point =
            |unit, seconds| (trial("d", unit, Workload::Feed), Duration::from_secs(seconds));
        let said = left_out(&[point("fiber", 90), point("thread", 70), point("fiber", 80)]);
        let said: Vec<&str> = said.iter().map(|warning| &*warning.message).collect();
        assert_eq!(
            said,
            [
                "d 1 fiber feed: 2 points are left out for want of time (up to 1 min 30 s each)",
                "d 1 thread feed: 1 point is left out for want of time (up to 1 min 10 s each)"
            ]
        );
    }
}
