//! A record as Markdown, ready to paste.

use super::table::Table;
use super::view::View;
use super::{tables, text, words};
use crate::record::Record;

const RANGES: &str = "Below a figure is its 95% interval, which for fewer than 8 samples is about \
                      their range.";

pub(super) fn render(records: &[Record]) -> String {
    let view = View::new(records);
    let mut page = String::from("## Fiber vs Thread Benchmark\n");
    let section = |table: &Table| {
        let ranged = (!table.ranges.is_empty()).then_some(RANGES);
        let notes = table.notes.iter().map(String::as_str).chain(ranged);
        let notes: String = notes.map(|note| format!("  - {note}\n")).collect();
        let gap = if notes.is_empty() { "" } else { "\n" };
        format!("\n### {}\n\n{}{gap}{notes}", table.title, table.markdown())
    };
    let sentences = words::sentences(&view);
    if !sentences.is_empty() {
        page += &format!("\n  - {}\n", sentences.join("\n  - "));
    }
    tables::published(&view).iter().for_each(|table| page += &section(table));
    if let Some(table) = tables::intervals(&view, false) {
        page += &section(&table);
    }
    let warnings = records.iter().flat_map(|record| &record.warnings);
    let mut doubts: Vec<String> =
        warnings.map(|warning| format!("{}. *{}.*", warning.message, warning.advice)).collect();
    for failed in records.iter().flat_map(|record| &record.failures) {
        let advice = failed.advice.as_ref();
        let advice = advice.map_or_else(String::new, |advice| format!(" *{advice}.*"));
        doubts.push(format!("{}{advice}", text::failure(failed)));
    }
    if records.iter().any(|record| record.run.interrupted) {
        doubts.push("broken off: these are the samples until then".into());
    }
    if !doubts.is_empty() {
        page += &format!("\n### Warnings\n\n  - {}\n", doubts.join("\n  - "));
    }
    page += "\n### Hardware and Software Environment\n";
    for record in records {
        let started = match record.environment.started.as_str() {
            "" => String::new(),
            started => format!("{started}\n"),
        };
        page += &format!("\n```\n{started}{}\n```\n", text::machine(record).join("\n"));
    }
    page
}
