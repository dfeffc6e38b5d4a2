//! The lines of a record: each one JSON object that says by its `type` what it is.

use std::io;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{Failed, Measurement, Reading, Record, RunFacts};
use crate::env::Environment;
use crate::noise::Warning;

/// The version of the format. It changes when a reader of the old one would misread the new one;
/// new keys alone do not change it.
pub const SCHEMA: u32 = 2;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// The first: where the figures come from.
    Environment(Box<Heading>),
    /// How it ran. The last one counts: a run says at its beginning that it is not finished, and
    /// at its end how it went.
    Run(RunFacts),
    /// One sample.
    Sample(Reading),
    /// One figure, from all samples.
    Result(Measurement),
    /// A reason for doubt.
    Warning(Warning),
    /// Samples that could not be taken.
    Failure(Failed),
}

/// The first line of a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heading {
    /// The version of the format, [`SCHEMA`].
    pub schema: u32,
    /// For figures that were published elsewhere: where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Where it ran.
    #[serde(flatten)]
    pub environment: Environment,
}

impl Heading {
    /// The heading of a record made here.
    pub fn new(environment: Environment) -> Heading {
        Heading { schema: SCHEMA, source: None, environment }
    }
}

/// Where published figures come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// What it is called.
    pub title: String,
    /// Where it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What a reader of the figures has to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Line {
    /// The line as it is written, its line break included.
    pub fn text(&self) -> String {
        // Plain data with string keys always has a JSON form.
        let mut text = serde_json::to_string(self).expect("a record is plain data");
        text.push('\n');
        text
    }

    /// Reads one line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> serde_json::Result<Line> {
        serde_json::from_str(line)
    }
}

impl Record {
    /// The record as JSON Lines.
    pub fn to_lines(&self) -> String {
        // Taken apart by name, so that a new part of a record cannot be left out.
        let Record { source, environment, run: _, warnings: _, failures: _, results: _, samples } =
            self;
        let heading =
            Heading { schema: SCHEMA, source: source.clone(), environment: environment.clone() };
        let mut text = Line::Environment(Box::new(heading)).text();
        text.extend(self.closing_lines().iter().map(Line::text));
        text.extend(samples.iter().map(|sample| Line::Sample(sample.clone()).text()));
        text
    }

    /// The lines that follow the last sample: how the run went, and its warnings, failures and
    /// results.
    pub fn closing_lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::Run(self.run.clone())];
        lines.extend(self.warnings.iter().cloned().map(Line::Warning));
        lines.extend(self.failures.iter().cloned().map(Line::Failure));
        lines.extend(self.results.iter().cloned().map(Line::Result));
        lines
    }

    /// Reads JSON Lines. A last line that is half there, as a run that was killed leaves it, is
    /// passed over; figures that the run did not come to are made from its samples.
    ///
    /// # Errors
    /// One line that says what is wrong, with its number.
    pub fn from_lines(text: &str) -> Result<Record> {
        let mut record = Record::default();
        let mut finished = false;
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        for (at, line) in lines.iter().enumerate() {
            let parsed = match Line::parse(line) {
                Ok(parsed) => parsed,
                Err(_) if at > 0 && at + 1 == lines.len() && !text.ends_with('\n') => break,
                Err(error) if at == 0 => {
                    bail!("this is no record: its first line is not one ({error})")
                }
                Err(error) => bail!("line {}: {error}", at + 1),
            };
            match parsed {
                Line::Environment(heading) if heading.schema != SCHEMA => {
                    bail!(
                        "this is a record of format {}, and this program reads format {SCHEMA}",
                        heading.schema
                    )
                }
                Line::Environment(heading) if at == 0 => {
                    record.environment = heading.environment;
                    record.source = heading.source;
                }
                Line::Environment(_) => bail!("line {}: a second environment", at + 1),
                _ if at == 0 => bail!("this is no record: it does not begin with an environment"),
                Line::Run(run) => record.run = run,
                Line::Sample(sample) => record.samples.push(sample),
                Line::Result(result) => {
                    finished = true;
                    record.results.push(result);
                }
                Line::Warning(warning) => record.warnings.push(warning),
                Line::Failure(failed) => record.failures.push(failed),
            }
        }
        ensure!(!lines.is_empty(), "this is no record: it is empty");
        if !finished {
            record.conclude();
        }
        Ok(record)
    }

    /// Reads the records of a file: one, or several one after the other, each of which begins with
    /// its environment.
    ///
    /// # Errors
    /// One line that names the file and says what is wrong.
    pub fn read(path: &Path) -> Result<Vec<Record>> {
        Record::read_file(path).with_context(|| path.display().to_string())
    }

    fn read_file(path: &Path) -> Result<Vec<Record>> {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow!("there is no such file"),
            io::ErrorKind::InvalidData => anyhow!("this is no record: it is not text"),
            _ => error.into(),
        })?;
        let begins = text.match_indices("{\"type\":\"environment\"").map(|(at, _)| at);
        let begins: Vec<usize> = begins
            .filter(|&at| at > 0 && text.as_bytes()[at - 1] == b'\n')
            .chain([text.len()])
            .collect();
        let mut from = 0;
        let part = |to: usize| {
            let part = &text[from..to];
            from = to;
            Record::from_lines(part)
        };
        begins.into_iter().map(part).collect()
    }
}
