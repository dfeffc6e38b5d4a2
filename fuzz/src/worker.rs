//! The process that runs programs: in one mode, one program after the other.

use std::io::{self, BufRead as _, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lane::Lanes;
use crate::program::Program;
use crate::{crowd, sequence, storm, system, world};

/// A job for a worker, one line.
#[derive(Debug, Deserialize, Serialize)]
pub struct Job {
    pub program: Program,
    /// Milliseconds before a call is taken to wait.
    pub patience: u64,
    /// Seconds before the program is taken to hang.
    pub limit: u32,
}

/// The first line of a worker.
#[derive(Debug, Deserialize, Serialize)]
pub struct Hello {
    /// There is a file system that is soon full.
    pub small: bool,
}

/// The status of a worker whose program hangs.
pub const HANGS: i32 = 75;

/// Seconds that the running program has left.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Runs what standard input says, until that ends. Files are made beneath `directory`.
pub fn work(lanes: Lanes, directory: &Path) {
    let small = world::prepare(directory);
    storm::prepare();
    // SAFETY: it is ignored from now on, and has no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    thread::spawn(watch);
    say(&Hello { small });
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let job: Job = serde_json::from_str(&line).expect("a job");
        LEFT.store(job.limit, Ordering::Relaxed);
        let lines = panic::catch_unwind(AssertUnwindSafe(|| match job.program {
            Program::Sequence(sequence) => {
                sequence::run(sequence, lanes, Duration::from_millis(job.patience))
            }
            Program::Crowd(crowd) => crowd::run(&crowd, lanes),
        }));
        LEFT.store(0, Ordering::Relaxed);
        // The panic's message is on standard error; the state of this process cannot be relied on.
        let Ok(lines) = lines else { break };
        say(&lines);
    }
    world::clean();
}

fn say(value: &impl Serialize) {
    let mut text = serde_json::to_string(value).expect("it can be written");
    text.push('\n');
    io::stdout().write_all(text.as_bytes()).expect("the comparing process reads");
}

/// Ends the process when a program hangs, and says what waits for what.
fn watch() {
    storm::shelter();
    loop {
        thread::sleep(Duration::from_secs(1));
        let left = LEFT.load(Ordering::Relaxed);
        let next = left.saturating_sub(1);
        let taken = LEFT.compare_exchange(left, next, Ordering::Relaxed, Ordering::Relaxed);
        if left == 1 && taken.is_ok() {
            eprintln!("the program hangs\n{}{}", carefree::dump(), system::threads());
            world::clean();
            // SAFETY: it ends the process.
            unsafe { libc::_exit(HANGS) };
        }
    }
}
