//! Tests that end the process run in a child: the test program again, with one test only.

use std::process::Command;

/// A command that runs this program again, under the emulator that runs this one if there is any:
/// `CAREFREE_TEST_RUNNER` in the environment says which, with its arguments.
pub(crate) fn this_program() -> Command {
    let program = std::env::current_exe().expect("the program has a path");
    let runner = std::env::var("CAREFREE_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    match words.next() {
        None => Command::new(program),
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.args(words).arg(program);
            command
        }
    }
}
