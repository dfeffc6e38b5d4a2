//! Which old figure a new one is to be compared with.

use std::collections::BTreeSet;

use crate::env::Environment;
use crate::record::{Measurement, Parameters, Record, Subject};
use crate::version::{version_and_build, version_key};

/// A figure with the place it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) measurement: &'a Measurement,
    pub(super) environment: &'a Environment,
}

/// The two sides, laid side by side.
#[derive(Debug)]
pub(super) struct Aligned<'a> {
    pub(super) pairs: Vec<(Placed<'a>, Placed<'a>)>,
    pub(super) only_old: usize,
    pub(super) only_new: usize,
}

/// All that has to be the same for versions and parameters to be looked at.
type Kind<'a> = (&'a str, &'a str, &'a str, &'a str);

fn kind(measurement: &Measurement) -> Kind<'_> {
    let Subject { runtime, unit, workload, .. } = &measurement.subject;
    (runtime, unit, workload, &measurement.metric)
}

/// The figures of one side, the last of each.
fn side(records: &[Record]) -> Vec<Placed<'_>> {
    let mut found: Vec<Placed<'_>> = Vec::new();
    for record in records {
        for measurement in &record.results {
            let placed = Placed { measurement, environment: &record.environment };
            let same = |other: &&mut Placed<'_>| {
                let other = other.measurement;
                (&other.subject, &other.metric) == (&measurement.subject, &measurement.metric)
            };
            match found.iter_mut().find(same) {
                Some(other) => *other = placed,
                None => found.push(placed),
            }
        }
    }
    found
}

/// Pairs every new figure with the old one that is most like it: of the same runtime, unit,
/// workload and metric, with parameters that agree.
///
/// Versions need not be the same, for a new version is what people compare. The same one is
/// preferred, then one that is it with fewer numbers (2.7 and 2.7.8), then, where each side has
/// but one, whatever it is. A figure of a version among several that the other side has none of
/// stays alone.
pub(super) fn align<'a>(old: &'a [Record], new: &'a [Record]) -> Aligned<'a> {
    let (old, new) = (side(old), side(new));
    // Whether both sides have but one version of a runtime.
    let single = |runtime: &str| {
        [&old, &new].into_iter().all(|side| {
            let subjects = side.iter().map(|placed| &placed.measurement.subject);
            let versions = subjects.filter(|s| s.runtime == runtime).map(|s| &s.version);
            versions.collect::<BTreeSet<_>>().len() == 1
        })
    };
    let mut used = vec![false; old.len()];
    let mut pairs = Vec::new();
    let mut only_new = 0;
    for candidate in &new {
        let subject = &candidate.measurement.subject;
        let best = old
            .iter()
            .enumerate()
            .filter(|(_, other)| kind(other.measurement) == kind(candidate.measurement))
            .filter_map(|(at, other)| {
                let other = &other.measurement.subject;
                let near = nearness(&other.version, &subject.version)
                    .or(single(&subject.runtime).then_some(0))?;
                let sizes = likeness(&other.parameters, &subject.parameters)?;
                Some(((near, sizes), at))
            })
            .max_by_key(|&(rank, at)| (rank, std::cmp::Reverse(at)));
        match best {
            Some((_, at)) => {
                used[at] = true;
                pairs.push((old[at], *candidate));
            }
            None => only_new += 1,
        }
    }
    let only_old = used.iter().filter(|&&used| !used).count();
    Aligned { pairs, only_old, only_new }
}

/// 2 for the same version, 1 for one that begins with the other. Two builds that have names of their
/// own are near to each other only if it is one name.
fn nearness(one: &str, other: &str) -> Option<u32> {
    if one == other {
        return Some(2);
    }
    let ((one, build), (other, its_build)) = (version_and_build(one), version_and_build(other));
    if build.is_some() && its_build.is_some() && build != its_build {
        return None;
    }
    let (one, other) = (version_key(one), version_key(other));
    // The last part stands for the end.
    let common = one.len().min(other.len()) - 1;
    (common > 0 && one[..common] == other[..common]).then_some(1)
}

/// How many parameters both name, where they agree.
fn likeness(one: &Parameters, other: &Parameters) -> Option<usize> {
    let shared = one.iter().filter(|(name, _)| other.get(name).is_some()).count();
    one.agrees(other).then_some(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(figures: &[(&str, u64, f64)]) -> Record {
        let results = figures
            .iter()
            .map(|&(version, units, median)| Measurement {
                subject: Subject::new(
                    ["ruby", version, "thread", "alloc"],
                    Parameters::of([("units", units)]),
                ),
                metric: "time_per_unit".into(),
                median,
                ..Measurement::default()
            })
            .collect();
        Record { results, ..Record::default() }
    }

    fn medians(old: &[Record], new: &[Record]) -> (Vec<(f64, f64)>, usize, usize) {
        let aligned = align(old, new);
        let medians =
            aligned.pairs.iter().map(|(a, b)| (a.measurement.median, b.measurement.median));
        (medians.collect(), aligned.only_old, aligned.only_new)
    }

    #[test]
    fn the_same_version_is_preferred_then_one_with_fewer_numbers() {
        let old = record(&[("2.7", 100, 1.0), ("3.3", 100, 2.0), ("3.30", 100, 9.0)]);
        let new = record(&[("2.7", 100, 3.0), ("3.3.8", 100, 4.0), ("3.4.1", 100, 5.0)]);
        assert_eq!(medians(&[old], &[new]), (vec![(1.0, 3.0), (2.0, 4.0)], 1, 1));
    }

    #[test]
    fn one_version_a_side_is_compared_whatever_it_is() {
        let (old, new) = (record(&[("3.2", 100, 1.0)]), record(&[("3.3", 100, 3.6)]));
        assert_eq!(medians(&[old], &[new]), (vec![(1.0, 3.6)], 0, 0));
    }

    #[test]
    fn builds_are_compared_with_their_own_and_two_single_ones_with_each_other() {
        let (base, patch) = (("3.5.0 (base)", 100, 1.0), ("3.5.0 (patch)", 100, 2.0));
        let both = [record(&[base, patch])];
        assert_eq!(medians(&both, &both), (vec![(1.0, 1.0), (2.0, 2.0)], 0, 0));
        assert_eq!(medians(&[record(&[base])], &[record(&[patch])]), (vec![(1.0, 2.0)], 0, 0));
        let plain = [record(&[("3.5.0", 100, 4.0)])];
        assert_eq!(medians(&plain, &[record(&[patch])]), (vec![(4.0, 2.0)], 0, 0));
    }

    #[test]
    fn sizes_have_to_be_the_same() {
        let (old, new) = (record(&[("3.3", 10_000, 1.0)]), record(&[("3.3", 2_000, 2.0)]));
        assert_eq!(medians(&[old], &[new]), (vec![], 1, 1));
    }

    #[test]
    fn the_last_record_of_a_side_counts() {
        let old = [record(&[("3.3", 100, 1.0)]), record(&[("3.3", 100, 2.0)])];
        let new = [record(&[("3.3", 100, 5.0)])];
        assert_eq!(medians(&old, &new), (vec![(2.0, 5.0)], 0, 0));
    }
}
