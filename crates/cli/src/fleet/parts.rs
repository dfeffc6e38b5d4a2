//! What of a plan is done on which machine, and what has to be handed out again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::receipt::{self, Place, Receipt};
use super::slurm::Job;

/// How often a task is handed to its machine before it is given up.
const TRIES: u32 = 3;

/// How long a receipt may take to be seen here after its job is over: folders that machines share
/// are looked at anew after some time only (NFS: up to a minute).
const GRACE: Duration = Duration::from_secs(60);
/// The same, of a job that failed and will hardly have left one.
const GRACE_OF_FAILED: Duration = Duration::from_secs(4);

/// One task on one machine.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) machine: String,
    pub(super) task: u32,
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) state: State,
    /// How often it was handed out.
    pub(super) tries: u32,
    /// When its job was first seen to be over without a receipt.
    missed: Option<Instant>,
    /// Whether its receipt or record looked damaged when last read.
    doubted: bool,
}

/// How far a part is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has to be handed to its machine.
    ToSubmit,
    /// It waits there, or runs.
    Submitted,
    Done(Receipt),
    GivenUp(String),
}

impl Part {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Done(_) | State::GivenUp(_))
    }

    /// `task 2 (ruby@3.1) on n1`.
    pub(super) fn what(&self) -> String {
        format!("task {} ({}) on {}", self.task, self.name, self.machine)
    }
}

/// All tasks of the plan on all machines. What has a whole record already is done.
pub(super) fn all(plan: &Plan, machines: &[String], folder: &Path) -> Vec<Part> {
    let id = plan.id();
    let mut parts = Vec::new();
    for machine in machines {
        for task in &plan.tasks {
            let place = Place::new(folder, &id, task.task, machine);
            // Without a record it was no use; the machine may be able to by now.
            let state = match Receipt::read(&place, &id) {
                Ok(Some(receipt)) if receipt.has_record() => State::Done(receipt),
                Ok(Some(_)) => {
                    let _ = std::fs::remove_file(place.receipt());
                    State::ToSubmit
                }
                _ => State::ToSubmit,
            };
            let (machine, name) = (machine.clone(), task.name.clone());
            let (task, tries, missed, doubted) = (task.task, 0, None, false);
            parts.push(Part { machine, task, name, place, state, tries, missed, doubted });
        }
    }
    parts
}

/// Looks at what has become of the parts, given the jobs that Slurm has, and returns what is to be
/// said of it. `ended` tells how a job went that is not among them any more.
pub(super) fn look(
    parts: &mut [Part],
    plan: &str,
    jobs: &[Job],
    now: Instant,
    ended: &mut dyn FnMut(&Part) -> Option<String>,
) -> Vec<String> {
    let mut newest: BTreeMap<(&str, u32), &Job> = BTreeMap::new();
    for job in jobs {
        let known = newest.entry((&job.machine, job.task)).or_insert(job);
        if job.array >= known.array {
            *known = job;
        }
    }
    let mut said = Vec::new();
    for part in parts.iter_mut().filter(|part| !part.is_over()) {
        let job = newest.get(&(&*part.machine, part.task)).copied();
        if job.is_some_and(|job| !job.is_over()) {
            // One of this run, or of one that was ended while its jobs went on.
            part.tries = part.tries.max(1);
            (part.state, part.missed) = (State::Submitted, None);
        }
        match Receipt::read(&part.place, plan) {
            Ok(Some(receipt)) => {
                part.state = State::Done(receipt);
                continue;
            }
            // What is written just now looks damaged, too.
            Err(error) if part.doubted => {
                part.doubted = false;
                if job.is_none_or(Job::is_over) {
                    said.push(format!("{}: {error:#}; it is measured again", part.what()));
                    let aside = receipt::set_aside(&part.place);
                    part.again(aside.err().map(|error| format!("{error:#}")), "damaged");
                }
                continue;
            }
            Err(_) => {
                part.doubted = true;
                continue;
            }
            Ok(None) => {}
        }
        let lives = job.is_some_and(|job| !job.is_over());
        if lives || part.state != State::Submitted {
            continue;
        }
        let missed = *part.missed.get_or_insert(now);
        let state = job.map(|job| job.state.clone()).or_else(|| ended(part));
        let state = state.unwrap_or_else(|| "forgotten".into());
        let well = ["COMPLETED", "forgotten"].contains(&&*state);
        if now.duration_since(missed) < if well { GRACE } else { GRACE_OF_FAILED } {
            continue;
        }
        match &*state {
            "CANCELLED" => {
                let why = "its job was cancelled; the same command goes on from there";
                part.state = State::GivenUp(why.into());
            }
            "COMPLETED" => {
                part.state = State::GivenUp(
                    "its job is over and left no receipt: do all machines share the folder?".into(),
                );
            }
            state => {
                part.again(None, state);
                if !part.is_over() {
                    said.push(format!("{} was lost ({state}): measured again", part.what()));
                }
            }
        }
    }
    said
}

