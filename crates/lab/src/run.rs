//! Takes the samples of a plan, each in a process of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carefree_workloads::answer::{Account, Answer, Failure, Round};
use carefree_workloads::fetch::{Server, Tally};
use carefree_workloads::limits;
use carefree_workloads::role::Role;
use carefree_workloads::workload::Workload;
use nix::sys::signal::Signal;

use crate::answer;
use crate::course;
use crate::memory::Group;
use crate::noise::{Load, LoadMeter};
use crate::plan::Plan;
use crate::process::{self, Launch, Missed, Remains, last_lines};
use crate::proof;
use crate::record::Failed;
use crate::sample::{Sample, astray};
use crate::serving;
use crate::stats::FEWEST;
use crate::sweep;
use crate::trial::Trial;

/// A sample that was taken, with its place in the order.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Its orders.
    pub trial: Trial,
    /// Its place in the order of all samples, from 0.
    pub position: usize,
    /// Its figures.
    pub sample: Sample,
}

/// The outcome of a plan.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The samples, in the order in which they were taken.
    pub taken: Vec<Taken>,
    /// What failed; a failure never stops the rest.
    pub failed: Vec<Failed>,
    /// What would have taken longer than the plan allows, with how long it would have.
    pub left_out: Vec<(Trial, Duration)>,
    /// What has fewer samples than [`FEWEST`] for want of time: how many, and how long one takes.
    pub cut: Vec<(Trial, u32, Duration)>,
    /// Whether the run was broken off.
    pub interrupted: bool,
    /// What else the machine was doing.
    pub load: Load,
}

/// Where a run stands, for a progress bar.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Samples done, failed ones included.
    pub done: usize,
    /// Samples in all, as far as can be told yet.
    pub total: usize,
    /// The one about to be taken, `None` at the end.
    pub next: Option<&'a Trial>,
}

/// Takes samples.
pub struct Runner<'a> {
    /// Makes the process that takes a sample and prints an [`Answer`].
    pub launch: &'a dyn Fn(&Trial) -> Launch,
    /// Set from outside to break the run off.
    pub interrupted: &'a AtomicBool,
    /// How long one sample may take before it is given up.
    pub patience: Duration,
    /// Told before each sample and at the end.
    pub progress: &'a mut dyn FnMut(Progress<'_>),
    /// Told of each sample as soon as it is taken, so that a run that is broken off loses nothing.
    pub keep: &'a mut dyn FnMut(&Taken),
    /// Whether the samples of a kind are enough, asked with each that is taken: then it gets no more.
    pub enough: &'a dyn Fn(&Taken) -> bool,
}

impl std::fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// The state of one kind of sample.
#[derive(Clone, Copy, Debug, Default)]
struct Course {
    /// Samples there were before.
    had: u32,
    /// Samples tried, failed ones included.
    tried: u32,
    /// Those of them that were taken.
    taken: u32,
    /// How long they took together.
    spent: Duration,
    /// Whether it gets no more.
    over: bool,
}

impl Course {
    /// What one sample takes; nothing is known before the first.
    fn cost(&self) -> Duration {
        self.spent.checked_div(self.tried).unwrap_or_default()
    }
}

/// A kind that has failed this often and never succeeded is not tried again.
const TRIES: u32 = 3;

