//! The hidden half of `bench`: the process that takes one sample.

use std::process::ExitCode;

use carefree_workloads::answer::Answer;
use carefree_workloads::own;

use crate::{complain, exit};

/// Takes the sample that is ordered and prints the answer, one line of JSON.
pub(crate) fn sample(orders: &[String]) -> ExitCode {
    let answer = own::take(orders);
    match serde_json::to_string(&answer) {
        Ok(line) => {
            println!("{line}");
            match answer {
                Answer::Sample(_) => ExitCode::SUCCESS,
                Answer::Failure(_) => ExitCode::from(exit::FAILED),
            }
        }
        Err(error) => {
            complain(format_args!("the sample could not be written: {error}"));
            ExitCode::from(exit::FAILED)
        }
    }
}
