//! One sample: the process that takes it, and the line it prints.
//!
//! A sample has a process of its own, so that none starts on the warm stacks, the grown heap or
//! the high-water mark of another. The lab starts it with its orders, a [`Trial`]; it prints one
//! line of JSON, an [`Answer`], and ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::memory::{Memory, Meter};
use crate::sys::{self, Who};
use crate::unit::Unit;
use crate::workload::{Parameters, Workload};

/// A sample's orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// What runs.
    pub unit: Unit,
    /// What is measured.
    pub workload: Workload,
    /// How large it is.
    pub parameters: Parameters,
    /// The core to stay on, if the sample is pinned.
    pub pin: Option<usize>,
    /// The control group to move into, if one was made for this sample.
    pub cgroup: Option<PathBuf>,
}

/// What a sample's process prints: its figures, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The work was done.
    Sample(Sample),
    /// It could not be done.
    Failure(Failure),
}

/// What one process did, and what it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The process it ran in, which ran nothing else.
    pub process: u32,
    /// The sizes it ran at.
    pub parameters: Parameters,
    /// Switches the units were asked to make, over all rounds.
    pub switches_asked: u64,
    /// Switches they made, as counted (see [`crate::unit`] for how).
    pub switches_made: u64,
    /// Times the kernel took a thread of this process off its core because it waited.
    pub voluntary: u64,
    /// Times it did so although the thread could have gone on. A thread that yields to another is
    /// counted here, and so is one whose time was up.
    pub involuntary: u64,
    /// Processor time in the program, nanoseconds.
    pub user_ns: u64,
    /// Processor time in the kernel, nanoseconds.
    pub system_ns: u64,
    /// How long each round took.
    pub rounds: Vec<Round>,
    /// What the first round took of memory.
    pub memory: Memory,
}

impl Sample {
    /// The switches a rate may be quoted on: no more than were asked for, none that was not made.
    pub fn switches_counted(&self) -> u64 {
        self.switches_made.min(self.switches_asked).max(1)
    }
}

/// How long one round took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// From the first unit's creation until all were alive and waiting, nanoseconds.
    pub create_ns: u64,
    /// From their release until the last was joined, nanoseconds.
    pub run_ns: u64,
}

impl Round {
    /// Both parts, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.create_ns + self.run_ns
    }
}

/// Why a sample has no figures.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong.
    pub message: String,
    /// What would help, where that is known.
    pub advice: Option<String>,
}

/// Takes a sample in this process, which is thereby used up: its memory is not fresh any more.
pub fn take(trial: &Trial) -> Answer {
    sys::end_with_parent();
    match attempt(trial) {
        Ok(sample) => Answer::Sample(sample),
        Err(failure) => Answer::Failure(failure),
    }
}

fn attempt(trial: &Trial) -> Result<Sample, Failure> {
    if let Some(core) = trial.pin {
        sys::pin_to(core).map_err(|error| Failure {
            message: format!("could not stay on core {core}: {error}"),
            advice: Some("run without --pin, or allow the core with taskset".into()),
        })?;
    }
    let Parameters { units, switches, rounds, .. } = trial.parameters;
    let mut meter = Meter::start(trial.cgroup.as_deref());
    let mut times = Vec::with_capacity(usize::try_from(rounds).unwrap_or(0));
    let mut made = 0;
    let before = sys::usage(Who::Process);
    for round in 0..rounds {
        let mut all_alive = || {
            if round == 0 {
                meter.all_alive();
            }
        };
        let run = trial.unit.run(units, switches, &mut all_alive)?;
        times.push(run.times);
        made += run.switches_made;
        if round == 0 {
            meter.finish();
        }
    }
    let after = sys::usage(Who::Process);
    Ok(Sample {
        process: std::process::id(),
        parameters: trial.parameters,
        switches_asked: trial.parameters.switches_asked(),
        switches_made: made,
        voluntary: after.switches.voluntary - before.switches.voluntary,
        involuntary: after.switches.involuntary - before.switches.involuntary,
        user_ns: after.user_ns - before.user_ns,
        system_ns: after.system_ns - before.system_ns,
        rounds: times,
        memory: meter.reading(),
    })
}
