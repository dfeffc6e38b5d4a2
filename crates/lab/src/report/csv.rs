//! The figures of a record, one a line, for spreadsheets. The raw samples are in the JSON.

use std::collections::BTreeSet;

use crate::record::{Record, machine_name};
use crate::stats;

/// The columns that every figure has. Between the workload and the metric there is one for each
/// parameter that any figure has, in the order of their names.
const BEFORE: [&str; 4] = ["runtime", "version", "unit", "workload"];
const AFTER: [&str; 8] =
    ["metric", "value_unit", "median", "ci_low", "ci_high", "min", "max", "samples"];
/// Where the samples lie; behind all others, which stand where they always have.
const SHARES: [(&str, f64); 4] = [("p5", 0.05), ("p25", 0.25), ("p75", 0.75), ("p95", 0.95)];

pub(super) fn render(records: &[Record]) -> String {
    let figures = || records.iter().flat_map(|record| &record.results);
    let names: BTreeSet<&str> =
        figures().flat_map(|m| m.subject.parameters.iter().map(|(name, _)| name)).collect();
    let headings: Vec<&str> =
        BEFORE.into_iter().chain(names.iter().copied()).chain(AFTER).collect();
    let headings = headings.into_iter().chain(SHARES.map(|(name, _)| name)).chain(["machine"]);
    let mut lines = line(headings.map(str::to_owned));
    let all = records.iter().map(|record| (machine(record), &record.results));
    for (machine, m) in all.flat_map(|(name, all)| all.iter().map(move |m| (name.clone(), m))) {
        let least = m.samples.iter().copied().reduce(f64::min);
        let most = m.samples.iter().copied().reduce(f64::max);
        let subject = &m.subject;
        let before = [&subject.runtime, &subject.version, &subject.unit, &subject.workload];
        let parameters = names
            .iter()
            .map(|name| subject.parameters.get(name).map_or_else(String::new, ToString::to_string));
        let after = [
            m.metric.clone(),
            m.value_unit.clone(),
            m.median.to_string(),
            number(m.ci_low),
            number(m.ci_high),
            number(least),
            number(most),
            m.samples.len().to_string(),
        ];
        // Of fewer they would be made up.
        let is_told = !m.is_rough() && !m.samples.is_empty();
        let spread =
            is_told.then(|| stats::percentiles(&m.samples, SHARES.map(|(_, share)| share)));
        let spread = (0..SHARES.len()).map(|at| number(spread.map(|values| values[at])));
        let cells = before.into_iter().cloned().chain(parameters).chain(after).chain(spread);
        lines += &line(cells.chain([machine]));
    }
    lines
}

/// What tells figures of several machines apart, as in a history.
fn machine(record: &Record) -> String {
    match &record.source {
        Some(source) => source.title.clone(),
        None => machine_name(&record.environment),
    }
}

/// A cell that may be empty.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// One line of cells.
pub(super) fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| quoted(&cell)).collect();
    cells.join(",") + "\n"
}

/// RFC 4180: in quotes where it has to be, quotes doubled.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_have_to_be() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("1,5"), "\"1,5\"");
        assert_eq!(quoted("say \"x\""), "\"say \"\"x\"\"\"");
    }
}
