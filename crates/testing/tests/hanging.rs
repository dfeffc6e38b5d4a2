//! A test that hangs ends its process, which says why: each case in a process of its own.

#[macro_use]
extern crate carefree_testing;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::Duration;

use carefree_runtime::Builder;

const CHILD: &str = "CAREFREE_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test `name` once more, in a process in which tests may take that long.
fn with_limit(name: &str, seconds: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env(CHILD, "1")
        .env(carefree_testing::LIMIT, seconds)
        .output()
        .unwrap()
}

#[test]
fn it_is_said_and_the_process_ends() {
    if is_child() {
        let stuck = Builder::new().name("the stuck one".into()).spawn(carefree_runtime::park);
        // Left alone, it would keep this process's output open for as long as its readers wait.
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        stuck.unwrap().join().unwrap();
        sleeper.wait().unwrap();
        unreachable!("no unpark comes");
    }
    let output = with_limit("it_is_said_and_the_process_ends", "2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    for part in [
        "hanging::it_is_said_and_the_process_ends hangs",
        "'the stuck one' is parked until something unparks it",
        "waits for another fiber to end",
        "runtime: ",
        ": sleep 1000",
        "  thread ",
        "stacks of process ",
    ] {
        assert!(said.contains(part), "{part:?} is missing:\n{said}");
    }
}

/// The slot of a test that has ended is free for the next one, which has its full time.
#[test(seconds = 300)]
fn tests_that_end_or_panic_are_over() {
    if is_child() {
        for _ in 0..100 {
            carefree_testing::within_limit(&"one that ends", 0, || ());
            let panicked = std::panic::catch_unwind(|| {
                carefree_testing::within_limit(&"one that panics", 0, || panic!("on purpose"))
            });
            panicked.unwrap_err();
        }
        // Longer than those might have taken; this one may take longer.
        return std::thread::sleep(Duration::from_millis(2500));
    }
    let output = with_limit("tests_that_end_or_panic_are_over", "1");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A test may name a limit of its own.
#[test(seconds = 1000)]
#[should_panic(expected = "on purpose")]
fn other_attributes_stay() {
    panic!("on purpose");
}
