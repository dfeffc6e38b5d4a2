//! Shows a record: for people as text or Markdown, for programs as JSON or CSV.

mod annotations;
mod comparison;
mod contest;
mod crowds;
mod csv;
mod escape;
mod history;
mod html;
mod ink;
mod machines;
mod markdown;
mod meals;
mod missing;
mod serving;
pub mod table;
mod tables;
mod text;
mod topic;
mod view;
mod words;
mod work;

use std::path::Path;

pub use annotations::{github, junit};
use anyhow::{Result, bail};
pub use comparison::comparison;
pub use history::history;

use crate::record::Record;
use carefree_workloads::named;

named! {
    /// How to show a record.
    pub enum Format as "format" {
        /// Tables for a terminal.
        Text = "text",
        /// Everything, for programs and for later comparison.
        Json = "json",
        /// The tables, ready to paste.
        Markdown = "markdown",
        /// The figures, one a line.
        Csv = "csv",
        /// One page that needs nothing else.
        Html = "html",
        /// One picture of the main figures.
        Svg = "svg",
    }
}

impl Format {
    /// Those of histories.
    pub const OF_HISTORIES: [Format; 4] =
        [Format::Text, Format::Markdown, Format::Csv, Format::Html];

    /// Those of comparisons.
    pub const OF_COMPARISONS: [Format; 5] =
        [Format::Text, Format::Json, Format::Markdown, Format::Csv, Format::Html];

    /// The format that is asked for, else the one that the file's extension asks for; text if it has none.
    ///
    /// # Errors
    /// When no format has that extension: the file would hold what its name does not say.
    pub fn choose(asked: Option<Format>, file: Option<&Path>) -> Result<Format> {
        let extension = file.and_then(Path::extension);
        let (None, Some(file), Some(extension)) = (asked, file, extension) else {
            return Ok(asked.unwrap_or(Format::Text));
        };
        Ok(match extension.to_str() {
            Some("txt") => Format::Text,
            Some("json" | "jsonl") => Format::Json,
            Some("md" | "markdown") => Format::Markdown,
            Some("csv") => Format::Csv,
            Some("html" | "htm") => Format::Html,
            Some("svg") => Format::Svg,
            _ => bail!(
                "{}: no format has this ending; end it in .txt, .json, .md, .csv, .html or .svg, or say --format",
                file.display()
            ),
        })
    }
}

/// `text, markdown, csv and html`.
fn names(formats: &[Format]) -> String {
    named::list(&formats.iter().map(|format| format.name()).collect::<Vec<_>>())
}

/// Shows `record` in `format`, with colours where `colour` says so and the format has any. It ends
/// with a line break.
pub fn render(record: &Record, format: Format, colour: bool) -> String {
    render_all(std::slice::from_ref(record), format, colour)
}

/// Shows several records in one report. Of a figure that several of them have from one machine,
/// the last one is shown.
pub fn render_all(records: &[Record], format: Format, colour: bool) -> String {
    match format {
        Format::Text => ink::safe(text::render(records, colour), colour),
        Format::Json => records.iter().map(Record::to_lines).collect(),
        Format::Markdown => ink::safe(markdown::render(records), false),
        Format::Csv => ink::safe(csv::render(records), false),
        Format::Html => html::render(records),
        Format::Svg => html::picture::render(records),
    }
}
