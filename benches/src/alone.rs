//! Carefree's child process: one sample of one workload, without the peers.
//!
//! A fiber has its own copy of the program's thread-local variables, so those of may, tokio and
//! Boost, linked into the program that compares, would be measured as Carefree's memory.

use carefree_benches::scale::Scale;
use carefree_benches::{child, ours};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = Scale::take(&mut arguments);
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [child::FLAG, workload, _] => child::serve(workload, Some(&ours::PEER), scale),
        _ => {
            eprintln!("this is run by `cargo bench -p carefree-benches`");
            ExitCode::from(2)
        }
    }
}
