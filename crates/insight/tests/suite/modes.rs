//! The suite again, in modes in which the runtime does other things than by default on this machine.

use std::process::Command;

use crate::common::{is_in_forced_mode, text};

fn suite_with(variable: &str, value: &str) {
    if is_in_forced_mode() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "modes::"])
        .env("CAREFREE_TEST_FORCED", "1")
        .env(variable, value)
        .output()
        .unwrap();
    assert!(output.status.success(), "{variable}={value}:\n{}", text(&output));
    let ran = String::from_utf8_lossy(&output.stdout).contains("a_fiber_that_computes_is_reported");
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

#[test(seconds = 600)]
fn one_carrier() {
    suite_with("CAREFREE_CARRIERS", "1");
}

#[test(seconds = 600)]
fn thread_pointer_by_system_call() {
    suite_with("CAREFREE_FSGSBASE", "off");
}
