//! The figures of a record, one a line, for spreadsheets. The raw samples are in the JSON.

use crate::record::Record;

const HEADINGS: &str = "runtime,version,unit,workload,units,switches,rounds,cores,metric,value_unit,\
                        median,ci_low,ci_high,min,max,samples";

pub(super) fn render(record: &Record) -> String {
    let mut lines = format!("{HEADINGS}\n");
    for m in &record.results {
        let least = m.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = m.samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let parameters = m.parameters;
        let cells = [
            m.runtime.clone(),
            m.version.clone(),
            m.unit.to_string(),
            m.workload.to_string(),
            parameters.units.to_string(),
            parameters.switches.to_string(),
            parameters.rounds.to_string(),
            parameters.cores.to_string(),
            m.metric.to_string(),
            m.value_unit.clone(),
            m.median.to_string(),
            m.ci_low.to_string(),
            m.ci_high.to_string(),
            least.to_string(),
            most.to_string(),
            m.samples.len().to_string(),
        ];
        lines += &cells.map(|cell| quoted(&cell)).join(",");
        lines.push('\n');
    }
    lines
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
