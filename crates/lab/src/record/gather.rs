//! The readings of what a runner takes.

use std::collections::BTreeMap;

use super::{Reading, Subject};
use crate::metric;
use crate::run::Taken;

impl Reading {
    /// A sample that the run which began at `run` took.
    pub fn of_sample(run: &str, taken: &Taken) -> Reading {
        let Taken { trial, position, sample } = taken;
        let of_workload = metric::of(trial.workload)
            .filter_map(|figure| Some((figure.metric.name.to_owned(), (figure.value?)(sample)?)));
        let mut figures: BTreeMap<String, f64> = of_workload.collect();
        figures.extend(sample.account.figures.iter().map(|(name, &value)| (name.clone(), value)));
        let mut proof = match serde_json::to_value(sample) {
            Ok(serde_json::Value::Object(proof)) => proof,
            // A struct is an object.
            _ => serde_json::Map::new(),
        };
        // They stand among the figures, and in the subject.
        proof.remove("figures");
        proof.remove("units");
        Reading {
            subject: Subject::from(trial),
            role: Some(trial.role.name().to_owned()),
            run: run.to_owned(),
            position: *position,
            pin: trial.pin,
            program: trial.program.clone(),
            source: trial.source.clone(),
            figures,
            proof,
        }
    }
}
