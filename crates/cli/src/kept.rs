//! The samples that this run need not take, because earlier ones have, and the record of this run.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Error, Result};
use carefree_lab::env::Environment;
use carefree_lab::metric;
use carefree_lab::noise::Warning;
use carefree_lab::record::{self, Heading, Line, Reading, Record, RunFacts, Store, Subject};
use carefree_lab::run::Taken;
use carefree_lab::stats::{self, Random};
use carefree_lab::trial::Trial;

use crate::complain;

/// The samples of a run, those of earlier runs included, and the file they are kept in.
#[derive(Debug)]
pub(crate) struct Kept {
    /// `None` where there is no folder for it, or it could not be written.
    store: Option<Store>,
    /// Whether the folder was named: then a record that is not there is a failure.
    is_named: bool,
    /// Whether something could not be written.
    is_lost: bool,
    readings: Vec<Reading>,
    begun: RunFacts,
    run: String,
}

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) record: Record,
    /// The file it is in.
    pub(crate) path: Option<PathBuf>,
    /// Whether that file was asked for and is incomplete.
    pub(crate) is_lost: bool,
}

impl Kept {
    /// Opens `folder`, or the user's own.
    ///
    /// # Errors
    /// One line: the folder that was named cannot be written. Without the user's own, a run goes on
    /// and says so.
    pub(crate) fn open(
        folder: Option<PathBuf>,
        environment: &Environment,
        begun: RunFacts,
        force: bool,
    ) -> Result<Kept> {
        let is_named = folder.is_some();
        let mut store = None;
        if let Some(folder) = folder.or_else(record::default_folder) {
            match Store::open(&folder, Heading::new(environment.clone()), force) {
                Ok(open) => {
                    open.damage().iter().for_each(complain);
                    store = Some(open);
                }
                Err(error) => {
                    let place = folder.display();
                    let error =
                        Error::new(error).context(format!("records cannot be kept in {place}"));
                    if is_named {
                        return Err(error);
                    }
                    complain(error);
                }
            }
        }
        let run = environment.started.clone();
        Ok(Kept { store, is_named, is_lost: false, readings: Vec::new(), begun, run })
    }

    /// Takes up to `most` samples of earlier runs as this one's, and says how many there were.
    pub(crate) fn reuse(&mut self, trial: &Trial, most: u32) -> u32 {
        let subject = Subject::from(trial);
        let Some(store) = &mut self.store else {
            return 0;
        };
        if store.has(&subject, &trial.program) == 0 {
            return 0;
        }
        match store.reuse(&subject, &trial.program, most as usize) {
            Ok(found) => {
                let count = u32::try_from(found.len()).unwrap_or(most);
                self.readings.extend(found);
                count
            }
            Err(error) => {
                self.give_up(&error);
                0
            }
        }
    }

    /// How long a sample of `trial` took in an earlier run, if one was taken from there.
    pub(crate) fn time(&self, trial: &Trial) -> Option<Duration> {
        let subject = Subject::from(trial);
        let reading = self.readings.iter().find(|reading| reading.subject == subject)?;
        Some(Duration::from_secs_f64(reading.figures.get(metric::TIME.name)?.max(0.0) / 1e3))
    }

    /// Adds a sample that was taken.
    pub(crate) fn add(&mut self, taken: &Taken) {
        let reading = Reading::of_sample(&self.run, taken);
        let first = self.readings.iter().all(|known| known.run != self.run);
        if let Some(store) = &mut self.store {
            // If this run is killed, readers must not take its record for complete.
            let unfinished = RunFacts { interrupted: true, ..self.begun.clone() };
            let begun = if first { store.write(&Line::Run(unfinished)) } else { Ok(()) };
            if let Err(error) = begun.and_then(|()| store.append(&reading)) {
                self.give_up(&error);
            }
        }
        self.readings.push(reading);
    }

    fn give_up(&mut self, error: &std::io::Error) {
        complain(format_args!("the record cannot be written any more: {error}"));
        self.store = None;
        self.is_lost = true;
    }

    /// Whether all figures of these orders are as precise as asked for: a share of their median.
    pub(crate) fn is_precise(&self, trial: &Trial, precision: f64, seed: u64) -> bool {
        let subject = Subject::from(trial);
        let of_kind: Vec<&Reading> =
            self.readings.iter().filter(|reading| reading.subject == subject).collect();
        let Some(first) = of_kind.first() else {
            return false;
        };
        first.figures.keys().all(|metric| {
            let values: Vec<f64> =
                of_kind.iter().filter_map(|reading| reading.figures.get(metric).copied()).collect();
            stats::enough(&values, precision, &mut Random::new(seed))
        })
    }

    /// Makes the record, with notes on the runtimes that took part, and writes its end.
    pub(crate) fn finish(
        self,
        environment: Environment,
        notes: Vec<Warning>,
        outcome: carefree_lab::run::Outcome,
    ) -> Finished {
        let Kept { store, is_named, mut is_lost, readings, begun, .. } = self;
        let run = RunFacts { interrupted: outcome.interrupted, load: outcome.load, ..begun };
        let mut record = Record::new(environment, run, readings, outcome.failed);
        record.warnings.extend(notes);
        let mut path = None;
        if let Some(mut store) = store.filter(|_| !record.samples.is_empty()) {
            let written = record.closing_lines().iter().try_for_each(|line| store.write(line));
            match written {
                Ok(()) => path = Some(store.path().to_owned()),
                Err(error) => {
                    complain(format_args!("the record has no end: {error}"));
                    is_lost = true;
                }
            }
        }
        Finished { record, path, is_lost: is_lost && is_named }
    }
}
