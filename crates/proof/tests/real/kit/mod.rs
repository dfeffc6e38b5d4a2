//! Helpers of the tests.

pub(crate) mod folder;
pub(crate) mod http;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

pub(crate) use carefree_testing::again::is_child;
use carefree_testing::again::{self, in_forced_mode, text};

/// Longer than anything takes here, even on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// `all`, or a quarter of it in a forced mode.
pub(crate) fn many(all: usize) -> usize {
    if in_forced_mode() { all.div_ceil(4) } else { all }
}

/// Reports that what the caller tests is not available.
pub(crate) fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// Runs `f` on a fiber, and fails if it seems to hang.
pub(crate) fn on_a_fiber<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let fiber = carefree::spawn(move || {
        let value = f();
        // The receiver is dropped when the test has failed.
        let _ = send.send(value);
    });
    match receive.recv_timeout(LONG) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(fiber.join().unwrap_err()),
    }
}

/// Repeats `done` until it returns true, letting other fibers run.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "waited too long until {what}");
        carefree::sleep(Duration::from_millis(1));
    }
}

/// Does `work` until it has taken less than its parts do one after the other, a few times at most: other work on the
/// machine may delay all of it.
pub(crate) fn together(one_after_the_other: Duration, mut work: impl FnMut()) {
    let took = || {
        let begun = Instant::now();
        work();
        begun.elapsed()
    };
    let took = std::iter::repeat_with(took).take(5);
    let late: Vec<_> = took.take_while(|&took| took >= one_after_the_other).collect();
    assert!(late.len() < 5, "one after the other: {late:?}");
}

/// A small random number generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Runs the test `name` (its path in this program) alone in another process, where [`is_child`] is
/// true; fails if that fails.
pub(crate) fn in_a_process(name: &str) {
    // malloc's caches for each thread or fiber would look like a leak, as would the symbols that the watchdog
    // caches when it makes a report.
    let environment =
        [("CAREFREE_WATCH", "off"), ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")];
    let output = again::in_a_process(name, &environment);
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{name}:\n{}", text(&output));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}
