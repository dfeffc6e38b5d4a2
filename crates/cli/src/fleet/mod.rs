//! `carefree bench` for several machines: the plan as a file, one task of it, and Slurm to run all.

mod drive;
mod options;
mod parts;
mod plan;
mod receipt;
mod slurm;
mod task;

use std::process::ExitCode;

use crate::args::{Bench, Engine};
use crate::{bench, complain};

/// Runs what `carefree bench` was asked for: here, or in parts.
pub(crate) fn bench(orders: &Bench) -> ExitCode {
    let fleet = &orders.fleet;
    let outcome = match (fleet.on, &fleet.plan, fleet.task) {
        (Some(Engine::Slurm), ..) => drive::run(orders),
        (None, Some(file), Some(number)) => task::run(orders, file, number),
        (None, Some(file), None) => plan::write(orders, file),
        (None, None, _) => return bench::bench(orders),
    };
    outcome.unwrap_or_else(|(code, error)| {
        complain(error);
        ExitCode::from(code)
    })
}
