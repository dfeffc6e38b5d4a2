//! A history, for people and for programs.

use anyhow::{Result, bail};

use super::ink::Ink;
use super::table::Table;
use super::{Format, csv, html};
use crate::compare::{Change, Verdict};
use crate::history::{Series, sentences, series};
use crate::metric::spoken;
use crate::record::Record;

/// Shows what `records` tell of each figure over versions and time, the steps in plain words
/// first; with colours where `colour` says so and the format has any.
///
/// # Errors
/// One line, for a format that histories do not have.
pub fn history(records: &[Record], format: Format, colour: bool) -> Result<String> {
    let all = series(records);
    let said = sentences(records);
    let nothing = "No figure was measured twice, in two versions or at two times, on one machine.";
    let quiet = "No step that the samples tell from chance.";
    Ok(match format {
        Format::Text => {
            let ink = Ink::new(colour);
            let mut text = format!("{}\n\n", ink.bold("What changed, and when"));
            for line in &said {
                text += &format!("  {line}.\n");
            }
            match (all.is_empty(), said.is_empty()) {
                (true, _) => text += &format!("  {nothing}\n"),
                (_, true) => text += &format!("  {quiet}\n"),
                _ => {}
            }
            if !all.is_empty() {
                let table = table(&all);
                text += &format!("\n{}\n\n{}", ink.bold(&table.title), table.text());
            }
            text
        }
        Format::Markdown => {
            let mut page = String::from("## What changed, and when\n\n");
            for line in &said {
                page += &format!("  - {line}.\n");
            }
            match (all.is_empty(), said.is_empty()) {
                (true, _) => page += &format!("{nothing}\n"),
                (_, true) => page += &format!("{quiet}\n"),
                _ => {}
            }
            if !all.is_empty() {
                let table = table(&all);
                page += &format!("\n### {}\n\n{}", table.title, table.markdown());
            }
            page
        }
        Format::Csv => spreadsheet(&all),
        Format::Html => {
            let said = match (all.is_empty(), said.is_empty()) {
                (true, _) => vec![nothing.to_owned()],
                (_, true) => vec![quiet.to_owned()],
                _ => said.iter().map(|line| format!("{line}.")).collect(),
            };
            html::history(records, &said, &table(&all))
        }
        Format::Json | Format::Svg => {
            bail!("there is no history in {format}; the formats are text, markdown, csv and html")
        }
    })
}

/// Each point with what it changed.
fn changes<'a>(series: &'a Series<'a>) -> impl Iterator<Item = Option<Change>> + 'a {
    let before = std::iter::once(None).chain(series.points.iter().map(Some));
    before.zip(&series.points).map(|(old, (new, _))| old.map(|(old, _)| Change::new(old, new)))
}

fn table(all: &[Series<'_>]) -> Table {
    let mut table = Table::new("Figures over Versions and Time")
        .left(["Runtime", "Unit", "Workload", "Figure", "Version", "Date"])
        .right(["Median"])
        .left(["Since the one before"]);
    for series in all {
        let mut first = true;
        for ((m, started), change) in series.points.iter().zip(changes(series)) {
            let subject = &m.subject;
            let since = match change {
                None => String::new(),
                Some(change) if change.verdict == Verdict::NoneShown => {
                    change.verdict.name().to_owned()
                }
                Some(change) if change.verdict == Verdict::Untested => {
                    format!("({})", change.words(&m.metric))
                }
                Some(change) => change.words(&m.metric),
            };
            let once = |text: &str| if first { text.to_owned() } else { String::new() };
            table.rows.push(vec![
                once(&subject.runtime),
                once(&subject.unit),
                once(&subject.workload),
                once(&spoken(&m.metric)),
                subject.version.clone(),
                started.get(..10).unwrap_or_default().to_owned(),
                m.shown(),
                since,
            ]);
            first = false;
        }
    }
    table.without_empty()
}

fn spreadsheet(all: &[Series<'_>]) -> String {
    let mut lines = String::from(
        "runtime,unit,workload,parameters,metric,value_unit,\
         version,date,median,ci_low,ci_high,ratio,verdict\n",
    );
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for series in all {
        for ((m, started), change) in series.points.iter().zip(changes(series)) {
            let subject = &m.subject;
            let cells = [
                subject.runtime.clone(),
                subject.unit.clone(),
                subject.workload.clone(),
                subject.parameters.to_string(),
                m.metric.clone(),
                m.value_unit.clone(),
                subject.version.clone(),
                (*started).to_owned(),
                m.median.to_string(),
                number(m.ci_low),
                number(m.ci_high),
                number(change.map(|change| change.ratio)),
                change.map_or_else(String::new, |change| change.verdict.name().to_owned()),
            ];
            lines += &csv::line(cells.into_iter());
        }
    }
    lines
}
