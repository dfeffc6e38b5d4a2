//! The folder of records: what has been measured need not be measured again.
//!
//! A run writes one file, a line at a time, each handed to the kernel before the next sample
//! begins. A run that is broken off, by whatever, leaves all of them but the one at hand, and the
//! next run takes them up as its own: to resume is to find the samples there.
//!
//! A sample is used again only where everything it depends on is the same: runtime, version,
//! unit, workload and parameters ([`Subject`]), the program's own bytes, and the environment,
//! from the processor to the variables that are set.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use super::line::{Heading, Line};
use super::salvage::{Lines, Part};
use super::{Reading, Subject, machine};
use crate::env::Environment;

/// Samples that are there, and the file that takes this run's.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    heading: Heading,
    /// None until there is something to write: a run that measures nothing leaves no record.
    file: Option<File>,
    known: BTreeMap<(Subject, String), Vec<Reading>>,
    damage: Vec<String>,
}

/// Where records are kept unless told otherwise: `carefree/records` in the user's data folder,
/// `$XDG_DATA_HOME` or `~/.local/share`. None where neither is known.
pub fn default_folder() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("carefree/records"))
}

impl Store {
    /// Opens the folder, which is made if need be, and looks for samples that can be used again;
    /// for none where `force` says so.
    ///
    /// # Errors
    /// Those of the file system. What is damaged is passed over, and told by [`Store::damage`].
    pub fn open(folder: &Path, heading: Heading, force: bool) -> io::Result<Store> {
        fs::create_dir_all(folder)?;
        let (mut known, mut damage) = (BTreeMap::new(), Vec::new());
        if !force {
            for path in records(folder)? {
                if let Err(what) = gather(&path, &heading.environment, &mut known) {
                    damage
                        .push(format!("{}: {what}; what it had is measured anew", path.display()));
                }
            }
        }
        let path = free_name(folder, &heading.environment);
        Ok(Store { path, heading, file: None, known, damage })
    }

    /// What is damaged of the records in the folder, a line for each file.
    pub fn damage(&self) -> &[String] {
        &self.damage
    }

    /// The file this run's samples go to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many samples of `subject`, taken by `program`, can be used again.
    pub fn has(&self, subject: &Subject, program: &str) -> usize {
        self.known.get(&(subject.clone(), program.to_owned())).map_or(0, Vec::len)
    }

    /// Uses up to `most` samples again, in the order in which they were taken: they become part of
    /// this record.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn reuse(
        &mut self,
        subject: &Subject,
        program: &str,
        most: usize,
    ) -> io::Result<Vec<Reading>> {
        let Some(there) = self.known.get_mut(&(subject.clone(), program.to_owned())) else {
            return Ok(Vec::new());
        };
        let taken: Vec<Reading> = there.drain(..most.min(there.len())).collect();
        for reading in &taken {
            self.append(reading)?;
        }
        Ok(taken)
    }

    /// Adds a sample to this run's record.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn append(&mut self, reading: &Reading) -> io::Result<()> {
        self.write(&Line::Sample(reading.clone()))
    }

    /// Adds whatever else there is to say: at the end, the run as it went, with its warnings,
    /// failures and results.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = String::new();
        let mut file = match self.file.take() {
            Some(file) => file,
            None => {
                text.push_str(&Line::Environment(Box::new(self.heading.clone())).text());
                self.create()?
            }
        };
        text.push_str(&line.text());
        // One write: a line is there or it is not.
        let written = file.write_all(text.as_bytes());
        self.file = Some(file);
        written
    }

    /// Makes the file, under another name where another run that began in the same second has
    /// taken this one's meanwhile.
    fn create(&mut self) -> io::Result<File> {
        loop {
            match OpenOptions::new().append(true).create_new(true).open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let folder = self.path.parent().unwrap_or(Path::new("."));
                    self.path = free_name(folder, &self.heading.environment);
                }
                made => return made,
            }
        }
    }
}

/// Whether figures taken in one environment stand for the other: everything but the hour.
fn same_place(one: &Environment, other: &Environment) -> bool {
    Environment { started: other.started.clone(), ..one.clone() } == *other
}

