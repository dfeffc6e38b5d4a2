//! `carefree`: the command line.

mod args;
mod bench;
mod doctor;
mod files;
mod fleet;
mod kept;
mod mistyped;
mod out;
mod progress;
mod records;
mod run;
mod sample;
mod shortfall;
mod targets;
mod terminal;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use args::{Cli, Command};
use carefree_lab::{printable, watcher};
use carefree_workloads::fetch::CountingAllocator;
use clap::Parser;

/// Lets `fetch` count what a Rust program allocates.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Bench(orders) => fleet::bench(&orders),
        Command::Report(orders) => records::report(&orders),
        Command::Compare(orders) => records::compare(&orders),
        Command::History(orders) => records::history(&orders),
        Command::Records(orders) => files::records(&orders),
        Command::Doctor(orders) => doctor::doctor(&orders),
        Command::Run(orders) => run::run(&orders),
        Command::Fibers => doctor::try_fibers(),
        Command::Sample { orders } => sample::sample(&orders),
        Command::Watch { containers, mark } => {
            watcher::watch(&mark, containers);
            ExitCode::SUCCESS
        }
    }
}

/// Exit codes, as other command-line tools have them.
mod exit {
    /// Something that was asked for could not be had; of `compare`, a figure got worse.
    pub(crate) const FAILED: u8 = 1;
    /// What was asked for makes no sense, or what it has given cannot be written.
    pub(crate) const USAGE: u8 = 2;
    /// The engine that is to run the tasks is not here, or refuses.
    pub(crate) const ENGINE: u8 = 3;
    /// Broken off by Ctrl-C: 128 and the number of SIGINT.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Says on standard error, in one line, what went wrong.
fn complain(what: impl std::fmt::Display) {
    // What others have said may have orders to the terminal in it.
    let what = format!("{what:#}");
    let line = printable::line(&what);
    // (Where that cannot be written, there is nothing else to say it to.)
    let _ = writeln!(std::io::stderr(), "carefree: {line}");
}
