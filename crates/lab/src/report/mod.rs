//! Shows a record: for people as text or Markdown, for programs as JSON or CSV.

pub(crate) mod csv;
pub(crate) mod html;
pub(crate) mod ink;
mod markdown;
pub(crate) mod number;
pub(crate) mod table;
mod tables;
mod text;
mod view;
mod words;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::record::Record;
use crate::workload::unknown;

/// How to show a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tables for a terminal.
    Text,
    /// Everything, for programs and for later comparison.
    Json,
    /// The tables, ready to paste.
    Markdown,
    /// The figures, one a line.
    Csv,
    /// One page that needs nothing else.
    Html,
    /// One picture of the main figures.
    Svg,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 6] =
        [Format::Text, Format::Json, Format::Markdown, Format::Csv, Format::Html, Format::Svg];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Markdown => "markdown",
            Format::Csv => "csv",
            Format::Html => "html",
            Format::Svg => "svg",
        }
    }

    /// The format that a file's extension asks for.
    pub fn of_file(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "txt" => Some(Format::Text),
            "json" | "jsonl" => Some(Format::Json),
            "md" | "markdown" => Some(Format::Markdown),
            "csv" => Some(Format::Csv),
            "html" | "htm" => Some(Format::Html),
            "svg" => Some(Format::Svg),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    /// Finds a format by its name.
    ///
    /// # Errors
    /// One line that names the right ones.
    fn from_str(name: &str) -> Result<Format, String> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| unknown("format", name, Format::ALL.map(Format::name)))
    }
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
        Format::Text => text::render(records, colour),
        Format::Json => records.iter().map(Record::to_lines).collect(),
        Format::Markdown => markdown::render(records),
        Format::Csv => csv::render(records),
        Format::Html => html::render(records),
        Format::Svg => html::picture::render(records),
    }
}
