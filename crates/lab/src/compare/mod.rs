//! What changed from one set of records to another.
//!
//! Figures are compared where runtime, unit, workload, parameters and metric are the same. A
//! difference counts as shown where two methods with different weaknesses agree: the 95% interval of
//! the ratio of medians leaves out 1, and the p of the Mann-Whitney test is below 5%. Otherwise no
//! difference is shown, though there may be one.

mod align;
mod change;
mod programs;

pub use change::{Change, Verdict};
pub(crate) use programs::Programs;
pub use programs::Suspect;

use std::collections::{BTreeMap, BTreeSet};

use align::Placed;
use carefree_workloads::named::distinct;

use crate::metric;
use crate::record::{self, Measurement, Reading, Record, Subject};

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

/// The samples behind a figure of one side.
fn samples<'a>(side: &'a [Record], figure: Placed<'_>) -> Vec<&'a Reading> {
    side.iter()
        .filter(|record| record.environment.started == figure.environment.started)
        .flat_map(|record| &record.samples)
        .filter(|sample| sample.subject == figure.measurement.subject)
        .collect()
}

/// Each sample by the run that took it and its place there.
fn taken<'a>(samples: &[&'a Reading]) -> BTreeSet<(&'a str, usize)> {
    samples.iter().map(|sample| (sample.run.as_str(), sample.position)).collect()
}

/// What took the samples.
fn programs<'a>(samples: &[&'a Reading]) -> Programs<'a> {
    let mut programs = Programs::default();
    samples.iter().for_each(|sample| programs.add(sample));
    programs
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
    /// What else than the version may have made the difference.
    pub suspect: Option<Suspect>,
}

impl Pair {
    /// The metric that the figure tells of.
    fn topic(&self) -> &str {
        metric::topic(&self.new.subject.workload, &self.new.metric)
    }

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
            let (theirs, ours) = (samples(old, was), samples(new, is));
            let shared = !taken(&theirs).is_disjoint(&taken(&ours));
            let (was, is) = (was.measurement.clone(), is.measurement.clone());
            let suspect =
                programs(&ours).suspect_since(&programs(&theirs), &was.subject, &is.subject);
            pairs.push(Pair { old: was, new: is, change, shared, suspect });
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

    /// The figures that got worse, beyond doubt and by more than `percent`; of those that tell the
    /// same again, the one that got worst.
    pub fn regressions(&self, percent: f64) -> Vec<&Pair> {
        let worse = |pair: &&Pair| pair.change.verdict == Verdict::Worse;
        let large = |pair: &&Pair| pair.change.factor() > 1.0 + percent / 100.0;
        self.told().into_iter().filter(worse).filter(large).collect()
    }

    /// The figures without those that tell again what others do: a rate the time's change, the
    /// process's own memory that of the whole. Of figures that tell the same, those that changed
    /// stand for all, one for each direction; where none did, the one that the others tell again.
    pub(crate) fn told(&self) -> Vec<&Pair> {
        type Topic<'a> = (&'a Subject, &'a str);
        let mut topics: BTreeMap<Topic<'_>, Vec<&Pair>> = BTreeMap::new();
        for pair in &self.pairs {
            topics.entry((&pair.new.subject, pair.topic())).or_default().push(pair);
        }
        for all in topics.values_mut() {
            // A rate is the reciprocal of a time: where the two are judged differently, chance has
            // done it.
            let is_rate = |pair: &&Pair| pair.new.quantity().more_is_better();
            if !all.iter().all(is_rate) {
                all.retain(|pair| !is_rate(pair));
            }
        }
        let stands = |pair: &&Pair| {
            let all = &topics[&(&pair.new.subject, pair.topic())];
            let changed =
                |other: &Pair| matches!(other.change.verdict, Verdict::Better | Verdict::Worse);
            let is_first = |other: &Pair| other.new.metric == other.topic();
            let stand_in = if all.iter().any(|other| changed(other)) {
                let alike = all
                    .iter()
                    .filter(|other| changed(other) && other.change.verdict == pair.change.verdict);
                alike.max_by(|a, b| {
                    let by_size = a.change.factor().total_cmp(&b.change.factor());
                    by_size.then(is_first(a).cmp(&is_first(b)))
                })
            } else {
                all.iter().find(|other| is_first(other)).or(all.first())
            };
            stand_in.is_some_and(|other| std::ptr::eq(*other, *pair))
        };
        self.pairs.iter().filter(stands).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Parameters;

    const BEFORE: [f64; 7] = [100.0, 103.0, 98.0, 101.0, 99.0, 102.0, 97.0];

    /// A record with these figures, each `BEFORE` with a factor.
    fn record(figures: &[(&str, &str, f64)]) -> Record {
        let figure = |&(workload, metric, factor): &(&str, &str, f64)| {
            let samples = BEFORE.map(|value| value * factor).to_vec();
            Measurement {
                subject: Subject::new(["ruby", "3.3", "fiber", workload], Parameters::default()),
                metric: metric.into(),
                median: crate::stats::median(&samples),
                samples,
                ..Measurement::default()
            }
        };
        Record { results: figures.iter().map(figure).collect(), ..Record::default() }
    }

    fn told(figures: &[(&str, &str, f64)]) -> (Vec<String>, Vec<String>) {
        let before: Vec<_> =
            figures.iter().map(|&(workload, metric, _)| (workload, metric, 1.0)).collect();
        let comparison = Comparison::new(&[record(&before)], &[record(figures)]);
        let names = |pairs: Vec<&Pair>| pairs.iter().map(|pair| pair.new.metric.clone()).collect();
        (names(comparison.told()), names(comparison.regressions(5.0)))
    }

    #[test]
    fn a_time_and_its_rate_are_one_change() {
        let (time, rate) = ("time_per_switch", "switches_per_second");
        let both = told(&[("switch", time, 2.0), ("switch", rate, 0.5)]);
        assert_eq!(both, (vec![time.to_owned()], vec![time.to_owned()]));
        // Rates are judged only where there is no time.
        let alone = told(&[("switch", rate, 0.5)]);
        assert_eq!(alone.1, [rate]);
        let differ = told(&[("switch", time, 1.0), ("switch", rate, 0.5)]);
        assert_eq!(differ, (vec![time.to_owned()], vec![]));
    }

    #[test]
    fn own_memory_and_the_whole_are_one_change_where_they_go_one_way() {
        let (own, whole) = ("memory_per_unit", "whole_memory_per_unit");
        let of = |own_factor, whole_factor| {
            told(&[("parked", own, own_factor), ("parked", whole, whole_factor)]).0
        };
        assert_eq!(of(1.0, 1.0), [whole]);
        assert_eq!(of(2.0, 2.0), [whole]);
        assert_eq!(of(2.0, 1.5), [own], "the larger one");
        assert_eq!(of(2.0, 1.0), [own], "the one that changed");
        assert_eq!(of(2.0, 0.5), [own, whole], "these are two");
        // Of two workloads they are two figures.
        let both = told(&[("parked", own, 2.0), ("alloc", own, 2.0)]);
        assert_eq!(both.1.len(), 2);
    }
}
