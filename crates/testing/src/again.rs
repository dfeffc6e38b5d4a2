//! A test program that executes itself again: one test alone, or all tests in another mode.

use std::env;
use std::path::Path;
use std::process::{Command, Output};

/// Set in a process that runs one test alone.
const CHILD: &str = "CAREFREE_TEST_CHILD";
/// Set in a process that runs all tests in a forced mode.
const FORCED: &str = "CAREFREE_TEST_FORCED";

/// Whether this process was started by [`in_a_process`] for the calling test.
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs the test `name` (its path in this program) alone in a process of its own, where [`is_child`].
///
/// # Panics
/// If the program cannot be started.
pub fn in_a_process(name: &str, environment: &[(&str, &str)]) -> Output {
    in_a_process_of(&env::current_exe().unwrap(), name, environment)
}

/// As [`in_a_process`], of this program from another file.
///
/// # Panics
/// If the program cannot be started.
pub fn in_a_process_of(program: &Path, name: &str, environment: &[(&str, &str)]) -> Output {
    Command::new(program)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// Whether this process was started by [`in_mode`]: tests do less of the same then.
pub fn in_forced_mode() -> bool {
    env::var_os(FORCED).is_some()
}

/// Runs the tests of this program again in another process, but for those of its module `modes`, in a mode
/// that `environment` forces. `arguments` are for the test runner. Does nothing in such a process.
///
/// # Panics
/// If a test fails there, or if the test whose path ends in `one` does not run there: then none may have.
pub fn in_mode(environment: &[(&str, &str)], arguments: &[&str], one: &str) {
    if in_forced_mode() {
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--skip", "modes::"])
        .args(arguments)
        .env(FORCED, "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{environment:?}:\n{}", text(&output));
    let ran = String::from_utf8_lossy(&output.stdout).contains(&format!("{one} ... ok"));
    assert!(ran, "{environment:?}: {one} did not run:\n{}", text(&output));
}

/// What a process has printed, and how it has ended.
pub fn text(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{}{err}\n{}", String::from_utf8_lossy(&output.stdout), output.status)
}
