//! A record as Markdown, ready to paste.

use super::escape::{block, list, text};
use super::view::{View, by_machine};
use super::{tables, text as as_text, words};
use crate::record::Record;

pub(super) fn render(records: &[Record]) -> String {
    let view = View::new(records);
    let mut page = String::from("## Fiber vs Thread Benchmark\n");
    // The answer first, and what it says in words behind it.
    let mut tables = tables::published(&view).into_iter().chain(tables::intervals(&view, false));
    page.extend(tables.next().map(|table| table.markdown_section()));
    let topics = words::topics(&view);
    if !topics.is_empty() {
        page += "\n### In plain words\n\n";
        for topic in topics {
            let sentences = list(&topic.said);
            match topic.heading() {
                // A list within the list.
                Some(heading) => {
                    page +=
                        &format!("{}{}", list(&[heading]), sentences.replace("  - ", "      - "));
                }
                None => page += &sentences,
            }
        }
    }
    tables.for_each(|table| page += &table.markdown_section());
    let warnings = records.iter().flat_map(|record| &record.warnings);
    let mut doubts: Vec<String> = warnings
        .map(|warning| format!("{}. *{}.*", text(&warning.message), text(&warning.advice)))
        .collect();
    for failed in records.iter().flat_map(|record| &record.failures) {
        let advice = failed.advice.as_ref();
        let advice = advice.map_or_else(String::new, |advice| format!(" *{}.*", text(advice)));
        doubts.push(format!("{}{advice}", text(&as_text::failure(failed))));
    }
    if records.iter().any(|record| record.run.interrupted) {
        doubts.push("broken off: these are the samples until then".into());
    }
    if !doubts.is_empty() {
        page += &format!("\n### Warnings\n\n  - {}\n", doubts.join("\n  - "));
    }
    page += "\n### Hardware and Software Environment\n";
    for records in by_machine(records) {
        let mut started: Vec<&str> =
            records.iter().map(|record| record.environment.started.as_str()).collect();
        started.sort_unstable();
        started.dedup();
        let started = match started[..] {
            [""] | [] => String::new(),
            [one] => format!("{one}\n"),
            [first, .., last] => format!("{first} to {last}\n"),
        };
        let machine = as_text::machine(&records).join("\n");
        page += &format!("\n{}", block(&format!("{started}{machine}")));
    }
    page
}
