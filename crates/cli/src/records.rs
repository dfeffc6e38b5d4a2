//! `carefree report`, `carefree compare` and `carefree history`: what records say.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use carefree_lab::compare::Comparison;
use carefree_lab::metric;
use carefree_lab::record::{self, Extent, Record};
use carefree_lab::report::{self, Format};

use crate::args::{Annotate, Compare, History, Report, Shown};
use crate::out::Out;
use crate::{complain, exit, terminal};

pub(crate) fn report(orders: &Report) -> ExitCode {
    done(View::new(orders.format, &orders.shown).and_then(|view| {
        let records = view.collect(&orders.records)?;
        view.show(|format, colour| Ok(report::render_all(&records, format, colour)))
    }))
}

pub(crate) fn history(orders: &History) -> ExitCode {
    done(View::new(orders.format, &orders.shown).and_then(|view| {
        let records = view.collect(&orders.records)?;
        view.show(|format, colour| report::history(&records, format, colour))
    }))
}

pub(crate) fn compare(orders: &Compare) -> ExitCode {
    judge(orders).unwrap_or_else(|error| done(Err(error)))
}

fn judge(orders: &Compare) -> Result<ExitCode> {
    let view = View::new(orders.format, &orders.shown)?;
    let old = view.collect(std::slice::from_ref(&orders.old))?;
    let new = view.collect(std::slice::from_ref(&orders.new))?;
    let comparison = Comparison::new(&old, &new);
    let judged = orders.fail_on_regression.is_some();
    if judged && !orders.across_machines && !comparison.machines.is_empty() {
        bail!(
            "--fail-on-regression would judge the machines, not the programs, for they differ \
             ({}): measure on one, or say --across-machines",
            comparison.machines.join("; ")
        );
    }
    if judged && comparison.pairs.is_empty() {
        bail!(
            "{} and {} have no figure in common: there is nothing to judge",
            orders.old,
            orders.new
        );
    }
    if judged && !comparison.can_judge() {
        bail!(
            "{} and {} have no figure that could be told from chance: both sides need samples of \
             their own, 4 or more of each; there is nothing to judge",
            orders.old,
            orders.new
        );
    }
    view.show(|format, colour| report::comparison(&comparison, format, colour))?;
    let Some(percent) = orders.fail_on_regression else {
        return Ok(ExitCode::SUCCESS);
    };
    let worse = comparison.regressions(f64::from(percent));
    for annotate in &orders.annotate {
        match annotate {
            Annotate::Junit(file) => {
                Out::check(file)?.write(&report::junit(&comparison, &worse))?;
            }
            // On standard error, where the lines for people are: standard output is the report.
            Annotate::Github => _ = io::stderr().write_all(report::github(&worse).as_bytes()),
        }
    }
    for pair in &worse {
        complain(format_args!(
            "{} {}: {}",
            pair.new.subject,
            metric::spoken(&pair.new.metric),
            pair.change.words(&pair.new.metric)
        ));
    }
    Ok(if worse.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Names that mean nothing, and files that cannot be read or written, are mistakes of the command
/// line; exit code 1 is a regression's.
fn done(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(error);
            ExitCode::from(exit::USAGE)
        }
    }
}

/// What is shown, and where.
struct View<'a> {
    format: Format,
    shown: &'a Shown,
}

impl View<'_> {
    fn new(format: Option<Format>, shown: &Shown) -> Result<View<'_>> {
        Ok(View { format: Format::choose(format, shown.out.as_deref())?, shown })
    }

    /// The records of all names, in order. What is damaged of them is told, and left out.
    fn collect(&self, names: &[String]) -> Result<Vec<Record>> {
        let extent = match self.format {
            Format::Json => Extent::Whole,
            _ => Extent::Shown,
        };
        let folder: Option<PathBuf> = self.shown.record.clone().or_else(record::default_folder);
        let mut records = Vec::new();
        for name in names {
            let found = record::find(name, folder.as_deref(), extent)?;
            found.damage.iter().for_each(complain);
            records.extend(found.records);
        }
        Ok(records)
    }

    /// Renders, and writes the text to the file or to standard output.
    fn show(&self, render: impl FnOnce(Format, bool) -> Result<String>) -> Result<()> {
        match self.shown.out.as_deref() {
            Some(path) => Out::check(path)?.write(&render(self.format, false)?),
            None => terminal::print(&render(self.format, terminal::wants_colour())?),
        }
    }
}
