//! Measuring in a fresh process: the benchmark runs itself again.

use crate::peer::Peer;
use crate::scale::Scale;
use crate::workload::WORKLOADS;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};

/// The argument that makes the benchmark a child, before the workload's and the peer's name.
pub const FLAG: &str = "--child";

/// Seconds a child may take. Some peers neither fail nor end when they run out of stacks.
const LIMIT: u32 = 120;

/// What a child's answer begins with, since the peer measured may print too.
const ANSWER: &str = "figures:";

/// Runs `workload` for `peer` in a new process of `program` with `environment` added, and returns its figures.
///
/// # Errors
/// What the child said last, when it did not end well or printed no figures.
pub fn measure(
    program: &OsStr,
    workload: &str,
    peer: &str,
    scale: Scale,
    environment: &[(&str, &str)],
) -> io::Result<Vec<f64>> {
    let output = Command::new(program)
        .args([FLAG, workload, peer])
        .args(scale.flags())
        .envs(environment.iter().copied())
        // The reason for a crash should be one line.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.lines().find_map(|line| line.strip_prefix(ANSWER));
    match figures.map(|line| line.split_whitespace().map(str::parse).collect()) {
        Some(Ok(figures)) if output.status.success() => Ok(figures),
        _ if output.status.signal() == Some(libc::SIGALRM) => {
            Err(io::Error::other(format!("did not end within {LIMIT} s")))
        }
        _ => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let telling = |line: &&str| !line.trim().is_empty() && !line.starts_with("note:");
            let last = complaint.lines().rev().find(telling);
            Err(io::Error::other(match last {
                Some(line) => line.trim().to_owned(),
                None => output.status.to_string(),
            }))
        }
    }
}

/// Takes one sample of `workload` for the peer whose process this is, prints it for the parent, or
/// says on standard error what went wrong. The core has been chosen by the parent.
pub fn serve(workload: &str, peer: Option<&Peer>, scale: Scale) -> ExitCode {
    // SAFETY: alarm takes a number; SIGALRM has no handler, so it ends the process.
    unsafe { libc::alarm(LIMIT) };
    let workload = WORKLOADS.iter().find(|each| each.name == workload);
    let figures = match (workload, peer) {
        (Some(workload), Some(peer)) => (workload.sample)(peer, scale),
        _ => None,
    };
    match figures {
        Some(Ok(figures)) => {
            let figures: Vec<String> = figures.iter().map(f64::to_string).collect();
            println!("{ANSWER} {}", figures.join(" "));
            ExitCode::SUCCESS
        }
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("this peer has no such workload");
            ExitCode::FAILURE
        }
    }
}
