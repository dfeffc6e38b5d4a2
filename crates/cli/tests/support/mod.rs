//! What the tests of the command line share.

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

/// The program under test.
pub(crate) fn carefree() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carefree"));
    // The environment of the tests may ask for colours, or for none.
    command.env_remove("NO_COLOR");
    // Other runtimes have tests of their own, and a home is where their managers keep them.
    let home = env!("CARGO_TARGET_TMPDIR");
    command.env("HOME", home).env_remove("XDG_CACHE_HOME");
    command.env("PATH", "").env_remove("CARGO_HOME").env_remove("JAVA_HOME");
    // Each run has its own records: what one has measured another must measure too.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    command.env("XDG_DATA_HOME", format!("{home}/data-{}-{number}", std::process::id()));
    command
}

/// Runs it to its end.
pub(crate) fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Output {
    carefree().args(arguments).output().expect("the program starts")
}

pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("text")
}

pub(crate) fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("text")
}

/// Standard error but for lines about other tests, and about time: each run ends what runs that were killed have left,
/// as some tests leave it, and says so; and on a busy machine a run tells how far it is.
#[allow(dead_code, reason = "not all of the tests' programs run the lab")]
pub(crate) fn said(output: &Output) -> String {
    const OTHERS: [&str; 4] = [
        "that a run which was killed had left",
        " so far: ",
        " took ",
        " have answered; waiting for ",
    ];
    let is_own = |line: &&str| !OTHERS.iter().any(|words| line.contains(words));
    stderr(output).split_inclusive('\n').filter(is_own).collect()
}
