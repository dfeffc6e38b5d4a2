//! Reading files of records, of which some lines may be damaged: those are told of and left out, and
//! the others stand for what they say.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::line::{Line, SCHEMA};
use super::{Measurement, Reading, Record, measurement};

/// What a file has.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// The records, one or several one after the other.
    pub records: Vec<Record>,
    /// The lines that are left out.
    pub damage: Vec<Damage>,
    /// Whether the last line is half there, as a run that was killed leaves it.
    pub is_cut: bool,
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Salvaged {
    /// Whether no line is damaged, and none half there.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && !self.is_cut
    }

    /// What is damaged, in a sentence; nothing where nothing is.
    pub fn complaint(&self) -> Option<String> {
        let first = self.damage.first()?;
        Some(match self.damage.len() {
            1 => format!("line {} is damaged and left out: {}", first.line, first.what),
            count => format!("{count} lines are damaged and left out, the first of them {first}"),
        })
    }
}

/// A longer line is none of a record's (one of ten thousand samples has less than a MiB), and is not kept in memory.
const LONGEST: u64 = 16 << 20;

/// So many damaged lines and no environment among them: the file is something else.
const HOPELESS: usize = 1_000;

/// Reads a file of records, a line at a time: what is damaged takes no memory.
///
/// # Errors
/// One line that names the file: it is not there, or there is no record in it.
pub fn read(path: &Path) -> Result<Salvaged> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow!("there is no such file"),
        _ => error.into(),
    });
    file.and_then(|file| salvage(BufReader::new(file))).with_context(|| path.display().to_string())
}

/// The records in this.
///
/// # Errors
/// One line: there is none, or it cannot be read.
pub(super) fn salvage(from: impl BufRead) -> Result<Salvaged> {
    let mut found = Salvaged::default();
    let mut is_lost = false;
    let mut first = None;
    let mut lines = Lines::new(from);
    while let Some((number, line)) = lines.next()? {
        match line {
            Part::Cut => found.is_cut = true,
            Part::Unknown => {}
            Part::Line(line) => match *line {
                Line::Environment(heading) => {
                    is_lost = false;
                    let (environment, source) = (heading.environment, heading.source);
                    found.records.push(Record { environment, source, ..Record::default() });
                }
                _ if is_lost => {}
                line => match found.records.last_mut() {
                    Some(record) => record.add(line),
                    None => {
                        first.get_or_insert("it does not begin with an environment".to_owned());
                    }
                },
            },
            Part::Damaged { what, is_heading } => {
                if found.records.is_empty() {
                    first.get_or_insert_with(|| match is_heading {
                        true => what.clone(),
                        false => format!("its first line is not one ({what})"),
                    });
                }
                // What follows was measured in another place than what comes before.
                is_lost |= is_heading;
                found.damage.push(Damage { line: number, what });
                let is_hopeless = lines.is_too_long || found.damage.len() >= HOPELESS;
                if found.records.is_empty() && is_hopeless {
                    break;
                }
            }
        }
    }
    if found.records.is_empty() {
        match first {
            Some(why) if why.contains("of format") => bail!("{why}"),
            Some(why) => bail!("this is no record: {why}"),
            None => bail!("this is no record: it is empty"),
        }
    }
    found.records.iter_mut().for_each(Record::complete);
    Ok(found)
}

/// What a line comes to.
pub(super) enum Part {
    Line(Box<Line>),
    /// Of a type that this program does not know: newer ones may have more.
    Unknown,
    Damaged {
        what: String,
        /// Whether it was to begin a record.
        is_heading: bool,
    },
    /// The last line, half there.
    Cut,
}

/// The lines of a file, one in memory at a time.
pub(super) struct Lines<R> {
    from: R,
    /// The number of the line that was read last, from 1.
    number: usize,
    /// That line, or the beginning of one that is too long.
    line: Vec<u8>,
    is_too_long: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Lines<R> {
        Lines { from, number: 0, line: Vec::new(), is_too_long: false }
    }