/// The records of a folder, oldest first.
///
/// # Errors
/// Those of the file system.
pub(crate) fn records(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    // Names begin with the date.
    found.sort();
    Ok(found)
}

/// Adds the samples of one file that come from the same place.
///
/// # Errors
/// What is damaged: samples that are taken anew.
fn gather(
    path: &Path,
    here: &Environment,
    known: &mut BTreeMap<(Subject, String), Vec<Reading>>,
) -> Result<(), String> {
    let unread = |error: io::Error| error.to_string();
    let mut lines = Lines::new(BufReader::new(File::open(path).map_err(unread)?));
    let mut is_here = None;
    let (mut count, mut first) = (0, None);
    while let Some((number, part)) = lines.next().map_err(unread)? {
        match part {
            Part::Line(line) => match *line {
                Line::Environment(heading) => {
                    is_here = Some(same_place(&heading.environment, here))
                }
                Line::Sample(reading) if is_here == Some(true) => add(reading, known),
                _ => {}
            },
            // Of another place nothing is lost.
            Part::Damaged { is_heading: false, .. } if is_here == Some(false) => {}
            Part::Damaged { what, is_heading } => {
                if is_heading {
                    is_here = None;
                }
                count += 1;
                first.get_or_insert(format!("line {number} is damaged ({what})"));
            }
            Part::Unknown | Part::Cut => {}
        }
    }
    match first {
        None => Ok(()),
        Some(first) if count == 1 => Err(first),
        Some(first) => Err(format!("{first}, and {} more", count - 1)),
    }
}

fn add(reading: Reading, known: &mut BTreeMap<(Subject, String), Vec<Reading>>) {
    let there = known.entry((reading.subject.clone(), reading.program.clone())).or_default();
    let same = |other: &Reading| (&other.run, other.position) == (&reading.run, reading.position);
    // A run that used a sample again has a copy of it.
    if !there.iter().any(same) {
        there.push(reading);
    }
}

