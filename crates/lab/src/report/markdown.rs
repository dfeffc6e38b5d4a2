//! A record as Markdown, ready to paste.

use super::table::Table;
use super::{tables, text, words};
use crate::record::Record;

pub(super) fn render(record: &Record) -> String {
    let mut page = String::from("## Fiber vs Thread Benchmark\n");
    let section = |table: &Table| {
        let notes: String = table.notes.iter().map(|note| format!("  - {note}\n")).collect();
        let gap = if notes.is_empty() { "" } else { "\n" };
        format!("\n### {}\n\n{}{gap}{notes}", table.title, table.markdown())
    };
    let sentences = words::sentences(record);
    if !sentences.is_empty() {
        page += &format!("\n  - {}\n", sentences.join("\n  - "));
    }
    tables::published(record).iter().for_each(|table| page += &section(table));
    if let Some(table) = tables::intervals(record) {
        page += &section(&table);
    }
    if !(record.warnings.is_empty() && record.failures.is_empty() && !record.run.interrupted) {
        page += "\n### Warnings\n\n";
    }
    for warning in &record.warnings {
        page += &format!("  - {}. *{}.*\n", warning.message, warning.advice);
    }
    for failed in &record.failures {
        let advice = failed.advice.as_ref();
        let advice = advice.map_or_else(String::new, |advice| format!(" *{advice}.*"));
        page += &format!("  - {}{advice}\n", text::failure(failed));
    }
    if record.run.interrupted {
        page += "  - broken off: these are the samples until then\n";
    }
    page += &format!(
        "\n### Hardware and Software Environment\n\n```\n{}\n{}\n```\n",
        record.environment.started,
        text::machine(record).join("\n")
    );
    page
}
