//! From what a runner brings home to what a record keeps.

use std::collections::BTreeMap;

use super::{Failed, Parameters, Reading, Record, RunFacts, Subject};
use crate::env::Environment;
use crate::feed::sweep;
use crate::fetch::course;
use crate::run::{self, Outcome, Taken};
use crate::sample::Trial;
use crate::workload::{self, Workload};

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

impl From<&workload::Parameters> for Parameters {
    /// Rounds are left out where there is but one.
    fn from(sizes: &workload::Parameters) -> Parameters {
        let parameters = Parameters::default()
            .with("units", sizes.units)
            .with("switches", sizes.switches)
            .with("cores", sizes.cores);
        let parameters =
            if sizes.rounds == 1 { parameters } else { parameters.with("rounds", sizes.rounds) };
        sizes.orders.iter().fold(parameters, |parameters, (name, value)| {
            match value.parse::<u64>() {
                Ok(number) => parameters.with(name, number),
                Err(_) => parameters.with(name, value.as_str()),
            }
        })
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
                _ => Parameters::from(&trial.parameters),
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
        let of_workload = trial.workload.metrics().iter().filter_map(|metric| {
            Some((metric.name().to_owned(), metric.value(trial.workload, sample)?))
        });
        let mut figures: BTreeMap<String, f64> = of_workload.collect();
        figures.extend(sample.figures.iter().map(|(name, &value)| (name.clone(), value)));
        let mut proof = match serde_json::to_value(sample) {
            Ok(serde_json::Value::Object(proof)) => proof,
            // A struct is an object.
            _ => serde_json::Map::new(),
        };
        // They stand in the subject, and among the figures.
        proof.remove("parameters");
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
