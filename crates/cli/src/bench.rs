//! `carefree bench`.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carefree_lab::env::Environment;
use carefree_lab::plan::Plan;
use carefree_lab::record::Record;
use carefree_lab::report::{self, Format};
use carefree_lab::run::Runner;
use carefree_lab::sample::Trial;
use carefree_lab::unit::Unit;
use carefree_lab::workload::{Size, Workload};

use crate::args::Bench;
use crate::out::Out;
use crate::progress::{Bar, spoken};
use crate::{complain, exit, terminal};

/// One sample may take this long. The slowest of the defaults takes seconds.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn bench(orders: &Bench) -> ExitCode {
    match measure(orders) {
        Ok(code) => code,
        Err((code, line)) => {
            complain(&line);
            ExitCode::from(code)
        }
    }
}

fn measure(orders: &Bench) -> Result<ExitCode, (u8, String)> {
    let usage = |line| (exit::USAGE, line);
    let failed = |line| (exit::FAILED, line);
    let format = orders
        .format
        .or_else(|| orders.out.as_deref().and_then(Format::of_file))
        .unwrap_or(Format::Text);
    let out = orders.out.as_deref().map(Out::check).transpose().map_err(usage)?;
    let program = env::current_exe()
        .map_err(|error| failed(format!("cannot tell where this program is: {error}")))?;
    let interrupted = catch_interrupts().map_err(failed)?;

    let plan = plan(orders);
    let trials = plan.trials();
    let environment = Environment::capture();
    let bar = Bar::new(trials.len());
    let started = Instant::now();
    let outcome = Runner {
        command: &|trial: &Trial| {
            let mut command = process::Command::new(&program);
            // Plain data with string keys always has a JSON form.
            command.arg("__sample").arg(serde_json::to_string(trial).expect("plain data"));
            command
        },
        interrupted: &interrupted,
        patience: PATIENCE,
        progress: &mut |progress| bar.show(progress),
    }
    .run(&trials);
    let record = Record::of_plan(environment, &plan, outcome);

    let interrupted = record.run.interrupted;
    if interrupted && record.results.is_empty() {
        return Err((exit::INTERRUPTED, "broken off before the first sample".into()));
    }
    match out {
        Some(out) => {
            out.write(&report::render(&record, format, false)).map_err(failed)?;
            let path = orders.out.as_deref().map(|path| path.display().to_string());
            eprintln!(
                "carefree: {} samples in {}, written to {}",
                record.samples.len(),
                spoken(started.elapsed()),
                path.unwrap_or_default()
            );
        }
        None => {
            let text = report::render(&record, format, terminal::wants_colour());
            terminal::print(&text).map_err(failed)?;
        }
    }
    // In the other formats, or in a file, failures are easily overlooked.
    if orders.out.is_some() || format != Format::Text {
        for failure in &record.failures {
            complain(&format!("{}: {}", failure.subject.spoken(), failure.message));
        }
    }
    Ok(if interrupted {
        ExitCode::from(exit::INTERRUPTED)
    } else if record.is_complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

fn plan(orders: &Bench) -> Plan {
    Plan {
        workloads: each_once(&orders.workloads, &Workload::ALL),
        units: each_once(&orders.unit, &Unit::ALL),
        // Odd: the median is then a sample, and the median rate one over the median time.
        samples: orders.samples.unwrap_or(if orders.quick { 5 } else { 11 }),
        size: if orders.quick { Size::Quick } else { Size::Full },
        crowd: orders.units,
        pin: orders.pin,
        seed: orders.seed.unwrap_or_else(chance),
    }
}

/// Those of `all` that were named, or all where none was.
fn each_once<T: Copy + PartialEq>(named: &[T], all: &[T]) -> Vec<T> {
    all.iter().copied().filter(|item| named.is_empty() || named.contains(item)).collect()
}

/// A seed nobody chose. Six digits are enough to be different each time, and can be typed again.
fn chance() -> u64 {
    // The standard library draws its hash keys from the system's randomness.
    RandomState::new().build_hasher().finish() % 1_000_000
}

/// Has Ctrl-C end the run and not the program; a second one ends the program.
fn catch_interrupts() -> Result<Arc<AtomicBool>, String> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            process::exit(i32::from(exit::INTERRUPTED));
        }
    })
    .map_err(|error| format!("cannot catch Ctrl-C: {error}"))?;
    Ok(interrupted)
}
