//! Units of one family that did the same work, and how their rows are named.

use super::table::Table;
use crate::record::{Measurement, Parameters};

/// The ways to fetch of one family that did the same work.
pub(super) struct Fetches<'a> {
    pub(super) label: String,
    /// Which machine's they are: one of the view's places.
    pub(super) place: usize,
    pub(super) parameters: Parameters,
    /// Fastest first, with their time in milliseconds.
    pub(super) ways: Vec<(&'a str, f64)>,
    pub(super) figures: Vec<&'a Measurement>,
}

impl<'a> Fetches<'a> {
    pub(super) fn find(&self, way: &str, metric: &str) -> Option<&'a Measurement> {
        let wanted = |m: &&&Measurement| m.subject.unit == way && m.metric == metric;
        self.figures.iter().find(wanted).copied()
    }
}

/// What all ways to fetch have in common, as `body=1024 requests=50`, and the names of it.
fn shared(all: &[Fetches<'_>]) -> Parameters {
    let Some(first) = all.first() else { return Parameters::default() };
    let is_shared = |name: &str| {
        all.iter().all(|other| other.parameters.get(name) == first.parameters.get(name))
    };
    let names: Vec<&str> =
        first.parameters.iter().map(|(name, _)| name).filter(|name| is_shared(name)).collect();
    first.parameters.clone().only(&names)
}

/// What is said once of all ways to fetch; nothing where they have nothing in common.
pub(super) fn shared_work(all: &[Fetches<'_>]) -> Option<String> {
    let shared = shared(all).to_string();
    (!shared.is_empty()).then(|| format!("All have {}.", shared.replace(' ', ", ")))
}

/// What tells the work of these from that of the others.
pub(super) fn own_work(all: &[Fetches<'_>], one: &Fetches<'_>) -> Parameters {
    let shared = shared(all);
    let own = one.parameters.iter().filter(|(name, _)| shared.get(name).is_none());
    let own: Vec<&str> = own.map(|(name, _)| name).collect();
    one.parameters.clone().only(&own)
}

/// Names the rows from `from` on: `lines` stand in their first cells, one a row, and what is left of
/// them in the last row; `name` is the whole for pages, whose rows can be sorted.
pub(super) fn name_rows(
    table: &mut Table,
    from: usize,
    name: &str,
    lines: impl Iterator<Item = String>,
) {
    let mut lines = lines.fuse();
    let rows = &mut table.rows[from..];
    for row in rows.iter_mut() {
        row[0] = lines.next().unwrap_or_default();
    }
    table.names.extend(rows.iter().map(|_| name.to_owned()));
    if let Some(row) = rows.last_mut() {
        lines.for_each(|line| row[0] += &format!("\n{line}"));
    }
}
