//! Takes the samples of a plan, each in a process of its own.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::memory::Group;
use crate::noise::{Load, LoadMeter};
use crate::sample::{Answer, Failure, Sample, Trial};
use crate::unit::Unit;
use crate::workload::{Metric, Workload};

/// A sample that was taken, with its place in the order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// What ran.
    pub unit: Unit,
    /// What was measured.
    pub workload: Workload,
    /// Its place in the order of all samples, from 0.
    pub position: usize,
    /// The core it was pinned to, if it was.
    pub pin: Option<usize>,
    /// Its figures.
    pub sample: Sample,
}

/// Samples that could not be taken, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What ran.
    pub unit: Unit,
    /// What was to be measured.
    pub workload: Workload,
    /// How many samples failed in this way.
    pub times: u32,
    /// What went wrong, and what would help.
    #[serde(flatten)]
    pub failure: Failure,
}

/// What came of a plan.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The samples, in the order in which they were taken.
    pub taken: Vec<Taken>,
    /// What failed; a failure never stops the rest.
    pub failed: Vec<Failed>,
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
    /// Samples in all.
    pub total: usize,
    /// The one about to be taken, `None` at the end.
    pub next: Option<&'a Trial>,
}

/// Takes samples.
pub struct Runner<'a> {
    /// Makes the command that takes a sample and prints an [`Answer`].
    pub command: &'a dyn Fn(&Trial) -> Command,
    /// Set from outside to break the run off.
    pub interrupted: &'a AtomicBool,
    /// How long one sample may take before it is given up.
    pub patience: Duration,
    /// Told before each sample and at the end.
    pub progress: &'a mut dyn FnMut(Progress<'_>),
}

impl std::fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// Why a sample has no answer.
enum Gone {
    Interrupted,
    Failed(Failure),
    OutOfTime(Failure),
}

impl Runner<'_> {
    /// Takes all samples, or those that come before an interruption.
    pub fn run(&mut self, trials: &[Trial]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut slow = Vec::new();
        let load = LoadMeter::start();
        for (position, trial) in trials.iter().enumerate() {
            let kind = (trial.unit, trial.workload);
            if slow.contains(&kind) {
                continue;
            }
            (self.progress)(Progress { done: position, total: trials.len(), next: Some(trial) });
            match self.take(trial, position) {
                Ok(sample) => outcome.taken.push(Taken {
                    unit: trial.unit,
                    workload: trial.workload,
                    position,
                    pin: trial.pin,
                    sample,
                }),
                Err(Gone::Interrupted) => {
                    outcome.interrupted = true;
                    break;
                }
                Err(Gone::Failed(failure)) => outcome.note(kind, failure),
                Err(Gone::OutOfTime(failure)) => {
                    outcome.note(kind, failure);
                    // It would be as slow the next time, and the others are waiting.
                    slow.push(kind);
                }
            }
        }
        outcome.load = load.finish();
        (self.progress)(Progress { done: trials.len(), total: trials.len(), next: None });
        outcome
    }

    fn take(&self, trial: &Trial, position: usize) -> Result<Sample, Gone> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Gone::Interrupted);
        }
        let failed = |what: &str, error: &io::Error| {
            Gone::Failed(Failure { message: format!("{what}: {error}"), advice: None })
        };
        let weighs = trial.workload.metrics().contains(&Metric::WholeMemoryPerUnit);
        let group = if weighs { Group::make(position) } else { None };
        let trial =
            Trial { cgroup: group.as_ref().map(|group| group.path().to_owned()), ..trial.clone() };
        let mut child = (self.command)(&trial)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at the terminal is for the lab, which decides what becomes of the sample.
            .process_group(0)
            .spawn()
            .map_err(|error| failed("the sample's process could not be started", &error))?;
        let waited = self.wait(&mut child);
        if waited.is_err() {
            // The child may have ended meanwhile; then there is nothing to kill.
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| failed("the sample was lost", &error))?;
        let (printed, complaint) = waited?;
        answer(&trial, status, &printed, &complaint).map_err(Gone::Failed)
    }

    /// Waits for the child to close its output, and returns what it printed.
    fn wait(&self, child: &mut Child) -> Result<(String, String), Gone> {
        let printed = collect(child.stdout.take());
        let complaint = collect(child.stderr.take());
        let started = Instant::now();
        loop {
            // Seldom enough not to disturb what is measured, often enough for a person at Ctrl-C.
            match printed.recv_timeout(Duration::from_millis(100)) {
                Ok(text) => {
                    return Ok((text, complaint.recv().unwrap_or_default()));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(Default::default()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Gone::Interrupted);
            }
            if started.elapsed() > self.patience {
                return Err(Gone::OutOfTime(Failure {
                    message: format!("took more than {} s and was ended", self.patience.as_secs()),
                    advice: Some("run fewer units with --units, or use --quick".into()),
                }));
            }
        }
    }
}

