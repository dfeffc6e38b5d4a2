//! The whole suite again, in every mode that the machine at hand would not choose.

use std::process::Command;

use crate::kit::{in_forced_mode, text};

/// Runs the tests that `which` names again, or all for none.
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

/// What keeps nothing of a caller's in thread-local variables while it waits. (parking_lot, rayon and
/// tokio do, and two fibers of a carrier have the same there: the documents say so.) And one test after
/// the other, for std's channels do too: there is one fiber to wait for one in each test, and it must
/// not meet those of others on its carrier.
#[test(seconds = 600)]
fn shared_thread_local_storage() {
    suite_with(
        &[("CAREFREE_TLS", "shared")],
        &["std::", "https::", "curl::", "sqlite::", "--test-threads=1"],
    );
}
