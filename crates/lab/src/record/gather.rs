//! From what a runner brings home to what a record keeps.

use std::collections::BTreeMap;

use super::{Failed, Parameters, Reading, Record, RunFacts, Subject};
use crate::env::Environment;
use crate::plan::Plan;
use crate::run::{self, Outcome, Taken};
use crate::unit::Unit;
use crate::workload::{self, Size, Workload};

impl Record {
    /// Makes the record of what came of a plan.
    pub fn of_plan(environment: Environment, plan: &Plan, outcome: Outcome) -> Record {
        let run = RunFacts {
            seed: plan.seed,
            samples: plan.samples,
            quick: plan.size == Size::Quick,
            pinned: plan.pin,
            interrupted: outcome.interrupted,
            load: outcome.load,
            command: String::new(),
        };
        let samples =
            outcome.taken.iter().map(|taken| reading(&environment.started, taken)).collect();
        let place = |failed: &run::Failed| {
            let trials = plan.trials();
            let kind =
                |t: &&crate::sample::Trial| (t.unit, t.workload) == (failed.unit, failed.workload);
            trials.iter().find(kind).map(|trial| trial.parameters)
        };
        let failures = outcome
            .failed
            .iter()
            .map(|failed| Failed {
                subject: subject(failed.unit, failed.workload, place(failed).as_ref()),
                times: failed.times,
                message: failed.failure.message.clone(),
                advice: failed.failure.advice.clone(),
                stderr: None,
            })
            .collect();
        Record::new(environment, run, samples, failures)
    }
}

impl From<&workload::Parameters> for Parameters {
    /// Rounds are left out where there is but one.
    fn from(sizes: &workload::Parameters) -> Parameters {
        let parameters = Parameters::default()
            .with("units", sizes.units)
            .with("switches", sizes.switches)
            .with("cores", sizes.cores);
        if sizes.rounds == 1 { parameters } else { parameters.with("rounds", sizes.rounds) }
    }
}

fn subject(unit: Unit, workload: Workload, sizes: Option<&workload::Parameters>) -> Subject {
    Subject {
        runtime: unit.runtime().to_owned(),
        version: unit.version().to_owned(),
        unit: unit.name().to_owned(),
        workload: workload.name().to_owned(),
        parameters: sizes.map(Parameters::from).unwrap_or_default(),
    }
}

fn reading(run: &str, taken: &Taken) -> Reading {
    let sample = &taken.sample;
    let figures = taken.workload.metrics().iter().filter_map(|metric| {
        Some((metric.name().to_owned(), metric.value(taken.workload, sample)?))
    });
    let mut proof = match serde_json::to_value(sample) {
        Ok(serde_json::Value::Object(proof)) => proof,
        // A struct is an object.
        _ => serde_json::Map::new(),
    };
    // They stand in the subject.
    proof.remove("parameters");
    Reading {
        subject: subject(taken.unit, taken.workload, Some(&sample.parameters)),
        role: None,
        run: run.to_owned(),
        position: taken.position,
        pin: taken.pin,
        program: String::new(),
        figures: figures.collect::<BTreeMap<_, _>>(),
        proof,
    }
}