impl Part {
    fn again(&mut self, hindered: Option<String>, why: &str) {
        self.missed = None;
        self.state = match hindered {
            Some(hindered) => State::GivenUp(hindered),
            None if self.tries >= TRIES => {
                State::GivenUp(format!("it was lost {} times (now: {why})", self.tries))
            }
            None => State::ToSubmit,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(folder: &Path) -> Part {
        Part {
            machine: "n1".into(),
            task: 1,
            name: "x".into(),
            place: Place::new(folder, "p", 1, "n1"),
            state: State::Submitted,
            tries: 1,
            missed: None,
            doubted: false,
        }
    }

    fn job(array: u64, state: &str) -> Job {
        Job { array, task: 1, machine: "n1".into(), state: state.into() }
    }

    /// The state after looks at these jobs, each a minute and more after the one before.
    fn after(part: &mut Part, looks: &[&[Job]]) -> Vec<String> {
        let begun = Instant::now();
        let mut said = Vec::new();
        for (at, jobs) in (0_u32..).zip(looks) {
            let now = begun + (GRACE + Duration::from_secs(1)) * at;
            let parts = std::slice::from_mut(part);
            said.extend(look(parts, "p", jobs, now, &mut |_| None));
        }
        said
    }

    #[test]
    fn a_lost_task_is_handed_out_again_and_at_last_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        for state in ["NODE_FAIL", "FAILED", "TIMEOUT", "PREEMPTED"] {
            let mut lost = part(folder.path());
            assert_eq!(after(&mut lost, &[&[job(1, state)]]), [""; 0], "not at the first look");
            assert_eq!(lost.state, State::Submitted);
            let said = after(&mut lost, &[&[job(1, state)], &[job(1, state)]]);
            assert_eq!(said, [format!("task 1 (x) on n1 was lost ({state}): measured again")]);
            assert_eq!(lost.state, State::ToSubmit);
            (lost.state, lost.tries) = (State::Submitted, TRIES);
            after(&mut lost, &[&[job(1, state)], &[job(1, state)]]);
            assert!(matches!(&lost.state, State::GivenUp(why) if why.contains(state)));
        }
        // The newest job counts, whatever the order.
        let mut again = part(folder.path());
        let jobs = [job(2, "PENDING"), job(1, "NODE_FAIL")];
        after(&mut again, &[&jobs, &jobs]);
        assert_eq!(again.state, State::Submitted);
        // Slurm forgets jobs after some minutes.
        let mut forgotten = part(folder.path());
        after(&mut forgotten, &[&[], &[]]);
        assert_eq!(forgotten.state, State::ToSubmit);
    }

    #[test]
    fn what_another_run_has_handed_out_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut adopted = part(folder.path());
        (adopted.state, adopted.tries) = (State::ToSubmit, 0);
        after(&mut adopted, &[&[job(1, "RUNNING")]]);
        assert_eq!((adopted.state, adopted.tries), (State::Submitted, 1));
    }

    #[test]
    fn a_job_that_was_cancelled_or_left_nothing_is_not_repeated() {
        let folder = tempfile::tempdir().expect("a folder");
        for (state, why) in [("CANCELLED", "cancelled"), ("COMPLETED", "share the folder")] {
            let mut over = part(folder.path());
            after(&mut over, &[&[job(1, state)], &[job(1, state)]]);
            assert!(matches!(&over.state, State::GivenUp(said) if said.contains(why)), "{over:?}");
        }
    }

    #[test]
    fn a_record_that_arrives_damaged_is_measured_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut done = part(folder.path());
        let written = folder.path().join("written");
        std::fs::write(&written, "whole\n").expect("written");
        let receipt = Receipt::new("p", (1, "x"), "n1");
        receipt.write(&done.place, Some(&written)).expect("written");
        std::fs::write(done.place.record(), "hole\n").expect("written");
        let over = [job(1, "COMPLETED")];
        assert_eq!(after(&mut done, &[&over]), [""; 0], "it may be on its way");
        let said = after(&mut done, &[&over]);
        assert!(said[0].ends_with(".jsonl is damaged; it is measured again"), "{said:?}");
        assert_eq!(done.state, State::ToSubmit);
        assert!(!done.place.record().exists());
    }
}
