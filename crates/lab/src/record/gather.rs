//! From what a runner brings home to what a record keeps.

use std::collections::BTreeMap;

use super::{Failed, Reading, Record, RunFacts, Subject};
use crate::env::Environment;
use crate::feed::sweep;
use crate::fetch::course;
use crate::metric;
use crate::run::{self, Outcome, Taken};
use crate::sample::Trial;
use crate::workload::Workload;

impl Record {
    /// Makes the record of a run that began as `begun` says: `readings` are its samples, those of earlier runs that it has
    /// used again included.
    pub fn of_run(
        environment: Environment,
        begun: RunFacts,
        readings: Vec<Reading>,
        outcome: Outcome,
    ) -> Record {
        let run = RunFacts { interrupted: outcome.interrupted, load: outcome.load, ..begun };
        let failures = outcome.failed.into_iter().map(Failed::from).collect();
        Record::new(environment, run, readings, failures)
    }
}

impl From<&Trial> for Subject {
    /// What a sample with these orders is about.
    fn from(trial: &Trial) -> Subject {
        Subject {
            runtime: trial.runtime.clone(),
            version: trial.version.clone(),
            unit: trial.unit.clone(),
            workload: trial.workload.name().to_owned(),
            parameters: match trial.workload {
                Workload::Feed => sweep::parameters(trial),
                Workload::Fetch => course::parameters(trial),
                _ => trial.parameters.clone(),
            },
        }
    }
}

impl From<run::Failed> for Failed {
    fn from(failed: run::Failed) -> Failed {
        Failed {
            subject: Subject::from(&failed.trial),
            times: failed.times,
            message: failed.failure.message,
            advice: failed.failure.advice,
            stderr: Some(failed.stderr).filter(|text| !text.is_empty()),
        }
    }
}

impl Reading {
    /// A sample that the run which began at `run` took.
    pub fn of_sample(run: &str, taken: &Taken) -> Reading {
        let Taken { trial, position, sample } = taken;
        let of_workload = metric::of(trial.workload)
            .filter_map(|figure| Some((figure.metric.name.to_owned(), (figure.value?)(sample)?)));
        let mut figures: BTreeMap<String, f64> = of_workload.collect();
        figures.extend(sample.figures.iter().map(|(name, &value)| (name.clone(), value)));
        let mut proof = match serde_json::to_value(sample) {
            Ok(serde_json::Value::Object(proof)) => proof,
            // A struct is an object.
            _ => serde_json::Map::new(),
        };
        // They stand among the figures.
        proof.remove("figures");
        Reading {
            subject: Subject::from(trial),
            role: Some(trial.role.name().to_owned()),
            run: run.to_owned(),
            position: *position,
            pin: trial.pin,
            program: trial.program.clone(),
            figures,
            proof,
        }
    }
}
