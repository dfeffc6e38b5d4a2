//! The order in which reports show things, whatever the order they were measured in.

use carefree_workloads::workload::Workload;

use super::Measurement;
use super::subject::OURS;
use crate::metric;
use crate::version::version_key;

const UNITS: [&str; 3] = ["coroutine", "fiber", "thread"];

/// The place of `name` among `known`, the unknown ones behind, by name.
fn place<'a>(known: &[&str], name: &'a str) -> (usize, &'a str) {
    let at = known.iter().position(|known| *known == name);
    (at.unwrap_or(known.len()), name)
}

/// Puts figures in order.
pub(super) fn sort(results: &mut [Measurement]) {
    results.sort_by(|a, b| {
        let (one, other) = (&a.subject, &b.subject);
        let workloads = Workload::ALL.map(Workload::name);
        let rank = |m: &Measurement| metric::rank(&m.subject.workload, &m.metric).0;
        place(&workloads, &one.workload)
            .cmp(&place(&workloads, &other.workload))
            .then_with(|| (rank(a), &a.metric).cmp(&(rank(b), &b.metric)))
            .then_with(|| place(&OURS, &one.runtime).cmp(&place(&OURS, &other.runtime)))
            .then_with(|| version_key(&one.version).cmp(&version_key(&other.version)))
            .then_with(|| place(&UNITS, &one.unit).cmp(&place(&UNITS, &other.unit)))
            .then_with(|| one.parameters.cmp(&other.parameters))
    });
}
