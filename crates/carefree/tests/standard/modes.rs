//! All of this again, in modes that the machine at hand would not choose.

use std::env;
use std::process::Command;

const FORCED: &str = "CAREFREE_TEST_FORCED";

fn again_with(variable: &str, value: &str) {
    if env::var_os(FORCED).is_some() {
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--skip", "modes::", "--test-threads", "1"])
        .env(FORCED, "1")
        .env(variable, value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variable}={value}:\n{text}{complaints}");
    assert!(text.contains("a_program_sees_the_same ... ok"), "nothing ran:\n{text}");
}

#[test]
fn over_epoll() {
    again_with("CAREFREE_REACTOR", "epoll");
}

#[test]
fn on_one_carrier() {
    again_with("CAREFREE_CARRIERS", "1");
}

#[test]
fn with_shared_thread_local_storage() {
    again_with("CAREFREE_TLS", "shared");
}
