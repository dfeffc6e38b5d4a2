//! Runs a test that ends its process in a child: the test program again, with one test only.

use std::process::Command;

/// A command that runs this program again, under the emulator that `CAREFREE_TEST_RUNNER` names
/// with its arguments, if it is set.
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