/// `2026-01-31T120000Z-example-9000-2-cores-1a2b3c.jsonl`, numbered where that is taken.
fn free_name(folder: &Path, environment: &Environment) -> PathBuf {
    let started = environment.started.replace(':', "");
    let base = format!("{started}-{}", machine::name(environment));
    let name = |number| match number {
        1 => format!("{base}.jsonl"),
        _ => format!("{base}-{number}.jsonl"),
    };
    let mut paths = (1_u64..).map(|number| folder.join(name(number)));
    paths.find(|path| !path.exists()).expect("there are more numbers than files")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Parameters;

    fn environment(started: &str) -> Environment {
        Environment {
            started: started.into(),
            cpu: Some("Example 9000".into()),
            ..Environment::default()
        }
    }

    fn open(folder: &Path, started: &str) -> Store {
        Store::open(folder, Heading::new(environment(started)), false).expect("open")
    }

    fn reading(position: usize, started: &str, value: f64) -> Reading {
        Reading {
            subject: Subject::new(
                ["ruby", "3.3.8", "thread", "alloc"],
                Parameters::of([("units", 100)]),
            ),
            run: started.into(),
            position,
            program: "p1".into(),
            figures: BTreeMap::from([("time_per_unit".into(), value)]),
            ..Reading::default()
        }
    }

    #[test]
    fn a_run_that_measures_nothing_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(open(folder.path(), "2026-01-01T00:00:00Z"));
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }

    #[test]
    fn a_run_broken_off_in_the_middle_of_a_line_is_taken_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = "2026-01-01T00:00:00Z";
        let mut store = open(folder.path(), first);
        let subject = reading(0, first, 1.0).subject;
        for position in 0..3 {
            store.append(&reading(position, first, 1.0 / 3.0)).expect("written");
        }
        let mut file = OpenOptions::new().append(true).open(store.path()).expect("there");
        file.write_all(b"{\"type\":\"sample\",\"runti").expect("written");

        let second = "2026-01-02T00:00:00Z";
        let mut again = open(folder.path(), second);
        assert_eq!(again.has(&subject, "p1"), 3);
        let taken = again.reuse(&subject, "p1", 2).expect("copied");
        assert_eq!(taken, [reading(0, first, 1.0 / 3.0), reading(1, first, 1.0 / 3.0)]);
        again.append(&reading(2, second, 5.0)).expect("written");

        // Copies count once, wherever they stand.
        let third = open(folder.path(), "2026-01-03T00:00:00Z");
        assert_eq!(third.has(&subject, "p1"), 4);
    }

    #[test]
    fn a_damaged_line_costs_its_own_sample_alone_and_is_told_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = "2026-01-01T00:00:00Z";
        let mut store = open(folder.path(), first);
        let subject = reading(0, first, 1.0).subject;
        for position in 0..3 {
            store.append(&reading(position, first, 1.0)).expect("written");
        }
        assert!(store.damage().is_empty());
        let text = fs::read_to_string(store.path()).expect("there");
        let mut bytes = text.into_bytes();
        // The second sample, in a file system that has lost a block.
        let at = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1);
        let at = at.expect("four lines").0;
        bytes[at + 1..at + 40].fill(0xff);
        fs::write(store.path(), &bytes).expect("written");
        let again = open(folder.path(), "2026-01-02T00:00:00Z");
        assert_eq!(again.has(&subject, "p1"), 2);
        let [said] = again.damage() else { panic!("{:?}", again.damage()) };
        assert!(said.contains("line 3 is damaged (it is not text)"), "{said}");

        // Without its first line, nothing tells where it was measured.
        bytes[..40].fill(b' ');
        fs::write(store.path(), &bytes).expect("written");
        let again = open(folder.path(), "2026-01-03T00:00:00Z");
        assert_eq!((again.has(&subject, "p1"), again.damage().len()), (0, 1));
    }

    #[test]
    fn samples_of_another_machine_in_one_file_are_not_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = "2026-01-01T00:00:00Z";
        let mut store = open(folder.path(), first);
        store.append(&reading(0, first, 1.0)).expect("written");
        let other = Environment { cores: 64, ..environment(first) };
        let elsewhere = Line::Environment(Box::new(Heading::new(other)));
        store.write(&elsewhere).expect("written");
        store.append(&reading(1, first, 9.0)).expect("written");
        let again = open(folder.path(), "2026-01-02T00:00:00Z");
        assert_eq!(again.has(&reading(0, first, 1.0).subject, "p1"), 1);
    }

    #[test]
    fn nothing_is_used_again_that_came_from_elsewhere_or_that_force_refuses() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = "2026-01-01T00:00:00Z";
        let mut store = open(folder.path(), first);
        store.append(&reading(0, first, 1.0)).expect("written");
        let subject = reading(0, first, 1.0).subject;
        let has = |environment: Environment, force, subject: &Subject, program| {
            let store = Store::open(folder.path(), Heading::new(environment), force);
            store.expect("open").has(subject, program)
        };
        let here = environment("2026-01-02T00:00:00Z");
        assert_eq!(has(here.clone(), false, &subject, "p1"), 1);
        assert_eq!(has(here.clone(), true, &subject, "p1"), 0, "force");
        assert_eq!(has(here.clone(), false, &subject, "p2"), 0, "another program");
        let newer = Subject { version: "3.4.1".into(), ..subject.clone() };
        assert_eq!(has(here.clone(), false, &newer, "p1"), 0, "another version");
        let variables = BTreeMap::from([("CAREFREE_CARRIERS".to_owned(), "1".to_owned())]);
        let elsewhere = Environment { variables, ..here };
        assert_eq!(has(elsewhere, false, &subject, "p1"), 0, "another environment");
    }

    #[test]
    fn two_runs_of_one_second_have_a_file_each() {
        let folder = tempfile::tempdir().expect("a folder");
        let started = "2026-01-01T00:00:00Z";
        let open = || open(folder.path(), started);
        // Both are open before either has a file.
        for mut store in [open(), open()] {
            store.append(&reading(0, started, 1.0)).expect("written");
        }
        open().append(&reading(0, started, 1.0)).expect("written");
        assert_eq!(records(folder.path()).expect("there").len(), 3);
    }
}