impl Runner<'_> {
    /// Takes all samples, or those that come before an interruption.
    pub fn run(&mut self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        let had = |kind| plan.had.get(kind).copied().unwrap_or(0);
        let mut courses: Vec<Course> = (0..plan.kinds.len())
            .map(|kind| Course { had: had(kind), ..Course::default() })
            .collect();
        let mut shares = vec![plan.samples; plan.kinds.len()];
        let mut done = 0;
        let load = LoadMeter::start();
        'all: for round in 0..plan.samples {
            for kind in plan.order(round) {
                let course = courses[kind];
                if course.over || course.had + course.tried >= shares[kind] {
                    continue;
                }
                let trial = &plan.kinds[kind];
                if let Some(forecast) = too_long(plan, trial, &outcome.taken) {
                    outcome.left_out.push((trial.clone(), forecast));
                    courses[kind].over = true;
                    continue;
                }
                let total = total(&courses, &shares);
                (self.progress)(Progress { done, total, next: Some(trial) });
                let started = Instant::now();
                let taken = self.take(trial, done, &load);
                let course = &mut courses[kind];
                course.tried += 1;
                course.spent += started.elapsed();
                match taken {
                    Ok(sample) => {
                        let taken = Taken { trial: trial.clone(), position: done, sample };
                        (self.keep)(&taken);
                        course.taken += 1;
                        course.over = (self.enough)(&taken);
                        outcome.taken.push(taken);
                    }
                    Err(Missed::Interrupted) => {
                        outcome.interrupted = true;
                        break 'all;
                    }
                    Err(Missed::Failed { failure, stderr, hopeless }) => {
                        outcome.note(Failed::new(trial, failure, stderr));
                        course.over = hopeless || course.taken == 0 && course.tried >= TRIES;
                    }
                }
                done += 1;
            }
            let costs: Vec<Duration> = courses.iter().map(Course::cost).collect();
            shares = plan.shares(&costs);
        }
        if !outcome.interrupted {
            outcome.cut = cut(plan, &courses);
        }
        outcome.load = load.finish();
        (self.progress)(Progress { done, total: done, next: None });
        outcome
    }
}

/// How long a sample would take, if that is longer than the plan allows.
fn too_long(plan: &Plan, trial: &Trial, taken: &[Taken]) -> Option<Duration> {
    let most = plan.most.filter(|_| trial.workload == Workload::Feed)?;
    let round = |taken: &Taken| taken.sample.account.rounds.last().map_or(0, Round::total_ns);
    let earlier = plan.known.iter().map(|(trial, time)| (trial, *time));
    let now = taken.iter().map(|t| (&t.trial, Duration::from_nanos(round(t))));
    sweep::forecast(trial, earlier.chain(now)).filter(|forecast| *forecast > most)
}

/// The kinds that could not have as many samples as say something.
fn cut(plan: &Plan, courses: &[Course]) -> Vec<(Trial, u32, Duration)> {
    let asked = plan.samples.min(FEWEST);
    let kinds = plan.kinds.iter().zip(courses);
    let short = kinds.filter(|(_, course)| !course.over && course.had + course.tried < asked);
    short.map(|(trial, course)| (trial.clone(), course.had + course.tried, course.cost())).collect()
}

/// Samples in all, if each kind gets its share.
fn total(courses: &[Course], shares: &[u32]) -> usize {
    let count = |(course, &share): (&Course, &u32)| {
        // A share may have shrunk below what was taken by then.
        let left = share.saturating_sub(course.had);
        (if course.over { course.tried } else { left.max(course.tried) }) as usize
    };
    courses.iter().zip(shares).map(count).sum()
}

impl Runner<'_> {
    fn take(&self, trial: &Trial, position: usize, load: &LoadMeter) -> Result<Sample, Missed> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Missed::Interrupted);
        }
        let asked = match trial.workload {
            Workload::Serve => {
                // It would be the same the next time.
                serving::allow_files(trial).map_err(Missed::hopeless)?;
                Some(serving::Load::new(trial)?)
            }
            _ => None,
        };
        // A server for this sample alone, so that what it counts is this sample's.
        let served = (trial.workload == Workload::Fetch).then(|| course::serve(trial)).transpose();
        let served =
            served.map_err(|e| Failure::new(format!("the server could not be started: {e}")))?;
        let (server, launch) = match served {
            None => (None, (self.launch)(asked.as_ref().map_or(trial, |asked| &asked.trial))),
            Some((server, with_url)) => (Some(server), (self.launch)(&with_url)),
        };
        // A container has a group of its own, which its engine makes.
        let inside = launch.container.is_some();
        let group = if trial.weighs() && !inside { Group::make(position) } else { None };
        let orders = (trial.pin, asked.as_ref());
        let remains =
            process::run(launch, orders, group.as_ref(), self.interrupted, self.patience)?;
        let stderr = last_lines(&remains.complaint);
        let tally = server.map(Server::stop);
        let taken = conclude(trial, remains, inside, tally);
        if let Some(sample) = taken.as_ref().ok().filter(|_| inside) {
            let Account { user_ns, system_ns, .. } = sample.account;
            load.add(user_ns.unwrap_or(0) + system_ns.unwrap_or(0));
        }
        taken.map_err(|failure| Missed::Failed { failure, stderr, hopeless: false })
    }
}

