//! Short questions to programs: which version are you, are you there.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{leftovers, printable, process, sys};

/// How long output may stay open after its program has ended.
const HELD_OPEN: Duration = Duration::from_millis(500);

/// How seldom it is looked at while it has not ended.
const LOOK_UP: Duration = Duration::from_millis(20);

/// What a program has answered that was asked for its version: that, and where it says it is; or why
/// it has none.
pub(super) type Version = std::result::Result<(String, Option<PathBuf>), String>;

/// What a program answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end.
///
/// # Errors
/// One line: it could not be started, or did not end in time.
pub(crate) fn ask(command: &mut Command, patience: Duration) -> Result<Reply> {
    ask_until(command, patience, &AtomicBool::new(false))
}

/// Runs a command to its end, or until the flag is set.
///
/// # Errors
/// One line: it could not be started, did not end in time, or was broken off.
pub(crate) fn ask_until(
    command: &mut Command,
    patience: Duration,
    interrupted: &AtomicBool,
) -> Result<Reply> {
    let name = command.get_program().to_string_lossy().into_owned();
    // A build takes minutes, and the lab may be killed meanwhile.
    leftovers::sign(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("{name} could not be started"))?;
    let stdout = process::collect(child.stdout.take(), usize::MAX);
    let stderr = process::collect(child.stderr.take(), usize::MAX);
    let started = Instant::now();
    process::await_end(LOOK_UP, || match sys::has_ended(child.id()) {
        false if started.elapsed() >= patience => {
            sys::end_group(child.id());
            let _ = child.wait();
            bail!("{name} did not answer within {} s", patience.as_secs())
        }
        false if interrupted.load(Ordering::Relaxed) => {
            sys::end_group(child.id());
            let _ = child.wait();
            bail!("{name} was broken off")
        }
        false => Ok(None),
        true => Ok(Some(())),
    })?;
    let text = |from: &Receiver<String>| from.recv_timeout(HELD_OPEN).ok();
    let mut said = [&stdout, &stderr].map(text);
    if said.contains(&None) {
        // A process that it has left behind holds its output open.
        sys::end_group(child.id());
        let again = [&stdout, &stderr].map(text);
        for (first, again) in said.iter_mut().zip(again) {
            *first = first.take().or(again);
        }
    }
    let status = child.wait().with_context(|| format!("{name} was lost"))?;
    let [stdout, stderr] = said.map(|text| printable::lines(&text.unwrap_or_default()));
    Ok(Reply { status, stdout, stderr })
}
