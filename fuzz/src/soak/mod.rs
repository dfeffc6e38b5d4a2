//! The soak: loads that run side by side, and the resources of the process meanwhile.

mod loads;
mod usage;
mod workspace;

use std::fmt;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::system;
use workspace::Workspace;

pub use usage::{Usage, children_are_gone};

/// How long loads may go on after they were told to stop.
const GRACE: Duration = Duration::from_secs(60);
/// Time between two dumps of loads that do not stop.
const LATER: Duration = Duration::from_secs(3);

/// One turn of a load, or what is wrong.
type Turn = fn(&Workspace, &mut fastrand::Rng) -> Result<(), String>;

/// The loads: each with its name, how many times fewer fibers have it, and one turn of it.
const ALL: &[(&str, usize, Turn)] = &[
    ("files", 1, loads::files),
    ("appended files", 4, loads::appended),
    ("pipes", 1, loads::pipes),
    ("connections", 1, loads::connections),
    ("timers", 1, loads::timers),
    ("spawns", 2, loads::spawns),
    ("timeouts", 1, loads::timeouts),
    ("cancels", 2, loads::cancels),
    ("channels", 2, loads::channels),
    ("offloads", 4, loads::offloads),
    ("processes", 8, loads::processes),
];

/// Loads, and how often each was done.
#[derive(Debug)]
pub struct Loads {
    fibers: usize,
    seed: AtomicU64,
    space: Workspace,
    done: Vec<AtomicU64>,
    problem: Mutex<Option<String>>,
}

impl Loads {
    /// Loads of `fibers` fibers each.
    ///
    /// # Errors
    /// When there is no place for files.
    pub fn new(fibers: usize, seed: u64) -> io::Result<Loads> {
        Ok(Loads {
            fibers,
            seed: AtomicU64::new(seed),
            space: Workspace::new()?,
            done: ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            problem: Mutex::new(None),
        })
    }

    /// Runs all loads for `length`, and until their last turns have ended.
    ///
    /// # Errors
    /// Says the first thing that was wrong.
    pub fn run(&self, length: Duration) -> Result<(), String> {
        let begun = Instant::now();
        thread::scope(|scope| {
            let fibers = scope.spawn(|| carefree::run(|| self.all(begun + length)));
            while !fibers.is_finished() {
                thread::sleep(Duration::from_millis(20));
                if begun.elapsed() > length + GRACE {
                    println!("soak: FAILED: it does not come to rest\n{}", self.state());
                    // Loads that have gone on by then are slow, and do not hang.
                    thread::sleep(LATER);
                    println!("{} s later\n{}", LATER.as_secs(), self.state());
                    std::process::exit(1);
                }
            }
        });
        match self.problem.lock().unwrap().take() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    fn all(&self, end: Instant) {
        carefree::scope(|scope| {
            for (kind, (name, fewer, turn)) in ALL.iter().enumerate() {
                for _ in 0..(self.fibers / fewer).max(1) {
                    let seed = self.seed.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(move || self.turns(kind, name, *turn, seed, end));
                }
            }
        });
    }

    fn turns(&self, kind: usize, name: &str, turn: Turn, seed: u64, end: Instant) {
        let mut random = fastrand::Rng::with_seed(seed);
        while Instant::now() < end && self.problem.lock().unwrap().is_none() {
            if let Err(problem) = turn(&self.space, &mut random) {
                let problem = format!("{name} (seed {seed}): {problem}");
                self.problem.lock().unwrap().get_or_insert(problem);
                return;
            }
            self.done[kind].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was done and what all fibers and threads do just now, in words.
    fn state(&self) -> String {
        format!("{}\n{}{}", self.done(), carefree::dump(), system::threads())
    }

    /// What was done, in words.
    pub fn done(&self) -> impl fmt::Display {
        let counts = ALL.iter().zip(&self.done).map(|((name, ..), done)| {
            let done = done.load(Ordering::Relaxed);
            format!("{done} {name}")
        });
        let carried = self.space.mebibytes();
        format!("{}, {carried} MiB compared", counts.collect::<Vec<_>>().join(", "))
    }
}