impl Outcome {
    fn note(&mut self, (unit, workload): (Unit, Workload), failure: Failure) {
        let same = |known: &&mut Failed| {
            (known.unit, known.workload) == (unit, workload) && known.failure == failure
        };
        match self.failed.iter_mut().find(same) {
            Some(known) => known.times += 1,
            None => self.failed.push(Failed { unit, workload, times: 1, failure }),
        }
    }
}

/// Reads a pipe to its end on a thread of its own.
fn collect(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is all there is to tell.
            let _ = pipe.read_to_end(&mut bytes);
        }
        // The receiver is gone if the sample was given up.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Makes sense of what a sample's process left behind.
fn answer(
    trial: &Trial,
    status: ExitStatus,
    printed: &str,
    complaint: &str,
) -> Result<Sample, Failure> {
    let line = printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    match serde_json::from_str(line) {
        Ok(Answer::Sample(sample)) if status.success() => Ok(sample),
        Ok(Answer::Failure(failure)) => Err(failure),
        _ => Err(Failure {
            message: ended(status, complaint),
            advice: match status.signal() {
                Some(libc::SIGKILL) => Some(
                    "if nobody killed it, the kernel did for want of memory (see dmesg): run \
                     fewer units with --units"
                        .into(),
                ),
                // A thread that cannot have its signal stack aborts the process.
                Some(libc::SIGABRT) if trial.unit == Unit::Thread => {
                    limits::advice_for(trial.parameters.units)
                }
                _ => None,
            },
        }),
    }
}

