//! Tests that execute themselves once more.

use std::path::Path;
use std::process::{Command, Output};

const CHILD: &str = "CAREFREE_TEST_CHILD";

/// Set by `modes` for the programs that it runs.
pub(crate) fn is_in_forced_mode() -> bool {
    std::env::var_os("CAREFREE_TEST_FORCED").is_some()
}

/// Whether this process was started by [`in_a_process`] for the test that asks.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test `name` (its path in this program) once more, alone in a process of its own, where
/// [`is_child`].
pub(crate) fn in_a_process(name: &str, environment: &[(&str, &str)]) -> Output {
    in_a_process_of(&std::env::current_exe().unwrap(), name, environment)
}

/// As [`in_a_process`], of this program from another file.
pub(crate) fn in_a_process_of(program: &Path, name: &str, environment: &[(&str, &str)]) -> Output {
    Command::new(program)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{}{err}\n{}", String::from_utf8_lossy(&output.stdout), output.status)
}
