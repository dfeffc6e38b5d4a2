//! All of this again, in every mode that the machine at hand would not choose.

use std::env;
use std::process::Command;

const FORCED: &str = "CAREFREE_TEST_FORCED";

fn again_with(variables: &[(&str, &str)]) {
    if env::var_os(FORCED).is_some() {
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--skip", "modes::"])
        .env(FORCED, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variables:?}:\n{text}{complaints}");
    assert!(text.contains("records_through_one_file ... ok"), "nothing ran:\n{text}");
}

#[test(seconds = 600)]
fn over_epoll() {
    again_with(&[("CAREFREE_REACTOR", "epoll")]);
}

#[test(seconds = 600)]
fn on_one_carrier() {
    again_with(&[("CAREFREE_CARRIERS", "1")]);
}
