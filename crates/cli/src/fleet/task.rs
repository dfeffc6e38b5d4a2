//! One task of a plan, on this machine.

use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Error, Result, anyhow, ensure};
use carefree_lab::env::Environment;
use carefree_lab::number::counted;
use carefree_lab::record::machine_name;

use super::options;
use super::plan::Plan;
use super::receipt::{self, Place, Receipt};
use crate::args::Bench;
use crate::{bench, complain, exit};

/// What stands beside `--task`: all else is in the plan.
const BESIDE: [&str; 4] = ["plan", "task", "machine", "record"];

/// Runs a task, and leaves its record and its receipt in the folder of `--record`.
pub(super) fn run(orders: &Bench, file: &Path, number: u32) -> Result<ExitCode, (u8, Error)> {
    let usage = |error| (exit::USAGE, error);
    let failed = |error| (exit::FAILED, error);
    let given = options::given(env::args_os()).map_err(usage)?;
    if let Some(other) = given.iter().find(|given| !BESIDE.contains(&&*given.name)) {
        let word = other.words.first().map_or("", |word| word.split('=').next().unwrap_or(word));
        return Err(usage(anyhow!(
            "{word} cannot stand beside --task: the plan says what to measure"
        )));
    }
    let folder = orders.record.as_deref().context("--task takes --record DIR").map_err(usage)?;
    let plan = Plan::read(file).map_err(usage)?;
    let task = plan.task(number).map_err(usage)?;
    let mut task_orders = task.orders().map_err(usage)?;
    let machine = match &orders.fleet.machine {
        Some(name) => name.clone(),
        None => machine_name(&Environment::capture()),
    };
    check_name(&machine).map_err(usage)?;
    let (id, place) = (plan.id(), Place::new(folder, &plan.id(), number, &machine));
    let what = format!("task {number} ({}) on {machine}", task.name);
    match Receipt::read(&place, &id) {
        Ok(Some(receipt)) if receipt.has_record() => {
            complain(format_args!("{what} is done already: {}", place.receipt().display()));
            return Ok(code(receipt.complete));
        }
        // What was missing on this machine may be there by now.
        Ok(_) => {}
        Err(error) => {
            complain(format_args!("{what} is measured again: {error:#}"));
            receipt::set_aside(&place).map_err(failed)?;
        }
    }
    task_orders.record = Some(place.work.clone());
    task_orders.fleet.machine.clone_from(&orders.fleet.machine);
    let mut receipt = Receipt::new(&id, (number, &task.name), &machine);
    let finished = match bench::take(&task_orders) {
        Ok(finished) => finished,
        // A broken-off task is not over: what it has measured is used again when it goes on.
        Err((exit::INTERRUPTED, error)) => return Err((exit::INTERRUPTED, error)),
        Err((code, error)) => {
            // On this machine it cannot be measured, however often it is tried.
            receipt.trouble = Some(format!("{error:#}"));
            receipt.write(&place, None).map_err(failed)?;
            return Err((code, error.context(what)));
        }
    };
    if finished.record.run.interrupted {
        complain(format_args!("{what} was broken off; run it again to go on from there"));
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    receipt.complete = finished.record.is_complete();
    receipt.trouble = finished
        .record
        .failures
        .first()
        .map(|failure| format!("{}: {}", failure.subject.spoken(), failure.message));
    if finished.is_lost {
        return Err(failed(anyhow!("{what}: its record could not be written")));
    }
    let complete = receipt.complete;
    if let Some(trouble) = &receipt.trouble {
        complain(format_args!("{what}: {trouble}"));
    }
    receipt.write(&place, finished.path.as_deref()).map_err(failed)?;
    // The samples of a run that was broken off are in the record now.
    let _ = fs::remove_dir_all(&place.work);
    let samples = counted(finished.record.samples.len(), "sample");
    complain(format_args!("{what}: {samples}, recorded in {}", place.record().display()));
    Ok(code(complete))
}

fn code(complete: bool) -> ExitCode {
    if complete { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) }
}

/// Refuses a name of a machine that is no part of a file's name.
pub(super) fn check_name(name: &str) -> Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    ensure!(
        !name.is_empty()
            && !name.starts_with('.')
            && name.len() <= 128
            && name.chars().all(is_plain),
        "--machine '{}': a name has letters, digits, '-', '_' and '.'",
        name.escape_debug()
    );
    Ok(())
}
