//! The whole program again, in every mode that the machine at hand would not choose.

use std::process::Command;

use crate::common::{in_forced_mode, text};

fn again_with(variable: &str, value: &str) {
    again(&[], variable, value);
}

/// Runs the tests that `which` names again, or all for none.
fn again(which: &[&str], variable: &str, value: &str) {
    if in_forced_mode() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "modes::"])
        .args(which)
        .env("CAREFREE_TEST_FORCED", "1")
        .env(variable, value)
        .output()
        .unwrap();
    assert!(output.status.success(), "{variable}={value}:\n{}", text(&output));
    let ran = String::from_utf8_lossy(&output.stdout).contains("one_at_a_time");
    assert!(ran, "nothing ran:\n{}", text(&output));
}

#[test(seconds = 600)]
fn shared_thread_local_storage() {
    again_with("CAREFREE_TLS", "shared");
}

/// The locks of std and of crates. (The other tests compare what our locks answer with what libc's do,
/// and there they are libc's.)
#[test(seconds = 600)]
fn threads_in_place_of_fibers() {
    again(&["standard::", "crates::"], "CAREFREE_TLS", "threads");
}

#[test(seconds = 600)]
fn one_carrier() {
    again_with("CAREFREE_CARRIERS", "1");
}
