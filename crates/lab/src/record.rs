//! A record: everything one run found, and what is needed to judge it. `docs/record-format.md`
//! describes it as JSON.

use serde::{Deserialize, Serialize};

use crate::env::Environment;
use crate::noise::{self, Load, Warning};
use crate::plan::Plan;
use crate::run::{Failed, Outcome, Taken};
use crate::stats::{self, Random};
use crate::unit::Unit;
use crate::workload::{Metric, Parameters, Size, Workload};

/// The version of the format. It changes when a reader of the old one would misread the new one;
/// new keys alone do not change it.
pub const SCHEMA: u32 = 1;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of the format, [`SCHEMA`].
    pub schema: u32,
    /// Where it ran.
    pub environment: Environment,
    /// How it ran.
    pub run: RunFacts,
    /// Reasons to doubt the figures.
    pub warnings: Vec<Warning>,
    /// Samples that could not be taken.
    pub failures: Vec<Failed>,
    /// The figures.
    pub results: Vec<Measurement>,
    /// The samples the figures were made from, in the order in which they were taken.
    pub trials: Vec<Taken>,
}

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Fixes the order of the samples and the draws of the bootstrap.
    pub seed: u64,
    /// Samples asked for of each unit and workload.
    pub samples: u32,
    /// Whether the crowds were the smaller ones of `--quick`.
    pub quick: bool,
    /// Whether every workload, and not `switch` alone, stayed on one core.
    pub pinned: bool,
    /// Whether it was broken off.
    pub interrupted: bool,
    /// What else the machine did.
    pub load: Load,
}

/// One figure: of one unit, in one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The runtime the unit belongs to.
    pub runtime: String,
    /// That runtime's version.
    pub version: String,
    /// What ran.
    pub unit: Unit,
    /// What was measured.
    pub workload: Workload,
    /// How large it was.
    pub parameters: Parameters,
    /// Which figure of it this is.
    pub metric: Metric,
    /// The unit its values are in.
    pub value_unit: String,
    /// The median of the samples.
    pub median: f64,
    /// The lower end of the median's 95% interval.
    pub ci_low: f64,
    /// The upper end of the median's 95% interval.
    pub ci_high: f64,
    /// The values themselves, in the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Record {
    /// Makes the record of what came of a plan.
    pub fn new(environment: Environment, plan: &Plan, outcome: Outcome) -> Record {
        let results = measurements(plan, &outcome.taken);
        let quick = plan.size == Size::Quick;
        let warnings = noise::warnings(&environment, outcome.load, quick, &outcome.taken, &results);
        Record {
            schema: SCHEMA,
            environment,
            run: RunFacts {
                seed: plan.seed,
                samples: plan.samples,
                quick,
                pinned: plan.pin,
                interrupted: outcome.interrupted,
                load: outcome.load,
            },
            warnings,
            failures: outcome.failed,
            results,
            trials: outcome.taken,
        }
    }

    /// The figure of a unit in a workload, if it was measured.
    pub fn find(&self, workload: Workload, unit: Unit, metric: Metric) -> Option<&Measurement> {
        self.results.iter().find(|m| (m.workload, m.unit, m.metric) == (workload, unit, metric))
    }

    /// Whether every unit and workload that was asked for has at least one sample.
    pub fn is_complete(&self) -> bool {
        let measured = |failed: &Failed| {
            self.trials.iter().any(|t| (t.unit, t.workload) == (failed.unit, failed.workload))
        };
        !self.run.interrupted && self.failures.iter().all(measured)
    }
}

fn measurements(plan: &Plan, taken: &[Taken]) -> Vec<Measurement> {
    let mut found = Vec::new();
    // In the order of the reports, whatever the order on the command line.
    for workload in Workload::ALL {
        for unit in Unit::ALL {
            let of_kind: Vec<&Taken> =
                taken.iter().filter(|t| (t.workload, t.unit) == (workload, unit)).collect();
            let Some(first) = of_kind.first() else {
                continue;
            };
            for &metric in workload.metrics() {
                let samples: Vec<f64> =
                    of_kind.iter().filter_map(|t| metric.value(workload, &t.sample)).collect();
                if samples.is_empty() {
                    continue;
                }
                // A stream of its own for each figure: what else is measured does not change it.
                let stream =
                    plan.seed ^ ((workload as u64) << 16 | (unit as u64) << 8 | metric as u64);
                let estimate = stats::estimate(&samples, &mut Random::new(stream));
                found.push(Measurement {
                    runtime: unit.runtime().to_owned(),
                    version: unit.version().to_owned(),
                    unit,
                    workload,
                    parameters: first.sample.parameters,
                    metric,
                    value_unit: metric.value_unit().to_owned(),
                    median: estimate.median,
                    ci_low: estimate.low,
                    ci_high: estimate.high,
                    samples,
                });
            }
        }
    }
    found
}
