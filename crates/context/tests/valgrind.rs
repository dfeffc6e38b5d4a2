//! Stacks under valgrind: this program runs itself under it.

use std::process::Command;

use carefree_context::stack::{StackPool, StackSize};

/// Set in the program that runs under valgrind.
const CHILD: &str = "CAREFREE_TEST_UNDER_VALGRIND";

/// valgrind's search for leaks reads all memory that it takes for readable, and reports how much
/// was not.
#[test]
fn guards_are_known() {
    if std::env::var_os(CHILD).is_some() {
        let stacks = StackPool::global();
        let held: Vec<_> = (0..8).map(|_| stacks.acquire(StackSize::default()).unwrap()).collect();
        // The stacks still exist when the search is made.
        std::mem::forget(held);
        return;
    }
    if std::env::var_os("CAREFREE_TEST_RUNNER").is_some() {
        return println!("skipped: valgrind does not run in an emulator");
    }
    if cfg!(target_feature = "crt-static") {
        return println!("skipped: valgrind does not see what a static program allocates");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("skipped: valgrind is not installed");
    }
    let output = Command::new("valgrind")
        .args(["-v", "--leak-check=summary"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "guards_are_known", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("LEAK SUMMARY"), "no search was made: {said}");
    assert!(!said.contains("due to read errors"), "{said}");
}
