//! `soak`: a mixed load for as many minutes as asked for. All contents are checked, and the process
//! must not grow.
//!
//! Every few seconds all loads stop and are joined; the process's files, threads, mappings and memory
//! are compared with those after the warm-up. A line says how far it is. The first problem ends it
//! with one line and status 1.
//!
//! It runs without malloc's per-thread caches: each idle stack keeps the cache of its last fiber,
//! these fill for hours, and what they hold looks like a leak.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use carefree_fuzz::soak::{Loads, Usage, children_are_gone};
use clap::Parser;

/// Runs a mixed load on fibers, checks what it carries, and that the process does not grow.
#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Fibers of each kind of load.
    #[arg(long, default_value_t = 16)]
    fibers: usize,
    /// Seconds from one look at the process to the next.
    #[arg(long, default_value_t = 5.0)]
    interval: f64,
    /// Seed of all that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Intervals in which the process may grow to its working size.
const WARM_UP: u32 = 2;

/// The variable that libc reads at the start of a program.
const TUNABLES: &str = "GLIBC_TUNABLES";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if std::env::var_os(TUNABLES).is_none() {
        let error = match std::env::current_exe() {
            Ok(program) => Command::new(program)
                .args(std::env::args_os().skip(1))
                .env(TUNABLES, "glibc.malloc.tcache_count=0")
                .exec(),
            Err(error) => error,
        };
        println!("soak: FAILED: it cannot begin anew without malloc's caches: {error}");
        return ExitCode::FAILURE;
    }
    let reactor = carefree::run(|| format!("{:?}", carefree::platform().reactor));
    println!("soaking over {reactor} for {} minutes", arguments.minutes);
    match soak(&arguments) {
        Ok(summary) => {
            println!("soak: all is well: {summary}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!("soak: FAILED: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn soak(arguments: &Arguments) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0);
    let begun = Instant::now();
    let loads = Loads::new(arguments.fibers, arguments.seed).map_err(|error| error.to_string())?;
    let mut least = None;
    let mut last = Usage::default();
    for interval in 1.. {
        let length = Duration::from_secs_f64(arguments.interval);
        loads.run(length)?;
        children_are_gone()?;
        let usage = Usage::now();
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        println!("{minutes:.1} min: {}; {usage}", loads.done());
        if interval > WARM_UP {
            // The least there was: what grows for a while and shrinks again is no leak.
            let first: &Usage = least.get_or_insert_with(|| usage.clone());
            usage.compare(first)?;
        }
        last = usage;
        if Instant::now() >= end && interval > WARM_UP {
            break;
        }
    }
    Ok(format!("{} in {:.1} minutes; {last}", loads.done(), begun.elapsed().as_secs_f64() / 60.0))
}
