//! The whole suite again, in every mode that the machine at hand would not choose.

use std::process::Command;

use crate::common::{in_forced_mode, text};

fn suite_with(variable: &str, value: &str) {
    if in_forced_mode() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "modes::"])
        .env("CAREFREE_TEST_FORCED", "1")
        .env(variable, value)
        .output()
        .unwrap();
    assert!(output.status.success(), "{variable}={value}:\n{}", text(&output));
    let ran = String::from_utf8_lossy(&output.stdout).contains("unpark_comes_first");
    assert!(ran, "the suite did not run:\n{}", text(&output));
}

#[test(seconds = 600)]
fn shared_thread_local_storage() {
    suite_with("CAREFREE_TLS", "shared");
}

#[test(seconds = 600)]
fn plain_fences() {
    suite_with("CAREFREE_MEMBARRIER", "off");
}

/// With every fiber that runs for a millisecond interrupted.
#[test(seconds = 600)]
fn watched_closely() {
    suite_with("CAREFREE_WATCH", "1");
}

#[test(seconds = 600)]
fn one_carrier() {
    suite_with("CAREFREE_CARRIERS", "1");
}

#[test(seconds = 600)]
fn thread_pointer_by_system_call() {
    suite_with("CAREFREE_FSGSBASE", "off");
}
