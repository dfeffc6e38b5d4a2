//! All of this again, in every mode that the machine at hand would not choose.

use std::env;
use std::process::Command;

const FORCED: &str = "CAREFREE_TEST_FORCED";

fn again_with(variables: &[(&str, &str)]) {
    again(&[], variables);
}

/// Runs all of it again with these arguments for the test runner.
fn again(arguments: &[&str], variables: &[(&str, &str)]) {
    if env::var_os(FORCED).is_some() {
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--skip", "modes::"])
        .args(arguments)
        .env(FORCED, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variables:?}:\n{text}{complaints}");
    assert!(text.contains("echo_at_once ... ok"), "nothing ran:\n{text}");
}

#[test(seconds = 600)]
fn over_epoll() {
    again_with(&[("CAREFREE_REACTOR", "epoll")]);
}

#[test(seconds = 600)]
fn on_one_carrier() {
    again_with(&[("CAREFREE_CARRIERS", "1")]);
}

#[test(seconds = 600)]
fn with_shared_thread_local_storage_over_epoll() {
    again_with(&[("CAREFREE_TLS", "shared"), ("CAREFREE_REACTOR", "epoll")]);
}

/// There the calls are libc's own: what programs do with them works, and neither cancellation nor
/// `close` reaches into them.
#[test(seconds = 600)]
fn with_threads_in_place_of_fibers() {
    const FAMILIES: &[&str] =
        &["sockets::", "nonblocking::", "names::", "forking::", "pointers::", "start::"];
    const ABOUT_FIBERS_ALONE: &[&str] =
        &["cancellation", "a_timeout_reaches", "closing_ends", "an_interrupted"];
    let skipped = ABOUT_FIBERS_ALONE.iter().flat_map(|name| ["--skip", name]);
    let arguments: Vec<_> = FAMILIES.iter().copied().chain(skipped).collect();
    again(&arguments, &[("CAREFREE_TLS", "threads")]);
}