impl Outcome {
    fn note(&mut self, failed: Failed) {
        let same = |known: &&mut Failed| {
            (&known.subject, &known.message, &known.advice)
                == (&failed.subject, &failed.message, &failed.advice)
        };
        match self.failed.iter_mut().find(same) {
            Some(known) => known.times += 1,
            None => self.failed.push(failed),
        }
    }
}

/// The sample that a process has taken, checked.
fn conclude(
    trial: &Trial,
    remains: Remains,
    inside: bool,
    tally: Option<Tally>,
) -> Result<Sample, Failure> {
    let mut account = match answer::read(&remains.last) {
        Some(Answer::Failure(failure)) => return Err(failure),
        Some(Answer::Sample(account)) if remains.status.success() => *account,
        _ => return Err(broken(trial, &remains)),
    };
    proof::check(trial, &account, &remains.seen)?;
    if let Some(wrong) = answer::impossible(&account) {
        return Err(astray(format!("the program's answer cannot be: {wrong}")));
    }
    match (trial.workload, &tally) {
        (Workload::Feed, _) => sweep::check(trial, &account)?,
        (Workload::Fetch, Some(tally)) => course::check(trial, &account, tally)?,
        _ => {}
    }
    if let Some(tally) = tally {
        account.notes.extend(course::remark(trial, &tally));
        // Plain numbers have a JSON form.
        account.more.insert("server".into(), serde_json::to_value(tally).unwrap_or_default());
    }
    if let Some(served) = remains.seen.served {
        account.notes.extend(serving::remarks(trial, &served));
        served.tell(&mut account.more);
    }
    let Remains { process, usage, seen, .. } = remains;
    // Of a container the lab has waited for the engine's process, which tells nothing.
    let of_process = |count: u64| if inside { 0 } else { count };
    let known = !inside || account.voluntary.is_some();
    let voluntary = *account.voluntary.get_or_insert(of_process(usage.voluntary));
    let involuntary = *account.involuntary.get_or_insert(of_process(usage.involuntary));
    account.user_ns.get_or_insert(of_process(usage.user_ns));
    account.system_ns.get_or_insert(of_process(usage.system_ns));
    if trial.kernel && known {
        // Threads on several cores see each other's turns without having switched.
        account.switches_made = account.switches_made.min(voluntary + involuntary);
    }
    proof::switches(trial, &account)?;
    Ok(Sample { process, memory: seen.memory, account })
}

/// A process that left no answer, in words.
fn broken(trial: &Trial, remains: &Remains) -> Failure {
    let mistake = answer::mistake(&remains.last);
    if let Some(mistake) = mistake.filter(|_| process::signal(remains.status).is_none()) {
        return astray(format!("the program's answer has a mistake: {mistake}"));
    }
    let mut message = process::ending(remains.status);
    // Of a panic, the second line says why; the first has a thread's number, and would make each
    // failure look like one of its own.
    let heading = |line: &&str| line.starts_with("thread '") && line.contains("panicked at");
    let mut lines = remains.complaint.lines().map(str::trim);
    if let Some(line) = lines.find(|line| !line.is_empty() && !heading(line)) {
        message += &format!("; it said: {line}");
    } else if !remains.last.is_empty() {
        let start: String = remains.last.chars().take(60).collect();
        message += &format!("; its last line was: {start}");
    }
    let advice = match process::signal(remains.status) {
        Some(Signal::SIGKILL) => Some(
            "if no user killed it, the kernel did for want of memory (see dmesg): run fewer units \
             with --units"
                .into(),
        ),
        // A thread that cannot have its signal stack aborts the process.
        Some(Signal::SIGABRT) if trial.role == Role::Thread => {
            limits::advice_for(trial.parameters.units())
        }
        _ => None,
    };
    Failure { message, advice }
}