    /// The next line, with its number. Empty ones are left out.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn next(&mut self) -> io::Result<Option<(usize, Part)>> {
        loop {
            if self.is_too_long {
                self.from.skip_until(b'\n')?;
            }
            self.line.clear();
            if self.from.by_ref().take(LONGEST).read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            let is_whole = self.line.last() == Some(&b'\n');
            self.is_too_long = !is_whole && self.line.len() as u64 == LONGEST;
            if self.is_too_long {
                let what = "it is longer than any line of a record".to_owned();
                let is_heading = is_heading(&self.line);
                return Ok(Some((self.number, Part::Damaged { what, is_heading })));
            }
            if is_whole {
                self.line.pop();
            }
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let part = match part(&self.line) {
                Part::Damaged { .. } if self.number > 1 && !is_whole => Part::Cut,
                part => part,
            };
            return Ok(Some((self.number, part)));
        }
    }
}

fn is_heading(line: &[u8]) -> bool {
    line.starts_with(b"{\"type\":\"environment\"")
}

fn part(bytes: &[u8]) -> Part {
    let is_heading = is_heading(bytes);
    let damaged = |what: String| Part::Damaged { what, is_heading };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return damaged("it is not text".to_owned());
    };
    match Line::parse(text) {
        Ok(Line::Environment(heading)) if heading.schema != SCHEMA => Part::Damaged {
            what: format!(
                "this is a record of format {}, and this program reads format {SCHEMA}",
                heading.schema
            ),
            is_heading: true,
        },
        Ok(line) => match implausible(&line) {
            Some(what) => damaged(what),
            None => Part::Line(Box::new(line)),
        },
        Err(error) => match is_of_unknown_type(text) {
            true => Part::Unknown,
            // The line is one; the column is worth telling.
            false => damaged(error.to_string().replace(" at line 1", " at")),
        },
    }
}

fn is_of_unknown_type(text: &str) -> bool {
    const KNOWN: [&str; 6] = ["environment", "run", "sample", "result", "warning", "failure"];
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let kind = value.as_ref().and_then(|value| value.get("type")?.as_str());
    kind.is_some_and(|kind| !KNOWN.contains(&kind))
}

/// A figure that nothing can have measured: below zero, or beyond all bounds.
fn implausible(line: &Line) -> Option<String> {
    let is_one = |value: f64| value == 0.0 || (1e-30..=1e30).contains(&value);
    let wrong = |name: &str, value: f64| {
        (!is_one(value)).then(|| format!("{name} is {value:e}, which is no figure"))
    };
    match line {
        Line::Sample(Reading { figures, .. }) => {
            figures.iter().find_map(|(name, &value)| wrong(name, value))
        }
        Line::Result(Measurement { metric, median, ci_low, ci_high, samples, .. }) => {
            let ends = [Some(*median), *ci_low, *ci_high].into_iter().flatten();
            ends.chain(samples.iter().copied()).find_map(|value| wrong(metric, value))
        }
        _ => None,
    }
}

