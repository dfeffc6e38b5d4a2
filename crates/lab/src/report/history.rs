//! A history, for people and for programs.

use anyhow::{Result, bail};

use super::ink::{Ink, safe};
use super::table::Table;
use super::{Format, csv, escape, html, names};
use crate::compare::Change;
use crate::history::{Series, sentences, series};
use crate::metric::spoken;
use crate::record::{Measurement, Record};

/// Shows what `records` tell of each figure over versions and time, the steps in plain words
/// first; with colours where `colour` says so and the format has any.
///
/// # Errors
/// One line, for a format that histories do not have.
pub fn history(records: &[Record], format: Format, colour: bool) -> Result<String> {
    const TITLE: &str = "What changed, and when";
    let all = series(records);
    let mut said: Vec<String> = sentences(records).iter().map(|line| format!("{line}.")).collect();
    let bullet = if said.is_empty() { "" } else { "  - " };
    if said.is_empty() {
        said.push(
            match all.is_empty() {
                true => {
                    "No figure was measured twice, in two versions or at two times, on one machine."
                }
                false => "No step that the samples tell from chance.",
            }
            .into(),
        );
    }
    let lines =
        |start: &str| said.iter().map(|line| format!("{start}{line}\n")).collect::<String>();
    // On a page, rows are sorted, and each must say what it is of.
    let table = (!all.is_empty()).then(|| table(&all, format == Format::Html));
    Ok(match format {
        Format::Text => {
            let ink = Ink::new(colour);
            let table = table.map(|table| table.text_section(ink)).unwrap_or_default();
            safe(format!("{}\n\n{}{table}", ink.bold(TITLE), lines("  ")), colour)
        }
        Format::Markdown => {
            let table = table.map(|table| table.markdown_section()).unwrap_or_default();
            let said: String =
                said.iter().map(|line| format!("{bullet}{}\n", escape::text(line))).collect();
            safe(format!("## {TITLE}\n{table}\n### In plain words\n\n{said}"), false)
        }
        Format::Csv => safe(spreadsheet(&all), false),
        Format::Html => html::history(records, &said, &table.unwrap_or_else(|| Table::new(""))),
        Format::Json | Format::Svg => {
            let formats = names(&Format::OF_HISTORIES);
            bail!("there is no history in {format}; the formats are {formats}")
        }
    })
}

/// Each point, with what changed since the one that it is compared with.
fn changes<'a>(series: &Series<'a>) -> Vec<(&'a Measurement, &'a str, Option<Change>)> {
    let change = |(old, (new, started)): (Option<&'a Measurement>, (&'a Measurement, &'a str))| {
        (new, started, old.map(|old| Change::new(old, new)))
    };
    series.compared().into_iter().map(change).collect()
}

/// `whole`: whether each row says what it is of, and not only the first of a figure's.
fn table(all: &[Series<'_>], whole: bool) -> Table {
    let mut table = Table::new("Figures over Versions and Time")
        .left(["Runtime", "Unit", "Workload", "Figure", "Version", "Date or Label"])
        .right(["Median"])
        .left(["Since the one before"]);
    for series in all {
        let mut first = true;
        for (m, started, change) in changes(series) {
            let subject = &m.subject;
            let since = change.map(|change| change.cell(&m.metric)).unwrap_or_default();
            let once = |text: &str| if first || whole { text.to_owned() } else { String::new() };
            table.rows.push(vec![
                once(&subject.runtime),
                once(&subject.unit),
                once(&subject.workload),
                once(&spoken(&m.metric)),
                subject.version.clone(),
                match series.moment(started) {
                    date if date == started => date.get(..10).unwrap_or_default().to_owned(),
                    label => label.to_owned(),
                },
                m.shown(),
                since,
            ]);
            first = false;
        }
    }
    table.notes.push(
        "A version is compared with the one before within the last run that has both, else by the \
         last of each."
            .into(),
    );
    table.without_empty().with_marks_explained()
}

fn spreadsheet(all: &[Series<'_>]) -> String {
    let mut lines = String::from(
        "runtime,unit,workload,parameters,metric,value_unit,\
         version,date,median,ci_low,ci_high,ratio,verdict\n",
    );
    for series in all {
        for (m, started, change) in changes(series) {
            let subject = &m.subject;
            let cells = [
                subject.runtime.clone(),
                subject.unit.clone(),
                subject.workload.clone(),
                subject.parameters.to_string(),
                m.metric.clone(),
                m.value_unit.clone(),
                subject.version.clone(),
                started.to_owned(),
                m.median.to_string(),
                csv::number(m.ci_low),
                csv::number(m.ci_high),
                csv::number(change.map(|change| change.ratio)),
                change.map_or_else(String::new, |change| change.verdict.name().to_owned()),
            ];
            lines += &csv::line(cells.into_iter());
        }
    }
    lines
}
