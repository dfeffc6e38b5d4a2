//! Has Slurm run a plan on several machines, sees to it that every task is measured, and reports on
//! all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use carefree_lab::number::counted;
use carefree_lab::record::{self, Record, fingerprint, salvage};
use carefree_lab::report::{self, Format};

use super::parts::{self, Part, State};
use super::plan::Plan;
use super::slurm::{self, Job};
use super::task;
use crate::args::Bench;
use crate::bench::catch_interrupts;
use crate::out::Out;
use crate::progress::Bar;
use crate::{complain, exit, terminal};

/// How often Slurm is asked.
const PACE: Duration = Duration::from_secs(2);

/// How long cancelled jobs are waited for: Slurm gives them half a minute to end by themselves.
const FAREWELL: Duration = Duration::from_secs(60);

/// A run on several machines.
struct Drive<'a> {
    orders: &'a Bench,
    /// What Slurm calls its jobs: by the plan and the folder, so that a run that is started again
    /// finds them.
    name: String,
    id: String,
    folder: PathBuf,
    plan_file: PathBuf,
    parts: Vec<Part>,
    /// What Slurm had when it was last asked.
    jobs: Vec<Job>,
    bar: Bar,
}

pub(super) fn run(orders: &Bench) -> Result<ExitCode, (u8, Error)> {
    let usage = |error| (exit::USAGE, error);
    let failed = |error| (exit::FAILED, error);
    let engine = |error| (exit::ENGINE, error);
    let format = Format::choose(orders.format, orders.out.as_deref()).map_err(usage)?;
    let out = orders.out.as_deref().map(Out::check).transpose().map_err(usage)?;
    let machines = slurm::machines(&orders.fleet).map_err(engine)?;
    machines.iter().try_for_each(|name| task::check_name(name)).map_err(engine)?;
    let plan = match &orders.fleet.plan {
        Some(file) => Plan::read(file).map_err(usage)?,
        None => Plan::of(orders)?,
    };
    let mut drive = Drive::new(orders, &plan, &machines).map_err(usage)?;
    let interrupted = catch_interrupts().map_err(failed)?;
    drive.hand_out_all(&interrupted).map_err(engine)?;
    let broken_off = interrupted.load(Ordering::Relaxed);
    drive.bar.end();
    // No job of this run uses it any more; it stays where a task is not done.
    let _ = fs::remove_dir(drive.folder.join("work"));

    let complete = drive.tell();
    let mut records = drive.records();
    let unfinished = drive.unfinished();
    drive.tell_unfinished(&unfinished);
    records.extend(unfinished.into_iter().flat_map(|(_, records)| records));
    if records.is_empty() {
        let code = if broken_off { exit::INTERRUPTED } else { exit::FAILED };
        return Err((code, anyhow!("no machine has measured anything")));
    }
    match out {
        Some(out) => out.write(&report::render_all(&records, format, false)).map_err(usage)?,
        None => terminal::print(&report::render_all(&records, format, terminal::wants_colour()))
            .map_err(usage)?,
    }
    Ok(match (broken_off, complete) {
        (true, _) => ExitCode::from(exit::INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::from(exit::FAILED),
    })
}

impl<'a> Drive<'a> {
    fn new(orders: &'a Bench, plan: &Plan, machines: &[String]) -> Result<Drive<'a>> {
        let folder = orders.record.clone().or_else(record::default_folder);
        let folder = folder.context("name a folder that all machines share, with --record DIR")?;
        let cannot = || format!("records cannot be kept in {}", folder.display());
        fs::create_dir_all(folder.join("log")).with_context(cannot)?;
        let folder = fs::canonicalize(&folder).with_context(cannot)?;
        let id = plan.id();
        let plan_file = folder.join(format!("{id}.plan.json"));
        if Plan::read(&plan_file).is_err() {
            Out::check(&plan_file)?.write(&plan.text())?;
        }
        let place = fingerprint(folder.as_os_str().as_encoded_bytes());
        let name = format!("carefree-{id}-{}", &place[..8]);
        let parts = parts::all(plan, machines, &folder);
        let (jobs, bar) = (Vec::new(), Bar::new());
        Ok(Drive { orders, name, id, folder, plan_file, parts, jobs, bar })
    }

    /// Hands out all parts, and waits until each is over; lost ones are handed out again.
    fn hand_out_all(&mut self, interrupted: &AtomicBool) -> Result<()> {
        let (done, all) = (self.done(), self.parts.len());
        if done > 0 {
            self.bar.complain(&format!("{done} of {all} tasks were done before"));
        }
        let mut silent: Option<Instant> = None;
        let mut down_since: Option<Instant> = None;
        loop {
            match slurm::jobs(&self.name) {
                Ok(jobs) => {
                    (self.jobs, silent) = (jobs, None);
                }
                // The controller may be restarted meanwhile; jobs go on.
                Err(error) => {
                    let since = *silent.get_or_insert_with(Instant::now);
                    if self.jobs.is_empty() || since.elapsed() > self.patience() {
                        let resume = "the same command goes on from here";
                        return Err(error.context(format!("Slurm does not answer; {resume}")));
                    }
                    thread::sleep(PACE);
                    continue;
                }
            }
            let mut ended = |part: &Part| {
                let of = |job: &&Job| (&job.machine, job.task) == (&part.machine, part.task);
                let array = self.jobs.iter().filter(of).map(|job| job.array).max()?;
                slurm::ended(array, part.task)
            };
            let said =
                parts::look(&mut self.parts, &self.id, &self.jobs, Instant::now(), &mut ended);
            said.iter().for_each(|line| self.bar.complain(line));
            if interrupted.load(Ordering::Relaxed) {
                return self.cancel_all();
            }
            self.submit()?;
            self.show();
            if self.parts.iter().all(Part::is_over) {
                return Ok(());
            }
            self.watch_machines(&mut down_since)?;
            let until = Instant::now() + PACE;
            while Instant::now() < until && !interrupted.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.orders.fleet.node_patience)
    }

    /// Hands out what is to be handed out, an array for each machine.
    fn submit(&mut self) -> Result<()> {
        let mut machines: Vec<String> = Vec::new();
        for part in self.parts.iter().filter(|part| part.state == State::ToSubmit) {
            if !machines.contains(&part.machine) {
                machines.push(part.machine.clone());
            }
        }
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        for machine in machines {
            let mine = |part: &&mut Part| part.machine == machine && part.state == State::ToSubmit;
            let mut parts: Vec<&mut Part> = self.parts.iter_mut().filter(mine).collect();
            let tasks: Vec<u32> = parts.iter().map(|part| part.task).collect();
            let log = self.folder.join("log").join(format!("{}-%a-{machine}.log", self.id));
            let script = format!(
                "#!/bin/sh\nexec {} bench --plan {} --record {} --machine {machine} --task \
                 \"$SLURM_ARRAY_TASK_ID\"\n",
                quoted(&program)?,
                quoted(&self.plan_file)?,
                quoted(&self.folder)?
            );
            match slurm::submit((&self.name, &self.orders.fleet), &machine, &tasks, &log, &script) {
                Ok(_) => parts.iter_mut().for_each(|part| {
                    part.tries += 1;
                    part.state = State::Submitted;
                }),
                // A limit on jobs: when some are over there is room for others.
                Err(error) if self.parts.iter().any(|part| part.state == State::Submitted) => {
                    self.bar.say(format!("Slurm takes no more jobs at present: {error:#}"));
                    return Ok(());
                }
                Err(error) => return Err(error.context("sbatch refuses the tasks")),
            }
        }
        Ok(())
    }

    /// Gives up what waits for machines that are down, once nothing else is left and they have been
    /// down for long.
    fn watch_machines(&mut self, since: &mut Option<Instant>) -> Result<()> {
        let mut waiting: Vec<&str> = Vec::new();
        for part in self.parts.iter().filter(|part| !part.is_over()) {
            if waiting.last() != Some(&&*part.machine) {
                waiting.push(&part.machine);
            }
        }
        let Ok(down) = slurm::down(&waiting) else { return Ok(()) };
        if waiting.iter().any(|machine| !down.iter().any(|name| name == machine)) {
            *since = None;
            return Ok(());
        }
        let begun = *since.get_or_insert_with(|| {
            self.bar.complain(&format!("waiting for machines that are down: {}", down.join(", ")));
            Instant::now()
        });
        if begun.elapsed() < self.patience() {
            return Ok(());
        }
        self.cancel(&|job| down.contains(&job.machine))?;
        for part in self.parts.iter_mut().filter(|part| !part.is_over()) {
            part.state = State::GivenUp(format!("{} is down", part.machine));
        }
        Ok(())
    }

    fn cancel(&self, which: &dyn Fn(&Job) -> bool) -> Result<()> {
        let mut arrays: Vec<u64> = Vec::new();
        for job in self.jobs.iter().filter(|job| !job.is_over() && which(job)) {
            if !arrays.contains(&job.array) {
                arrays.push(job.array);
            }
        }
        if arrays.is_empty() { Ok(()) } else { slurm::cancel(&arrays) }
    }

    /// Cancels all jobs, and waits until they are over.
    fn cancel_all(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.bar.complain("broken off: cancelling this run's jobs");
        self.cancel(&|_| true)?;
        while begun.elapsed() < FAREWELL {
            self.jobs = slurm::jobs(&self.name)?;
            if self.jobs.iter().all(Job::is_over) {
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
        parts::look(&mut self.parts, &self.id, &self.jobs, Instant::now(), &mut |_| None);
        for part in self.parts.iter_mut().filter(|part| !part.is_over()) {
            part.state = State::GivenUp("broken off; the same command goes on from here".into());
        }
        Ok(())
    }

    /// How many parts are done.
    fn done(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part.state, State::Done(_))).count()
    }

    fn show(&mut self) {
        let done = self.done();
        let running: Vec<String> = self
            .parts
            .iter()
            .filter(|part| part.state == State::Submitted)
            .filter(|part| {
                let of = |job: &&Job| (&job.machine, job.task) == (&part.machine, part.task);
                self.jobs.iter().filter(of).any(Job::is_running)
            })
            .map(|part| format!("{} on {}", part.name, part.machine))
            .collect();
        let what = match &running[..] {
            [] => "waiting for Slurm".to_owned(),
            [first] => first.clone(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        };
        self.bar.count(done, self.parts.len(), what);
    }

    /// Says what was not measured, and returns whether everything was.
    fn tell(&self) -> bool {
        let mut complete = true;
        for part in &self.parts {
            let trouble = match &part.state {
                State::Done(receipt) if receipt.complete => continue,
                State::Done(receipt) => receipt.trouble.clone().unwrap_or_default(),
                State::GivenUp(why) => why.clone(),
                State::ToSubmit | State::Submitted => "it is not over".into(),
            };
            complete = false;
            complain(format_args!("{}: {trouble}", part.what()));
        }
        complain(format_args!(
            "{} of {} tasks are done; the records are in {}",
            self.done(),
            self.parts.len(),
            self.folder.display()
        ));
        complete
    }

    /// The records of all parts that are done.
    fn records(&self) -> Vec<Record> {
        let mut found = Vec::new();
        for part in &self.parts {
            if !matches!(&part.state, State::Done(receipt) if receipt.has_record()) {
                continue;
            }
            match salvage::read(&part.place.record()) {
                Ok(read) => found.extend(read.records),
                Err(error) => complain(error),
            }
        }
        found
    }

    /// What parts that are not done have measured so far, with where that is kept.
    fn unfinished(&self) -> Vec<(&Path, Vec<Record>)> {
        let open = self.parts.iter().filter(|part| !matches!(part.state, State::Done(_)));
        let kept = open.filter_map(|part| {
            // A part that was never begun has no such folder.
            let found =
                record::find(part.place.work.to_str()?, None, record::Extent::Whole).ok()?;
            found.damage.iter().for_each(complain);
            Some((&*part.place.work, without_copies(found.records)))
        });
        kept.filter(|(_, records)| !records.is_empty()).collect()
    }

    /// Says that what these have measured is not lost.
    fn tell_unfinished(&self, unfinished: &[(&Path, Vec<Record>)]) {
        let records = unfinished.iter().flat_map(|(_, records)| records);
        let count: usize = records.map(|record| record.samples.len()).sum();
        if count > 0 {
            complain(format_args!(
                "{} of {} that {} not done are kept in {}, and in the report; the same command goes on from there",
                counted(count, "sample"),
                counted(unfinished.len(), "task"),
                if unfinished.len() == 1 { "is" } else { "are" },
                self.folder.join("work").display()
            ));
        }
    }
}

/// Records, oldest first, without those whose samples a later run has all taken over.
fn without_copies(records: Vec<Record>) -> Vec<Record> {
    let taken: Vec<BTreeSet<(String, usize)>> = records
        .iter()
        .map(|record| record.samples.iter().map(|s| (s.run.clone(), s.position)).collect())
        .collect();
    let is_copied = |at: usize| taken[at + 1..].iter().any(|later| taken[at].is_subset(later));
    let own = records.into_iter().enumerate().filter(|(at, _)| !is_copied(*at));
    own.map(|(_, record)| record).collect()
}

/// A path as a word for the shell.
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.to_string_lossy()))?;
    Ok(format!("'{}'", text.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use carefree_lab::record::Reading;

    #[test]
    fn a_run_that_went_on_stands_for_the_one_before() {
        let sample =
            |run: &str, position| Reading { run: run.into(), position, ..Reading::default() };
        let of = |samples: &[(&str, usize)]| Record {
            samples: samples.iter().map(|(run, position)| sample(run, *position)).collect(),
            ..Record::default()
        };
        let first = [("one", 0), ("one", 1)];
        let second = [("one", 0), ("one", 1), ("two", 2)];
        let apart = [("three", 0)];
        let kept = without_copies(vec![of(&first), of(&second), of(&apart)]);
        let counts: Vec<usize> = kept.iter().map(|record| record.samples.len()).collect();
        assert_eq!(counts, [3, 1]);
    }
}