impl Record {
    /// Reads JSON Lines. A last line that is half there, as a run that was killed leaves it, is
    /// passed over; figures that the run did not come to are made from its samples.
    ///
    /// # Errors
    /// One line that says what is wrong, with its number.
    pub fn from_lines(text: &str) -> Result<Record> {
        let mut found = salvage(text.as_bytes())?;
        if let Some(damage) = found.damage.first() {
            bail!("{damage}");
        }
        ensure!(found.records.len() == 1, "line 2: a second environment");
        Ok(found.records.remove(0))
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Run(run) => self.run = run,
            Line::Sample(sample) => self.samples.push(sample),
            Line::Result(result) => self.results.push(result),
            Line::Warning(warning) => self.warnings.push(warning),
            Line::Failure(failed) => self.failures.push(failed),
            // It begins a record of its own.
            Line::Environment(_) => {}
        }
    }

    /// Makes the figures from the samples that are not there: of a run that did not come to its
    /// end, or whose lines are damaged.
    fn complete(&mut self) {
        if self.results.is_empty() {
            self.conclude();
            return;
        }
        let known: BTreeSet<_> = self.results.iter().map(|m| (&m.subject, &*m.metric)).collect();
        let is_missing = |sample: &Reading| {
            sample.figures.keys().any(|metric| !known.contains(&(&sample.subject, &**metric)))
        };
        if !self.samples.iter().any(is_missing) {
            return;
        }
        let all = measurement::of(&self.samples, self.run.seed);
        let missing: Vec<Measurement> =
            all.into_iter().filter(|m| !known.contains(&(&m.subject, &*m.metric))).collect();
        self.results.extend(missing);
        super::order::sort(&mut self.results);
    }
}

