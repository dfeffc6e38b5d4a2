//! A test that hangs ends its process, which says why: each case in a process of its own.

#[macro_use]
extern crate carefree_testing;

use std::alloc::{GlobalAlloc, Layout, System};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carefree_runtime::Builder;

const CHILD: &str = "CAREFREE_TEST_CHILD";

/// The system's, until it [`HANGS`].
struct Hanging;

static HANGS: AtomicBool = AtomicBool::new(false);

// SAFETY: the memory is the system allocator's.
unsafe impl GlobalAlloc for Hanging {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        while HANGS.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: `System` asks its callers for what this function asks of its own.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: all memory that `alloc` gives out is from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Hanging = Hanging;

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test `name` once more, in a process in which tests may take that long.
fn with_limit(name: &str, seconds: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env(CHILD, "1")
        .env(carefree_testing::LIMIT, seconds)
        // To print one takes longer than that.
        .env("RUST_BACKTRACE", "0")
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

/// What hangs is the end of the test's thread, or of the process: where a lock was left that these need.
#[test]
fn what_hangs_after_a_test_is_said() {
    /// Whose thread never ends.
    struct Endless;
    impl Drop for Endless {
        fn drop(&mut self) {
            loop {
                std::thread::park();
            }
        }
    }
    thread_local! { static ENDLESS: Endless = const { Endless }; }
    if is_child() {
        return ENDLESS.with(|_| ());
    }
    let output = with_limit("what_hangs_after_a_test_is_said", "2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("hanging::what_hangs_after_a_test_is_said has ended, but"), "{said}");
}

/// A test that hangs with the allocator's lock in hand is named, and ended in the end.
#[test]
fn a_test_that_hangs_in_the_allocator_is_named() {
    if is_child() {
        // The thread that looks after limits has begun by then, which takes memory.
        std::thread::sleep(Duration::from_secs(1));
        HANGS.store(true, Ordering::Relaxed);
        drop(Box::new(1));
        unreachable!("there is no memory to be had");
    }
    let output = with_limit("a_test_that_hangs_in_the_allocator_is_named", "2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGALRM), "{said}");
    assert!(said.contains("a_test_that_hangs_in_the_allocator_is_named hangs"), "{said}");
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
