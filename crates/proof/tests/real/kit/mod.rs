//! Helpers of the tests.

pub(crate) mod folder;
pub(crate) mod http;

use std::process::Output;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longer than anything takes here even on a machine with other things to do.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Set by `modes` for the programs it runs: tests do less of the same then.
pub(crate) fn in_forced_mode() -> bool {
    std::env::var_os("CAREFREE_TEST_FORCED").is_some()
}

/// `all`, or a quarter of it in a forced mode.
pub(crate) fn many(all: usize) -> usize {
    if in_forced_mode() { all.div_ceil(4) } else { all }
}

/// Says that what the caller tests is not there.
pub(crate) fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// Runs `f` on a fiber, and fails if that takes too long: for what could hang.
pub(crate) fn on_a_fiber<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let fiber = carefree::spawn(move || {
        let value = f();
        // The receiver is gone when the test has failed.
        let _ = send.send(value);
    });
    match receive.recv_timeout(LONG) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(fiber.join().unwrap_err()),
    }
}

/// Asks again and again until `done`, letting other fibers run.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "waited too long until {what}");
        carefree::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn text(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{}{err}\n{}", String::from_utf8_lossy(&output.stdout), output.status)
}
