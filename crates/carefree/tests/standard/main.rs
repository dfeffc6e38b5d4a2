//! `carefree` beside `std::thread`: what compiles with one compiles with the other, and does the
//! same.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod calls;
mod modes;
mod names;
mod parking;
mod pthread;
mod traits;

use std::process::Command;

const CHILD: &str = "CAREFREE_TEST_CHILD";

/// What a test of this program prints to standard error, run in a process of its own.
fn child(test: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Whether fibers have thread-local storage of their own, without which std knows carriers only.
fn own() -> bool {
    matches!(carefree::platform().tls, carefree::TlsMode::Own)
}