/// Writes what is left of a file without its damaged lines, byte for byte.
///
/// # Errors
/// Those of reading and writing.
pub fn write_whole_lines(path: &Path, into: &mut impl Write) -> io::Result<()> {
    let mut is_lost = true;
    let mut lines = Lines::new(BufReader::new(File::open(path)?));
    while let Some((_, part)) = lines.next()? {
        match part {
            Part::Line(line) if matches!(*line, Line::Environment(_)) => is_lost = false,
            Part::Damaged { is_heading: true, .. } => is_lost = true,
            Part::Damaged { .. } | Part::Cut => continue,
            Part::Line(_) | Part::Unknown => {}
        }
        if !is_lost {
            into.write_all(&lines.line)?;
            into.write_all(b"\n")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::published;
    use std::fs;

    fn text() -> String {
        published().iter().map(Record::to_lines).collect()
    }

    /// The same with one line replaced.
    fn with(at: usize, line: &[u8]) -> Vec<u8> {
        let text = text();
        let mut lines: Vec<&[u8]> = text.lines().map(str::as_bytes).collect();
        lines[at] = line;
        [lines.join(&b'\n'), vec![b'\n']].concat()
    }

    fn figures(found: &Salvaged) -> usize {
        found.records.iter().map(|record| record.results.len()).sum()
    }

    #[test]
    fn whatever_a_line_is_damaged_by_the_others_are_there() {
        let whole = salvage(text().as_bytes()).expect("all of it");
        assert!(whole.damage.is_empty() && whole.complaint().is_none());
        for evil in [
            &b"{\"type\":\"result\",\"runti"[..],
            b"\0\0\0\0\0\0\0",
            b"\xff\xfe",
            b"[]",
            b"{\"type\":\"result\"}",
            b"garbage",
        ] {
            let found = salvage(&*with(7, evil)).expect("most of it");
            let lines: Vec<usize> = found.damage.iter().map(|damage| damage.line).collect();
            assert_eq!((lines, figures(&found)), (vec![8], figures(&whole) - 1), "{evil:?}");
            let said = found.complaint().expect("one");
            assert!(said.starts_with("line 8 is damaged and left out: "), "{said}");
        }
    }

    #[test]
    fn a_line_of_a_newer_program_is_no_damage() {
        let found = salvage(&*with(7, b"{\"type\":\"weather\",\"rain\":true}")).expect("read");
        assert!(found.damage.is_empty());
    }

    #[test]
    fn a_figure_that_cannot_be_is_damage() {
        for value in ["-5.0", "1e300", "1e-320"] {
            let line = format!(
                r#"{{"type":"result","runtime":"x","version":"1","unit":"u","workload":"alloc","parameters":{{}},"metric":"time_per_unit","value_unit":"ns","median":{value},"ci_low":null,"ci_high":null,"samples":[]}}"#
            );
            let found = salvage(&*with(7, line.as_bytes())).expect("most of it");
            let what = &found.damage[0].what;
            assert!(what.starts_with("time_per_unit is ") && what.ends_with("no figure"), "{what}");
        }
    }

    #[test]
    fn what_follows_a_damaged_environment_is_of_no_other_machine() {
        let text = text();
        let second = text.lines().skip(1).position(|line| line.starts_with("{\"type\":\"env"));
        let second = second.expect("three records") + 1;
        let found = salvage(&*with(second, b"{\"type\":\"environment\",\"sch")).expect("two");
        let whole = salvage(text.as_bytes()).expect("all of it");
        assert_eq!(found.records.len(), 2);
        assert_eq!(found.records[0], whole.records[0]);
        assert_eq!(found.records[1], whole.records[2]);
        let none = salvage(&b"{\"type\":\"environment\",\"schema\":9}\n"[..]).expect_err("newer");
        assert!(none.to_string().starts_with("this is a record of format 9"), "{none}");
    }

    #[test]
    fn figures_that_are_not_there_are_made_from_the_samples() {
        let mut record = Record::new(
            crate::env::Environment::default(),
            crate::record::RunFacts::default(),
            (0..4_usize)
                .map(|position| Reading {
                    position,
                    figures: [("a_ns", 1.0), ("b_ns", 2.0)]
                        .map(|(name, value)| (name.to_owned(), value))
                        .into(),
                    ..Reading::default()
                })
                .collect(),
            Vec::new(),
        );
        let whole = record.clone();
        record.results.retain(|m| m.metric == "a_ns");
        let found = salvage(record.to_lines().as_bytes()).expect("read");
        assert_eq!(found.records[0].results, whole.results);
    }

    #[test]
    fn a_repair_keeps_every_line_that_is_none_of_the_damaged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.jsonl");
        let repaired = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            let mut kept = Vec::new();
            write_whole_lines(&path, &mut kept).expect("read");
            (read(&path).expect("read"), kept)
        };
        let (found, kept) = repaired(text().as_bytes());
        assert!(found.is_whole());
        assert_eq!(kept, text().into_bytes());
        let (found, kept) = repaired(&with(7, b"garbage"));
        assert!(!found.is_whole());
        let expected: Vec<u8> = text()
            .lines()
            .enumerate()
            .filter(|(at, _)| *at != 7)
            .flat_map(|(_, line)| [line.as_bytes(), b"\n"].concat())
            .collect();
        assert_eq!(kept, expected);
        let (found, kept) = repaired(&[text().as_bytes(), b"{\"type\":\"sam"].concat());
        assert!(found.is_cut && found.damage.is_empty() && !found.is_whole());
        assert_eq!(kept, text().into_bytes());
    }

    /// None of these ends: all of it would never be read.
    #[test]
    fn what_is_no_record_is_refused_before_its_end() {
        let refusal =
            |from: &mut dyn Read| salvage(BufReader::new(from)).expect_err("no record").to_string();
        assert_eq!(
            refusal(&mut io::repeat(0)),
            "this is no record: its first line is not one (it is longer than any line of a record)"
        );
        struct Lines;
        impl Read for Lines {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.iter_mut().zip(b"x\n".iter().cycle()).for_each(|(to, from)| *to = *from);
                Ok(buffer.len() / 2 * 2)
            }
        }
        let said = refusal(&mut Lines);
        assert!(said.starts_with("this is no record: its first line is not one"), "{said}");
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_what_follows_is_there() {
        let hole = io::repeat(0).take(3 * LONGEST);
        let text = text();
        let (before, after) = text.split_at(text.find("\n").expect("lines") + 1);
        let from = before.as_bytes().chain(hole).chain(&b"\n"[..]).chain(after.as_bytes());
        let found = salvage(BufReader::new(from)).expect("all but a line");
        assert_eq!(found.damage.iter().map(|damage| damage.line).collect::<Vec<_>>(), [2]);
        assert_eq!(found.records, salvage(text.as_bytes()).expect("all of it").records);
    }
}
