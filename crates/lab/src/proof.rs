//! Whether a sample's program did the work it was ordered to do: no more, no less, and seen from
//! outside wherever that is possible. A figure is a time divided by such work, so one that is not
//! proven is refused.

use carefree_workloads::answer::{Account, Failure, Round};
use carefree_workloads::feed::How;
use carefree_workloads::role::Role;
use carefree_workloads::workload::Workload;

use crate::hosted;
use crate::number::whole;
use crate::process::{Phase, Seen};
use crate::sample::astray;
use crate::sweep;
use crate::trial::Trial;

/// Of the switches ordered, `switch` needs this share at least: its figure is a time divided by the
/// switches made, and of fewer the rest of the time would be most of it.
const LEAST_SHARE: f64 = 0.5;

/// Checks what the program says against its orders, and against what was seen of it.
///
/// # Errors
/// A failure that names the first difference.
pub(crate) fn check(trial: &Trial, account: &Account, seen: &Seen) -> Result<(), Failure> {
    counts(trial, account)?;
    times(trial, account, seen)?;
    phases(trial, seen)?;
    if let Some(threads) = seen.threads.filter(|_| trial.kernel && trial.workload.is_gated()) {
        let units = trial.parameters.units();
        if threads < units {
            return Err(astray(format!(
                "the process had {} threads when all {} units were to be alive",
                whole(threads),
                whole(units)
            )));
        }
    }
    Ok(())
}

/// Numbers of units, rounds and switches.
fn counts(trial: &Trial, account: &Account) -> Result<(), Failure> {
    if trial.workload == Workload::Serve {
        // The work is the lab's, which has checked every answer, and the program counts nothing.
        return Ok(());
    }
    let parameters = &trial.parameters;
    let asked = match trial.workload {
        Workload::Feed if parameters.parse("yields") != Some(1_u8) => 0,
        Workload::Feed => sweep::bites(trial) * parameters.rounds(),
        // It has answers of a server to wait for, and no yields.
        Workload::Fetch => account.switches_asked,
        _ => parameters.switches_asked(),
    };
    for (what, did, ordered) in [
        ("units", account.units, parameters.units()),
        ("rounds", account.rounds.len() as u64, parameters.rounds()),
        ("switches", account.switches_asked, asked),
        ("warm-up rounds", account.warmup.map_or(0, |warmup| warmup.rounds), trial.warmup),
    ] {
        if did != ordered {
            let work = format!("{} {what} in place of {}", whole(did), whole(ordered));
            return Err(astray(format!("the program did other work than was ordered: {work}")));
        }
    }
    if account.switches_made > asked && trial.workload != Workload::Fetch {
        return Err(astray(format!(
            "the program did other work than was ordered: {} switches made, {} asked for",
            whole(account.switches_made),
            whole(asked)
        )));
    }
    Ok(())
}

/// Times that cannot be.
fn times(trial: &Trial, account: &Account, seen: &Seen) -> Result<(), Failure> {
    // In `feed` and `fetch` a round is not taken apart.
    let is_timed = |round: &Round| match trial.workload.is_gated() {
        true => round.create_ns > 0 && round.run_ns > 0,
        false => round.total_ns() > 0,
    };
    if !account.rounds.iter().all(is_timed) {
        return Err(Failure::new("the program says that a round took no time"));
    }
    let warmup = account.warmup.map_or(0, |warmup| warmup.ns);
    let told = account.rounds.iter().map(Round::total_ns).fold(warmup, u64::saturating_add);
    if u128::from(told) > seen.elapsed.as_nanos() {
        return Err(astray(format!(
            "the program says that its rounds took {:.3} s, and ran for {:.3} s in all: are they in \
             nanoseconds?",
            told as f64 / 1e9,
            seen.elapsed.as_secs_f64()
        )));
    }
    Ok(())
}

/// Whether it stopped where its memory was to be read, and there was a process to read it of.
fn phases(trial: &Trial, seen: &Seen) -> Result<(), Failure> {
    if !trial.weighs() {
        return Ok(());
    }
    let due: &[Phase] = match trial.workload.is_gated() {
        true => &[Phase::Base, Phase::Alive, Phase::Done],
        false if trial.workload == Workload::Serve => &[Phase::Serving],
        false => &[Phase::Base, Phase::Done],
    };
    if seen.phases != due {
        let named = |phases: &[Phase]| match phases {
            [] => "none".to_owned(),
            some => some.iter().map(|phase| phase.name()).collect::<Vec<_>>().join(", "),
        };
        return Err(astray(format!(
            "the program was to stop at the phases {}; it stopped at: {}",
            named(due),
            named(&seen.phases)
        )));
    }
    if seen.memory.is_some_and(|memory| memory.own.base == 0) {
        return Err(astray(
            "the process that the program named for its memory is not there".into(),
        ));
    }
    Ok(())
}

