//! A record: everything one run found, and what is needed to judge it. `docs/record-format.md`
//! describes it as JSON Lines.

mod doubts;
mod gather;
mod line;
mod machine;
mod order;
mod published;
mod reading;
mod store;
mod subject;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use line::{Heading, Line, SCHEMA, Source};
pub use machine::{differences, fingerprint, name as machine_name};
pub use order::{version_and_build, version_key};
pub use published::{find, published};
pub use reading::Reading;
pub use store::{Store, default_folder};
pub use subject::Subject;

use crate::env::Environment;
use crate::metric::Quantity;
use crate::noise::{Load, Warning};
pub use crate::parameters::{Parameters, Value};
use crate::role::Role;
use crate::stats::{self, Random};
use crate::targets::{Facts, version};

/// One run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// For figures that were published elsewhere: where.
    pub source: Option<Source>,
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
    pub samples: Vec<Reading>,
}

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    /// Fixes the order of the samples and the draws of the bootstrap.
    pub seed: u64,
    /// Samples asked for of each subject.
    pub samples: u32,
    /// Whether the crowds were the smaller ones of `--quick`.
    pub quick: bool,
    /// Whether every workload, and not `switch` alone, stayed on one core.
    pub pinned: bool,
    /// Whether it was broken off, or has not come to its end yet.
    pub interrupted: bool,
    /// What else the machine did.
    pub load: Load,
    /// The command line, as a person would type it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The runtimes that took part, our own aside: what is to be said of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<Facts>,
}

/// One figure of one subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What it is about.
    #[serde(flatten)]
    pub subject: Subject,
    /// Which side of the comparison the unit stands on, as in [`Reading::role`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Which figure of it this is.
    pub metric: String,
    /// The unit its values are in.
    pub value_unit: String,
    /// The median of the samples.
    pub median: f64,
    /// The lower end of the median's 95% interval; none for published figures that have none.
    pub ci_low: Option<f64>,
    /// The upper end of the median's 95% interval.
    pub ci_high: Option<f64>,
    /// The values themselves, in the order in which they were taken.
    pub samples: Vec<f64>,
}

/// Samples that could not be taken, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What they were to be about.
    #[serde(flatten)]
    pub subject: Subject,
    /// How many failed in this way.
    pub times: u32,
    /// What went wrong.
    pub message: String,
    /// What would help, where that is known.
    pub advice: Option<String>,
    /// What the process said on standard error, the last lines of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

impl Measurement {
    /// What its values count.
    pub fn quantity(&self) -> Quantity {
        Quantity::of(&self.metric)
    }

    /// A value of this metric, with its unit.
    pub(crate) fn show(&self, value: f64) -> String {
        self.quantity().show(value)
    }

    /// The median, with its unit.
    pub(crate) fn shown(&self) -> String {
        self.show(self.median)
    }

    /// Which side of the comparison the unit stands on.
    pub fn role(&self) -> Role {
        Role::of(self.role.as_deref(), &self.subject.unit)
    }
}

impl Record {
    /// Makes the record of samples that were taken: their figures, and the reasons for doubt.
    pub fn new(
        environment: Environment,
        run: RunFacts,
        samples: Vec<Reading>,
        failures: Vec<Failed>,
    ) -> Record {
        let mut record = Record { environment, run, failures, samples, ..Record::default() };
        record.conclude();
        record
    }

    /// Makes figures and warnings from the samples.
    fn conclude(&mut self) {
        self.results = measurements(self.run.seed, &self.samples);
        self.warnings =
            doubts::warnings(&self.environment, &self.run, &self.samples, &self.results);
    }

    /// What a store has yet to be told when the last sample is in it: how the run went, and what
    /// came of it.
    pub fn closing_lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::Run(self.run.clone())];
        lines.extend(self.warnings.iter().cloned().map(Line::Warning));
        lines.extend(self.failures.iter().cloned().map(Line::Failure));
        lines.extend(self.results.iter().cloned().map(Line::Result));
        lines
    }

    /// What it has of the versions that `wanted` names: by their beginning, part by part (3.5 is
    /// 3.5.0 and 3.5.1), or by the name of a build. Nothing where it has none.
    pub fn of_version(mut self, wanted: &str) -> Option<Record> {
        let is = |version: &str| {
            let (number, build) = version_and_build(version);
            version == wanted || build == Some(wanted) || version::matches(number, wanted)
        };
        self.results.retain(|result| is(&result.subject.version));
        self.samples.retain(|sample| is(&sample.subject.version));
        self.failures.retain(|failed| is(&failed.subject.version));
        self.run.runtimes.retain(|facts| is(&facts.version));
        (!self.results.is_empty() || !self.failures.is_empty()).then_some(self)
    }

    /// Whether everything that was asked for has at least one sample.
    pub fn is_complete(&self) -> bool {
        let measured =
            |failed: &Failed| self.samples.iter().any(|sample| sample.subject == failed.subject);
        !self.run.interrupted && self.failures.iter().all(measured)
    }
}

fn measurements(seed: u64, samples: &[Reading]) -> Vec<Measurement> {
    let mut values: BTreeMap<(&Subject, &str), Vec<f64>> = BTreeMap::new();
    let mut roles: BTreeMap<&Subject, &Option<String>> = BTreeMap::new();
    for sample in samples {
        roles.insert(&sample.subject, &sample.role);
        for (metric, &value) in &sample.figures {
            values.entry((&sample.subject, metric)).or_default().push(value);
        }
    }
    let figure = |((subject, metric), samples): ((&Subject, &str), Vec<f64>)| {
        // A stream of its own for each figure: what else is measured does not change it.
        let name = format!("{subject} {} {metric}", subject.parameters);
        let stream = u64::from_str_radix(&fingerprint(name.as_bytes()), 16).unwrap_or(0);
        let estimate = stats::estimate(&samples, &mut Random::new(seed ^ stream));
        Measurement {
            subject: subject.clone(),
            role: roles.get(subject).copied().cloned().flatten(),
            metric: metric.to_owned(),
            value_unit: Quantity::of(metric).unit().to_owned(),
            median: estimate.median,
            ci_low: Some(estimate.low),
            ci_high: Some(estimate.high),
            samples,
        }
    };
    let mut found: Vec<Measurement> = values.into_iter().map(figure).collect();
    order::sort(&mut found);
    found
}
