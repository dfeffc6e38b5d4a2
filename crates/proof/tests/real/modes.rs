//! The whole suite again, in modes that this machine does not choose by itself.

use std::process::Command;

use crate::kit::{in_forced_mode, text};

/// Runs the tests named by `which` again, or all if it is empty.
fn suite_with(environment: &[(&str, &str)], which: &[&str]) {
    if in_forced_mode() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "modes::"])
        .args(which)
        .env("CAREFREE_TEST_FORCED", "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{environment:?}:\n{}", text(&output));
    let ran = String::from_utf8_lossy(&output.stdout).contains("connections_echo");
    assert!(ran, "the suite did not run:\n{}", text(&output));
}

#[test(seconds = 600)]
fn over_epoll() {
    suite_with(&[("CAREFREE_REACTOR", "epoll")], &[]);
}

/// Runs the tests of code that keeps no state of a waiting caller in thread-local variables, as
/// parking_lot, rayon and tokio do: in this mode, all fibers of a carrier share these variables. std's
/// channels do so too, so the tests run one after the other: in each test only one fiber waits for a
/// channel, and it must not share a carrier with those of other tests.
#[test(seconds = 600)]
fn shared_thread_local_storage() {
    suite_with(
        &[("CAREFREE_TLS", "shared")],
        &["std::", "https::", "curl::", "sqlite::", "--test-threads=1"],
    );
}
