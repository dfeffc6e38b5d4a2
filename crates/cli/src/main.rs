//! `carefree`: the command line.

mod args;
mod bench;
mod doctor;
mod kept;
mod out;
mod progress;
mod records;
mod sample;
mod targets;
mod terminal;
mod usage;

use std::process::ExitCode;

use args::Command;
use carefree_lab::fetch::CountingAllocator;

/// So that `fetch` can tell what a Rust program allocates.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    match args::parse() {
        Ok(Command::Bench(orders)) => bench::bench(&orders),
        Ok(Command::Report(orders)) => records::report(&orders),
        Ok(Command::Compare(orders)) => records::compare(&orders),
        Ok(Command::History(orders)) => records::history(&orders),
        Ok(Command::Doctor(orders)) => doctor::doctor(&orders),
        Ok(Command::Fibers) => doctor::try_fibers(),
        Ok(Command::Sample { orders }) => sample::sample(&orders),
        Err(code) => code,
    }
}

/// Exit codes, as other command-line tools have them.
mod exit {
    /// Something that was asked for could not be had; of `compare`, a figure got worse.
    pub(crate) const FAILED: u8 = 1;
    /// What was asked for makes no sense.
    pub(crate) const USAGE: u8 = 2;
    /// Broken off by Ctrl-C: 128 and the number of SIGINT.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Says on standard error, in one line, what went wrong.
fn complain(line: &str) {
    eprintln!("carefree: {line}");
}
