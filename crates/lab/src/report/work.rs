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

/// Names the rows from `from` on: each by its own of `runtimes`, which stands once above those that
/// follow it and have the same one. What there is `more` to say of them, which rows are not to be taken
/// apart by, stands in the cells that are left empty, one line a row, and what is left of it in the last
/// row. Pages, whose rows can be sorted, name each in full.
pub(super) fn name_rows(table: &mut Table, from: usize, runtimes: &[String], more: &[String]) {
    let rows = &mut table.rows[from..];
    let mut lines = more.iter();
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = match at > 0 && runtimes[at] == runtimes[at - 1] {
            true => lines.next().cloned().unwrap_or_default(),
            false => runtimes[at].clone(),
        };
    }
    if let Some(row) = rows.last_mut() {
        lines.for_each(|line| row[0] += &format!("\n{line}"));
    }
    let full = |runtime: &String| [std::slice::from_ref(runtime), more].concat().join("\n");
    table.names.extend(runtimes.iter().map(full));
}

/// The runtime and its version, as rows are named.
pub(super) fn runtime(m: &Measurement) -> String {
    format!("{} {}", m.subject.runtime, m.subject.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_names_its_own_runtime() {
        let mut table = Table::new("").left(["Runtime", "Unit"]);
        table.rows =
            ["task", "may", "fiber", "thread"].map(|unit| vec!["".into(), unit.into()]).into();
        let [rust, ours] = ["rust 1.95.0", "carefree 0.1.0"].map(str::to_owned);
        let more = ["n1", "body=1024", "requests=50"].map(str::to_owned);
        name_rows(&mut table, 0, &[rust.clone(), rust.clone(), ours, rust], &more);
        let first: Vec<&str> = table.rows.iter().map(|row| &*row[0]).collect();
        let expected =
            ["rust 1.95.0", "n1", "carefree 0.1.0", "rust 1.95.0\nbody=1024\nrequests=50"];
        assert_eq!(first, expected);
        assert_eq!(table.names[1], "rust 1.95.0\nn1\nbody=1024\nrequests=50");
        assert_eq!(table.names[2], "carefree 0.1.0\nn1\nbody=1024\nrequests=50");
    }
}
