//! Short questions to programs: which version are you, are you there.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{process, sys};

/// How long output may stay open after its program has ended.
const HELD_OPEN: Duration = Duration::from_millis(500);

/// How seldom it is looked at while it has not ended.
const LOOK_UP: Duration = Duration::from_millis(20);

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
    let name = command.get_program().to_string_lossy().into_owned();
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
    let status = process::await_end(LOOK_UP, || match child.try_wait() {
        Ok(None) if started.elapsed() >= patience => {
            sys::end_group(child.id());
            let _ = child.wait();
            bail!("{name} did not answer within {} s", patience.as_secs())
        }
        seen => seen.with_context(|| format!("{name} was lost")),
    })?;
    // A process it left behind may hold its output open.
    let text = |from: Receiver<String>| from.recv_timeout(HELD_OPEN).unwrap_or_default();
    Ok(Reply { status, stdout: text(stdout), stderr: text(stderr) })
}