/// Checks the switches made, of which those that the kernel knows nothing of have been taken off.
///
/// # Errors
/// A failure that says that they are too few for the figure to mean anything.
pub(crate) fn switches(trial: &Trial, account: &Account) -> Result<(), Failure> {
    let (made, asked) = (account.switches_made, account.switches_asked);
    let least = match trial.workload {
        Workload::Fetch | Workload::Serve => 0,
        Workload::Switch => (asked as f64 * LEAST_SHARE).ceil() as u64,
        // A unit that has no other to give way to need not make any.
        _ if trial.parameters.units() < 2 => 0,
        // A unit that ends before the next one begins has none to give way to. Fibers that share a
        // thread all begin before any goes on.
        Workload::Feed => {
            let share = trial.role == Role::Fiber
                && trial.parameters.parse("how") == Some(How::Units)
                && !hosted::is_hosted(trial.asked_unit());
            u64::from(share).min(asked)
        }
        _ => 1.min(asked),
    };
    if made >= least {
        return Ok(());
    }
    let made = match made {
        0 => "none".to_owned(),
        made => format!("no more than {}", whole(made)),
    };
    let asked = whole(asked);
    Err(Failure {
        message: format!("of {asked} switches asked for, {made} can be proven"),
        advice: Some(
            "see docs/targets.md for what proves a switch; a unit that is alone has no other to \
             give way to"
                .into(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Footprint, Memory};
    use crate::plan::tests::kind;
    use carefree_workloads::answer::Warmup;
    use carefree_workloads::unit::Unit;
    use std::time::Duration;

    /// What a program says and shows that did as it was told.
    fn good(trial: &Trial) -> (Account, Seen) {
        let asked = trial.parameters.switches_asked();
        let round = Round { create_ns: 1_000, run_ns: 2_000 };
        let account = Account {
            units: trial.parameters.units(),
            switches_asked: asked,
            switches_made: asked,
            rounds: vec![round; usize::try_from(trial.parameters.rounds()).expect("few")],
            ..Account::default()
        };
        let own = Footprint { base: 1 << 20, rest: 2 << 20, peak: 2 << 20 };
        let seen = Seen {
            elapsed: Duration::from_millis(1),
            phases: vec![Phase::Base, Phase::Alive, Phase::Done],
            threads: Some(trial.parameters.units() + 1),
            memory: Some(Memory { own, files: None, whole: None, whole_method: None }),
            served: None,
        };
        (account, seen)
    }

    /// What is said of a program that did as it was told but for this.
    fn complaint(
        (unit, workload): (Unit, Workload),
        change: impl FnOnce(&mut Account, &mut Seen),
    ) -> String {
        let trial = kind(unit, workload);
        let (mut account, mut seen) = good(&trial);
        change(&mut account, &mut seen);
        let checked = check(&trial, &account, &seen).and_then(|()| switches(&trial, &account));
        checked.map_or_else(|failure| failure.message, |()| "none".into())
    }

    const ALLOC: (Unit, Workload) = (Unit::Thread, Workload::Alloc);
    const SWITCH: (Unit, Workload) = (Unit::Fiber, Workload::Switch);

    #[test]
    fn work_as_ordered_is_believed() {
        for unit in Unit::ALL {
            for workload in Workload::ALL.into_iter().filter(|workload| workload.is_gated()) {
                assert_eq!(complaint((unit, workload), |_, _| ()), "none", "{unit} {workload}");
            }
        }
    }

    #[test]
    fn switches_that_no_count_proves_make_no_figure() {
        let none = complaint(SWITCH, |account, _| account.switches_made = 0);
        assert_eq!(none, "of 20,000 switches asked for, none can be proven");
        let few = complaint(SWITCH, |account, _| account.switches_made = 9_999);
        assert_eq!(few, "of 20,000 switches asked for, no more than 9,999 can be proven");
        assert_eq!(complaint(SWITCH, |account, _| account.switches_made = 10_000), "none");
        let none = complaint(ALLOC, |account, _| account.switches_made = 0);
        assert_eq!(none, "of 2,000 switches asked for, none can be proven");
        // Threads that have a core each may return from their yields at once.
        assert_eq!(complaint(ALLOC, |account, _| account.switches_made = 1_000), "none");
    }

    #[test]
    fn more_work_than_ordered_is_noticed() {
        let more = complaint(SWITCH, |account, _| account.switches_made += 1);
        assert!(more.ends_with(": 20,001 switches made, 20,000 asked for"), "{more}");
        let rounds = complaint(ALLOC, |account, _| account.rounds.push(account.rounds[0]));
        assert!(rounds.ends_with(": 2 rounds in place of 1"), "{rounds}");
        let units = complaint(ALLOC, |account, _| account.units += 1);
        assert!(units.ends_with(": 1,001 units in place of 1,000"), "{units}");
        let warm = Some(Warmup { rounds: 1, ns: 1 });
        let warmed = complaint(ALLOC, |account, _| account.warmup = warm);
        assert!(warmed.ends_with(": 1 warm-up rounds in place of 0"), "{warmed}");
    }

    #[test]
    fn threads_that_are_not_there_were_not_alive() {
        let few = complaint(ALLOC, |_, seen| seen.threads = Some(999));
        assert_eq!(few, "the process had 999 threads when all 1,000 units were to be alive");
        // Fibers are not the kernel's to count; of a container the lab may see nothing.
        let fibers = (Unit::Fiber, Workload::Alloc);
        assert_eq!(complaint(fibers, |_, seen| seen.threads = Some(3)), "none");
        assert_eq!(complaint(ALLOC, |_, seen| seen.threads = None), "none");
    }

    #[test]
    fn times_that_cannot_be_are_refused() {
        let no_time = "the program says that a round took no time";
        assert_eq!(complaint(SWITCH, |account, _| account.rounds[0].run_ns = 0), no_time);
        assert_eq!(complaint(ALLOC, |account, _| account.rounds[0].create_ns = 0), no_time);
        let long = complaint(ALLOC, |account, _| account.rounds[0].run_ns = 4_000_000_000);
        assert!(long.contains("took 4.000 s, and ran for 0.001 s in all"), "{long}");
    }

    #[test]
    fn memory_is_read_at_every_phase_or_there_is_none() {
        let skipped =
            complaint(ALLOC, |_, seen| seen.phases.retain(|phase| *phase != Phase::Alive));
        assert!(skipped.ends_with("base, alive, done; it stopped at: base, done"), "{skipped}");
        let never = complaint(ALLOC, |_, seen| seen.phases.clear());
        assert!(never.ends_with("it stopped at: none"), "{never}");
        let gone = complaint(ALLOC, |_, seen| {
            seen.memory.as_mut().expect("some").own = Footprint::default();
        });
        assert!(gone.ends_with("is not there"), "{gone}");
        // Where no memory is measured, none stops.
        assert_eq!(complaint(SWITCH, |_, seen| seen.phases.clear()), "none");
    }

    #[test]
    fn a_server_has_served_or_has_no_figures() {
        let serve = (Unit::Fiber, Workload::Serve);
        let served = |_: &mut Account, seen: &mut Seen| seen.phases = vec![Phase::Serving];
        assert_eq!(complaint(serve, served), "none");
        let never = complaint(serve, |_, seen| seen.phases.clear());
        assert!(never.ends_with("stop at the phases serving; it stopped at: none"), "{never}");
    }

    #[test]
    fn a_meal_has_as_many_yields_as_bites() {
        let fed = |unit, people: u64, made: u64| {
            let mut trial = kind(unit, Workload::Feed);
            for (name, value) in [("units", people), ("nutrients", 10), ("yields", 1)] {
                trial.parameters.set(name, value);
            }
            trial.parameters.set("how", How::Units.name());
            let (mut account, seen) = good(&trial);
            (account.switches_asked, account.switches_made) = (10 * people, made);
            let checked = check(&trial, &account, &seen).and_then(|()| switches(&trial, &account));
            checked.map_or_else(|failure| failure.message, |()| "none".into())
        };
        assert_eq!(fed(Unit::Fiber, 3, 30), "none");
        assert!(fed(Unit::Fiber, 3, 31).ends_with("31 switches made, 30 asked for"));
        assert!(fed(Unit::Fiber, 3, 0).ends_with("none can be proven"));
        assert_eq!(fed(Unit::Fiber, 1, 0), "none", "alone");
        assert_eq!(fed(Unit::Thread, 3, 0), "none", "each may have eaten before the next began");
    }
}
