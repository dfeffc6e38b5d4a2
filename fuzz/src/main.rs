//! `carefree-fuzz`: see the crate's README.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io, thread};

use carefree_fuzz::compare::{Difference, FIBERS, Verdict, Workers, report};
use carefree_fuzz::generate::{Kind, draw};
use carefree_fuzz::lane::Lanes;
use carefree_fuzz::program::Program;
use carefree_fuzz::shrink::shrink;
use carefree_fuzz::worker;
use clap::{Parser, Subcommand, ValueEnum};

/// Runs programs of calls on threads and on fibers, and compares what comes out.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run programs for some minutes.
    Run {
        #[arg(long, default_value_t = 1.0)]
        minutes: f64,
        /// Of the first program; the next has the next. By default, one that is drawn.
        #[arg(long)]
        seed: Option<u64>,
        #[arg(long, value_enum, default_value_t = Which::Any)]
        kind: Which,
        /// Programs that run at the same time.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Stop after this many differences.
        #[arg(long, default_value_t = 1)]
        until: usize,
        /// Seconds to make a program simpler that differs.
        #[arg(long, default_value_t = 60)]
        shrink: u64,
    },
    /// Run the program of a seed, and make it simpler if it differs.
    Seed {
        seed: u64,
        #[arg(long, value_enum, default_value_t = Which::Any)]
        kind: Which,
        #[arg(long, default_value_t = 60)]
        shrink: u64,
    },
    /// Run a program that was kept.
    Program { file: PathBuf },
    #[command(hide = true)]
    Worker { lanes: String, directory: PathBuf },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    Any,
    Sequence,
    Crowd,
}

impl From<Which> for Kind {
    fn from(which: Which) -> Kind {
        match which {
            Which::Any => Kind::Any,
            Which::Sequence => Kind::Sequence,
            Which::Crowd => Kind::Crowd,
        }
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Worker { lanes, directory } => {
            let lanes = if lanes == "fibers" { Lanes::Fibers } else { Lanes::Threads };
            worker::work(lanes, &directory);
            return ExitCode::SUCCESS;
        }
        Command::Run { minutes, seed, kind, jobs, until, shrink } => {
            let time = Duration::from_secs_f64(minutes * 60.0);
            let first = seed.unwrap_or_else(fresh_seed);
            let shrink = Duration::from_secs(shrink);
            let search =
                Search { kind: kind.into(), first, time, jobs: jobs.max(1), until, shrink };
            search.run()
        }
        Command::Seed { seed, kind, shrink } => {
            replay(seed, kind.into(), Duration::from_secs(shrink))
        }
        Command::Program { file } => run_kept(&file),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("carefree-fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One that was not there before, small enough to be typed.
fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64 % 1_000_000_000_000)
}

fn workers() -> io::Result<Workers> {
    Workers::new(&std::env::current_exe()?)
}

fn option(kind: Kind) -> &'static str {
    match kind {
        Kind::Any => "",
        Kind::Sequence => " --kind sequence",
        Kind::Crowd => " --kind crowd",
    }
}

/// A search for differences.
#[derive(Debug)]
struct Search {
    kind: Kind,
    first: u64,
    time: Duration,
    jobs: usize,
    until: usize,
    shrink: Duration,
}

/// What it has found.
#[derive(Debug, Default)]
struct Found {
    programs: AtomicU64,
    once: AtomicU64,
    known: Mutex<Vec<&'static str>>,
    differences: Mutex<usize>,
    enough: AtomicBool,
    full: AtomicBool,
}

impl Search {
    fn run(&self) -> io::Result<bool> {
        println!("the first seed is {} (--seed {}{})", self.first, self.first, option(self.kind));
        let found = Found::default();
        let begun = Instant::now();
        let next = AtomicU64::new(self.first);
        let done: Vec<io::Result<()>> = thread::scope(|scope| {
            let jobs: Vec<_> = (0..self.jobs)
                .map(|job| {
                    let (found, next) = (&found, &next);
                    scope.spawn(move || self.search(job, begun, next, found))
                })
                .collect();
            jobs.into_iter().map(|job| job.join().expect("no panic")).collect()
        });
        done.into_iter().collect::<io::Result<()>>()?;
        let mut known = found.known.into_inner().expect("no panic");
        known.sort_unstable();
        let differences = found.differences.into_inner().expect("no panic");
        println!(
            "{} programs in {} s: {differences} differ, {} differed once and then no more, {} differ as is known",
            found.programs.load(Ordering::Relaxed),
            begun.elapsed().as_secs(),
            found.once.load(Ordering::Relaxed),
            known.len(),
        );
        for group in known.chunk_by(|one, other| one == other) {
            println!("  known: {} ({} times)", group[0], group.len());
        }
        if !found.full.load(Ordering::Relaxed) {
            println!("skipped: full file systems, which this process may not mount");
        }
        Ok(differences == 0)
    }

