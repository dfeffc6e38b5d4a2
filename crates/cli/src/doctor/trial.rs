//! Runs fibers to see whether they work, in a process of its own: a crash there is a finding.

use std::cell::Cell;
use std::env;
use std::process::{self, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use carefree::TlsMode;

use crate::{complain, exit};

/// How long fibers may take to show that they work.
const PATIENCE: Duration = Duration::from_secs(20);

const FIBERS: u64 = 1_000;

thread_local! {
    static MINE: Cell<u64> = const { Cell::new(0) };
}

/// Runs fibers in another process, and says what they did, or why they could not.
pub(super) fn in_a_process_of_its_own() -> Result<String> {
    let program = env::current_exe().context("cannot tell where this program is")?;
    let output = process::Command::new(program)
        .arg("__fibers")
        .output()
        .context("the process that tries them could not be started")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let said = complaint.lines().map(str::trim).find(|line| !line.is_empty());
    match said {
        Some(line) => bail!("{}", line.strip_prefix("carefree: ").unwrap_or(line)),
        None => bail!("the process that tried them ended with {}", output.status),
    }
}

/// Runs fibers in this process.
pub(crate) fn try_fibers() -> ExitCode {
    // A hang is a finding too, and a thread of the kernel's can tell even when no fiber can.
    thread::spawn(|| {
        thread::sleep(PATIENCE);
        complain(format_args!("they did not come to an end within {} s", PATIENCE.as_secs()));
        process::exit(i32::from(exit::FAILED));
    });
    let tried = carefree::Builder::new().spawn(spawn_yield_join);
    match tried.map_err(Error::new).and_then(|fiber| {
        fiber.join().unwrap_or_else(|_| bail!("the fiber that starts the others panicked"))
    }) {
        Ok(what) => {
            println!("{what}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            complain(why);
            ExitCode::from(exit::FAILED)
        }
    }
}

fn spawn_yield_join() -> Result<String> {
    let fibers = (0..FIBERS)
        .map(|number| {
            carefree::Builder::new().spawn(move || {
                MINE.with(|mine| mine.set(number));
                carefree::yield_now();
                carefree::sleep(Duration::from_millis(1));
                MINE.with(Cell::get)
            })
        })
        .collect::<std::io::Result<Vec<_>>>()
        .context("a fiber could not be started")?;
    let kept: Vec<u64> = fibers
        .into_iter()
        .map(|fiber| fiber.join().map_err(|_| anyhow!("a fiber panicked")))
        .collect::<Result<_>>()?;
    let own = carefree::platform().tls != TlsMode::Shared;
    if own && !kept.into_iter().eq(0..FIBERS) {
        bail!("fibers found each other's values in their thread-local storage");
    }
    if carefree::platform().tls == TlsMode::Threads {
        return Ok("1,000 threads in place of fibers yielded, slept and were joined".into());
    }
    let carriers = carefree::metrics().carriers;
    let carriers = if carriers == 1 { "1 carrier".into() } else { format!("{carriers} carriers") };
    Ok(format!("1,000 fibers yielded, slept and were joined, on {carriers}"))
}
