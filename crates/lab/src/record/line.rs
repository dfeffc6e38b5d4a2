//! The lines of a record: each one JSON object that says by its `type` what it is.

use serde::{Deserialize, Serialize};

use super::{Failed, Measurement, Reading, Record, RunFacts};
use crate::env::Environment;
use crate::noise::Warning;
use crate::printable;

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

    /// Reads one line. What a terminal would obey is no part of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> serde_json::Result<Line> {
        if !printable::is_doubtful(line) {
            return serde_json::from_str(line);
        }
        serde_json::from_value(printable::value(serde_json::from_str(line)?))
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
}
