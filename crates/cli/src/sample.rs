//! The hidden half of `bench`: the process that takes one sample.

use std::process::ExitCode;

use carefree_lab::sample;

use crate::{complain, exit};

/// Takes the sample that `trial` orders and prints the answer, one line of JSON.
pub(crate) fn sample(trial: &str) -> ExitCode {
    let trial = match serde_json::from_str(trial) {
        Ok(trial) => trial,
        Err(error) => {
            complain(&format!("these are not the orders of a sample: {error}"));
            return ExitCode::from(exit::USAGE);
        }
    };
    let answer = sample::take(&trial);
    match serde_json::to_string(&answer) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&format!("the sample could not be written: {error}"));
            ExitCode::from(exit::FAILED)
        }
    }
}
