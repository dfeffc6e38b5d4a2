//! A program without `insight`: a deadlock is found all the same, and reported in one line.
//!
//! It has a `main` of its own: any thread of a test harness could wake a fiber.

#![cfg_attr(loom, no_main)]
// Under loom there are models of the runtime's parts, and no runtime.
#![cfg(not(loom))]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use carefree_runtime::{metrics, park, run, spawn};

const CHILD: &str = "CAREFREE_TEST_CHILD";

fn main() {
    if std::env::var_os(CHILD).is_some() {
        run(|| ());
        assert_eq!(metrics().reports, 0);
        return spawn(park).join().unwrap();
    }
    for mode in ["own", "threads"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .env(CHILD, "1")
            .env("CAREFREE_TLS", mode)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{mode}: {said}");
        let line =
            "carefree: deadlock: every fiber waits, and no thread is left that could wake one\n";
        assert_eq!(said, line, "{mode}");
    }
    println!("\ntest result: ok. 1 passed; 0 failed");
}
