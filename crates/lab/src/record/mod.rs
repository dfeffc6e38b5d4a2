//! A record: everything one run found, and what is needed to judge it. `docs/record-format.md`
//! describes it as JSON Lines.

mod doubts;
mod facts;
mod failed;
mod gather;
mod line;
mod machine;
mod measurement;
mod order;
mod published;
mod reading;
pub mod salvage;
mod store;
mod subject;

pub use facts::RunFacts;
pub use failed::Failed;
pub use line::{Heading, Line, SCHEMA, Source};
pub use machine::{differences, fingerprint, name as machine_name};
pub use measurement::Measurement;
pub use published::{Extent, Found, files, find, published};
pub use reading::Reading;
pub use store::{Store, default_folder};
pub use subject::Subject;

use std::collections::BTreeSet;
use std::mem;

use crate::env::Environment;
use crate::noise::Warning;
use crate::version::{self, version_and_build};
pub use carefree_workloads::parameters::{Parameters, Value};

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
        self.results = measurement::of(&self.samples, self.run.seed);
        order::sort(&mut self.results);
        self.warnings =
            doubts::warnings(&self.environment, &self.run, &self.samples, &self.results);
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

    /// Without what each sample said of its work, which only JSON shows and which is most of the
    /// memory of thousands of records.
    pub(crate) fn without_proofs(mut self) -> Record {
        let mut known = BTreeSet::new();
        let results = self.results.iter_mut().map(|result| &mut result.subject);
        for subject in results.chain(self.samples.iter_mut().map(|sample| &mut sample.subject)) {
            // Hundreds of samples have the same parameters.
            match known.get(&subject.parameters) {
                Some(same) => subject.parameters = Parameters::clone(same),
                None => _ = known.insert(subject.parameters.clone()),
            }
        }
        for sample in &mut self.samples {
            let Reading { subject, run, position, program, source, .. } = mem::take(sample);
            *sample = Reading { subject, run, position, program, source, ..Reading::default() };
        }
        self.samples.shrink_to_fit();
        self
    }

    /// Whether everything that was asked for has at least one sample.
    pub fn is_complete(&self) -> bool {
        let measured =
            |failed: &Failed| self.samples.iter().any(|sample| sample.subject == failed.subject);
        !self.run.interrupted && self.failures.iter().all(measured)
    }
}