fn ended(status: ExitStatus, complaint: &str) -> String {
    let how = match (status.signal(), status.code()) {
        (Some(signal), _) => format!("the sample's process was ended by {}", signal_name(signal)),
        (None, Some(0)) => "the sample's process ended without an answer".to_owned(),
        (None, code) => {
            format!("the sample's process ended with exit code {}", code.unwrap_or_default())
        }
    };
    // Of a panic, the second line says why; the first has a thread's number, and would make each
    // failure look like one of its own.
    let heading = |line: &&str| line.starts_with("thread '") && line.contains("panicked at");
    let mut lines = complaint.lines().map(str::trim);
    let said = lines.find(|line| !line.is_empty() && !heading(line));
    match said {
        Some(line) => format!("{how}; it said: {line}"),
        None => how,
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::workload::Size;

    fn trials(samples: u32) -> Vec<Trial> {
        let plan = Plan {
            workloads: vec![Workload::Switch, Workload::Throughput],
            units: vec![Unit::Thread],
            samples,
            size: Size::Quick,
            crowd: None,
            pin: false,
            seed: 9,
        };
        plan.trials()
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    /// Runs with a command of the test's making, and a line a real sample could have printed.
    fn run(
        patience: Duration,
        trials: &[Trial],
        script: &dyn Fn(&Trial, &str) -> String,
    ) -> Outcome {
        let interrupted = AtomicBool::new(false);
        let command = |trial: &Trial| shell(&script(trial, &line(trial)));
        let mut runner = Runner {
            command: &command,
            interrupted: &interrupted,
            patience,
            progress: &mut |_| {},
        };
        runner.run(trials)
    }

    fn line(trial: &Trial) -> String {
        let memory = crate::memory::Memory {
            own: crate::memory::Footprint::default(),
            whole: None,
            whole_method: None,
        };
        let sample = Sample {
            process: 7,
            parameters: trial.parameters,
            switches_asked: 4,
            switches_made: 4,
            voluntary: 0,
            involuntary: 0,
            user_ns: 0,
            system_ns: 0,
            rounds: vec![crate::sample::Round { create_ns: 1, run_ns: 2 }],
            memory,
        };
        serde_json::to_string(&Answer::Sample(sample)).expect("plain data")
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn samples_keep_their_order_and_the_processes_are_their_own() {
        let trials = trials(3);
        let outcome = run(LONG, &trials, &|_, line| format!("echo chatter; echo '{line}'"));
        assert_eq!(outcome.taken.len(), 6);
        assert!(outcome.failed.is_empty() && !outcome.interrupted, "{outcome:?}");
        for (position, taken) in outcome.taken.iter().enumerate() {
            assert_eq!(taken.position, position);
            assert_eq!(taken.workload, trials[position].workload);
        }
    }

    #[test]
    fn a_failing_sample_is_named_and_the_rest_goes_on() {
        let outcome = run(LONG, &trials(2), &|trial, line| match trial.workload {
            Workload::Switch => {
                "printf \"\\nthread 't' ($$) panicked at x.rs:1:\\nboom\\n\" >&2; kill -SEGV $$"
                    .into()
            }
            _ => format!("echo '{line}'"),
        });
        assert_eq!(outcome.taken.len(), 2);
        assert_eq!(outcome.failed.len(), 1);
        assert_eq!(outcome.failed[0].times, 2);
        assert_eq!(
            outcome.failed[0].failure.message,
            "the sample's process was ended by SIGSEGV; it said: boom"
        );
    }

    #[test]
    fn a_sample_that_says_why_it_failed_is_believed_whatever_its_exit_code() {
        let failure = Failure { message: "no more".into(), advice: Some("raise it".into()) };
        let said = serde_json::to_string(&Answer::Failure(failure.clone())).expect("plain data");
        let outcome = run(LONG, &trials(1), &|_, _| format!("echo '{said}'; exit 1"));
        assert!(outcome.taken.is_empty());
        assert!(outcome.failed.iter().all(|failed| failed.failure == failure), "{outcome:?}");
    }

    #[test]
    fn a_sample_out_of_time_is_ended_and_not_tried_again() {
        let patience = Duration::from_millis(200);
        let started = Instant::now();
        let outcome = run(patience, &trials(20), &|trial, line| match trial.workload {
            Workload::Switch => "exec sleep 600".into(),
            _ => format!("echo '{line}'"),
        });
        assert_eq!(outcome.taken.len(), 20);
        assert_eq!(outcome.failed.len(), 1);
        assert_eq!(outcome.failed[0].times, 1);
        assert!(started.elapsed() < LONG);
    }

    #[test]
    fn an_interruption_ends_the_sample_at_hand_and_keeps_what_was_taken() {
        let interrupted = AtomicBool::new(false);
        let trials = trials(2);
        let command = |trial: &Trial| shell(&format!("echo '{}'", line(trial)));
        let sleep = |_: &Trial| shell("exec sleep 600");
        let count = std::cell::Cell::new(0);
        let started = Instant::now();
        let mut runner = Runner {
            command: &|trial| {
                count.set(count.get() + 1);
                if count.get() <= 2 {
                    return command(trial);
                }
                // As if the signal came in the middle of the third sample.
                interrupted.store(true, Ordering::Relaxed);
                sleep(trial)
            },
            interrupted: &interrupted,
            patience: LONG,
            progress: &mut |_| {},
        };
        let outcome = runner.run(&trials);
        assert!(outcome.interrupted);
        assert_eq!(outcome.taken.len(), 2);
        assert!(outcome.failed.is_empty());
        assert!(started.elapsed() < LONG);
    }

    #[test]
    fn an_empty_answer_and_a_missing_program_are_failures_too() {
        let silent = run(LONG, &trials(1), &|_, _| "true".into());
        assert_eq!(
            silent.failed[0].failure.message,
            "the sample's process ended without an answer"
        );
        let interrupted = AtomicBool::new(false);
        let mut runner = Runner {
            command: &|_| Command::new("/nowhere/carefree"),
            interrupted: &interrupted,
            patience: LONG,
            progress: &mut |_| {},
        };
        let outcome = runner.run(&trials(1));
        assert!(outcome.failed[0].failure.message.contains("could not be started"));
    }
}