    fn search(
        &self,
        job: usize,
        begun: Instant,
        next: &AtomicU64,
        found: &Found,
    ) -> io::Result<()> {
        let mut workers = workers()?;
        let modes = FIBERS[job % FIBERS.len()];
        while begun.elapsed() < self.time && !found.enough.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let program = draw(seed, self.kind);
            let verdict = workers.compare(&program, &modes);
            let number = found.programs.fetch_add(1, Ordering::Relaxed) + 1;
            if number % 1000 == 0 {
                println!("{number} programs in {} s", begun.elapsed().as_secs());
            }
            match verdict {
                Verdict::Same => {}
                Verdict::Endless => println!("seed {seed} does not end on threads either"),
                Verdict::Known(known) => found.known.lock().expect("no panic").push(known.what),
                Verdict::Once(difference) => {
                    found.once.fetch_add(1, Ordering::Relaxed);
                    println!("seed {seed} differed once:\n{}", report(&program, &difference));
                }
                Verdict::Differs(difference) => {
                    let (program, difference) =
                        shrink(&mut workers, program, *difference, self.shrink);
                    say(seed, number, self.kind, &program, &difference)?;
                    let mut differences = found.differences.lock().expect("no panic");
                    *differences += 1;
                    if *differences >= self.until {
                        found.enough.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        found.full.fetch_or(workers.small, Ordering::Relaxed);
        Ok(())
    }
}

/// Prints a difference, and keeps its program.
fn say(
    seed: u64,
    number: u64,
    kind: Kind,
    program: &Program,
    found: &Difference,
) -> io::Result<()> {
    let directory = Path::new("target/fuzz");
    fs::create_dir_all(directory)?;
    let file = directory.join(format!("{seed}.json"));
    fs::write(&file, serde_json::to_string_pretty(program)?)?;
    println!(
        "\ncarefree-fuzz: fibers differ from threads: seed {seed}, program {number}, over {}\n{}\n  \
         again: cargo run -p carefree-fuzz -- seed {seed}{}\n  as above: cargo run -p carefree-fuzz -- program {}\n",
        found.mode.name,
        report(program, found),
        option(kind),
        file.display(),
    );
    Ok(())
}

fn replay(seed: u64, kind: Kind, time: Duration) -> io::Result<bool> {
    let mut workers = workers()?;
    let program = draw(seed, kind);
    let verdict = workers.compare(&program, FIBERS.as_flattened());
    if let Verdict::Differs(difference) = verdict {
        let (program, difference) = shrink(&mut workers, program, *difference, time);
        say(seed, 1, kind, &program, &difference)?;
        return Ok(false);
    }
    Ok(judge(&program, &verdict))
}

fn run_kept(file: &Path) -> io::Result<bool> {
    let program: Program = serde_json::from_str(&fs::read_to_string(file)?)?;
    let verdict = workers()?.compare(&program, FIBERS.as_flattened());
    Ok(judge(&program, &verdict))
}

/// Prints a verdict; whether all is well.
fn judge(program: &Program, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Same => println!("threads and fibers agree"),
        Verdict::Endless => println!("it does not end on threads either"),
        Verdict::Known(known) => {
            println!("they differ as is known: {}: {}", known.what, known.reason)
        }
        Verdict::Once(difference) => {
            println!("they differed once:\n{}", report(program, difference))
        }
        Verdict::Differs(difference) => {
            println!(
                "they differ, over {}:\n{}",
                difference.mode.name,
                report(program, difference)
            );
            return false;
        }
    }
    true
}
