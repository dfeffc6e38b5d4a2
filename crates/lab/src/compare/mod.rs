//! What changed from one set of records to another.
//!
//! Figures are compared where runtime, unit, workload, parameters and metric are the same. A
//! difference counts as shown where two methods with different weaknesses agree: the 95% interval of
//! the ratio of medians leaves out 1, and the p of the Mann-Whitney test is below 5%. Otherwise no
//! difference is shown, though there may be one.

mod align;
mod change;

pub use change::{Change, Verdict};

use std::collections::BTreeSet;

use align::Placed;
use carefree_workloads::named::distinct;

use crate::record::{self, Measurement, Record};

/// Changes in figures without samples are reported from this factor on, since nothing shows how far
/// chance alone moves them. Published figures agree to about a tenth where nothing has changed.
pub(crate) const UNTESTED: f64 = 1.4;

/// What changed.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Figures that both sides have, in the order of the reports.
    pub pairs: Vec<Pair>,
    /// How many figures only the old side has.
    pub only_old: usize,
    /// How many figures only the new side has.
    pub only_new: usize,
    /// What the two sides' machines differ in, of figures that were compared; each once.
    pub machines: Vec<String>,
    /// Where and how the old and the new side were measured: their records without figures.
    pub(crate) sides: [Vec<Record>; 2],
}

/// The samples behind a figure of one side, each by the run that took it and its place there.
fn samples<'a>(side: &'a [Record], figure: Placed<'_>) -> BTreeSet<(&'a str, usize)> {
    side.iter()
        .filter(|record| record.environment.started == figure.environment.started)
        .flat_map(|record| &record.samples)
        .filter(|sample| sample.subject == figure.measurement.subject)
        .map(|sample| (sample.run.as_str(), sample.position))
        .collect()
}

/// A record without its figures.
fn head(record: &Record) -> Record {
    let Record { source, environment, run, .. } = record;
    let (source, environment, run) = (source.clone(), environment.clone(), run.clone());
    Record { source, environment, run, ..Record::default() }
}

/// One figure, old and new.
#[derive(Clone, Debug)]
pub struct Pair {
    /// As it was.
    pub old: Measurement,
    /// As it is.
    pub new: Measurement,
    /// How they differ.
    pub change: Change,
    /// Whether some samples stand on both sides: one run has used those of the other again, and
    /// what differs tells nothing.
    pub shared: bool,
}

impl Pair {
    /// Whether each side has samples enough to show a difference, however large.
    pub(crate) fn could_tell(&self) -> bool {
        change::could_tell(self.old.samples.len(), self.new.samples.len())
    }
}

impl Comparison {
    /// Compares all of `old` with all of `new`. Where a side has a figure several times, its last
    /// record counts.
    pub fn new(old: &[Record], new: &[Record]) -> Comparison {
        let aligned = align::align(old, new);
        let differ = |(was, is): &(Placed<'_>, Placed<'_>)| {
            record::differences(was.environment, is.environment)
        };
        let machines = distinct(aligned.pairs.iter().flat_map(differ));
        let mut pairs = Vec::new();
        for (was, is) in aligned.pairs {
            let change = Change::new(was.measurement, is.measurement);
            let shared = !samples(old, was).is_disjoint(&samples(new, is));
            let (was, is) = (was.measurement.clone(), is.measurement.clone());
            pairs.push(Pair { old: was, new: is, change, shared });
        }
        let sides = [old, new].map(|side| side.iter().map(head).collect());
        let (only_old, only_new) = (aligned.only_old, aligned.only_new);
        Comparison { pairs, only_old, only_new, machines, sides }
    }

    /// Whether any of the figures has samples enough on both sides to show a difference, and others
    /// on one than on the other.
    pub fn can_judge(&self) -> bool {
        self.pairs.iter().any(|pair| !pair.shared && pair.could_tell())
    }

    /// The figures that got worse, beyond doubt and by more than `percent`.
    pub fn regressions(&self, percent: f64) -> Vec<&Pair> {
        self.pairs
            .iter()
            .filter(|pair| pair.change.verdict == Verdict::Worse)
            .filter(|pair| pair.change.factor() > 1.0 + percent / 100.0)
            .collect()
    }
}
