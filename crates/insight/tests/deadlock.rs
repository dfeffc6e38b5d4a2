//! Deadlocks are reported, and what is none is not.
//!
//! Whether a process is in a deadlock depends on all of its threads, so each case runs in a process
//! of its own, started from this program's `main`, all at the same time: most of them wait. Each runs
//! on fibers, and on threads in place of them.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use carefree_runtime::{
    Builder, JoinHandle, Runtime, Semaphore, current, offload, park, park_timeout, run, scope,
    sleep, spawn, timeout,
};

const CASE: &str = "CAREFREE_TEST_CASE";

/// What a case must end with.
enum End {
    /// An abort, and these words on standard error.
    Report(&'static [&'static str]),
    /// Success, and a report that stops nothing.
    Suspicion(&'static [&'static str]),
    /// Success, and nothing said.
    Silence,
}
use End::{Report, Silence, Suspicion};

const DEADLOCK: &str = "carefree: deadlock: every fiber waits";

/// Name, what it does, how it must end.
const CASES: &[(&str, fn(), End)] = &[
    ("a_join", a_join, Report(&[DEADLOCK, "'the waiter' is parked until", "waits for another"])),
    ("a_circle", a_circle, Report(&[DEADLOCK, "'first' waits for", "'second' waits for"])),
    ("a_scope", a_scope, Report(&[DEADLOCK, "waits for the fibers of its scope", "is parked"])),
    ("a_semaphore", a_semaphore, Report(&[DEADLOCK, "waits for a permit", "is parked"])),
    ("a_limit", a_limit, Report(&[DEADLOCK, "waits until fewer fibers of its scope run"])),
    ("a_timer_taken_back", a_timer_taken_back, Report(&[DEADLOCK, "'the waiter' is parked"])),
    ("a_runtime_dropped", a_runtime_dropped, Report(&[DEADLOCK, "is parked"])),
    ("two_threads", two_threads, Report(&[DEADLOCK, "'one'", "'other'"])),
    ("many", many, Report(&[DEADLOCK, "… and 20"])),
    ("a_thread_asleep_in_std", a_thread_asleep_in_std, Silence),
    ("a_thread_asleep_here", a_thread_asleep_here, Silence),
    ("a_join_under_a_limit", a_join_under_a_limit, Silence),
    ("a_sleeper", a_sleeper, Silence),
    ("one_that_computes", one_that_computes, Silence),
    ("an_offloaded_call", an_offloaded_call, Silence),
    ("after_offloaded_calls", after_offloaded_calls, Report(&[DEADLOCK, "'the waiter' is parked"])),
    ("no_thread_waits", no_thread_waits, Silence),
    ("a_foreign_thread", a_foreign_thread, Suspicion(&["unless another thread wakes one"])),
];

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name.into()).spawn(f).unwrap()
}

fn a_join() {
    named("the waiter", park).join().unwrap();
}

/// A deadline of a wait that was over long before is nothing to wait for.
fn a_timer_taken_back() {
    let handle = named("the waiter", || {
        park_timeout(Duration::from_secs(3600));
        park();
    });
    thread::sleep(Duration::from_millis(50));
    handle.thread().unpark();
    handle.join().unwrap();
}

fn a_circle() {
    let slot = Arc::new(std::sync::Mutex::new(None::<JoinHandle<()>>));
    let theirs = slot.clone();
    let first = named("first", move || {
        park();
        let other = theirs.lock().unwrap().take().unwrap();
        other.join().unwrap();
    });
    let fiber = first.thread().clone();
    let second = named("second", move || first.join().unwrap());
    *slot.lock().unwrap() = Some(second);
    fiber.unpark();
    named("third", park).join().unwrap();
}

fn a_scope() {
    scope(|s| {
        s.spawn(park);
    });
}

fn a_semaphore() {
    let permits = Semaphore::new(1);
    let kept = permits.acquire();
    drop(spawn(park));
    drop(permits.acquire());
    drop(kept);
}

/// A child that spawns another in a scope that is full with itself.
fn a_limit() {
    run(|| {
        scope(|s| {
            s.limit(1);
            s.spawn(|| {
                s.spawn(|| ());
            });
        });
    });
}

fn a_runtime_dropped() {
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    drop(runtime.spawn(park));
    drop(runtime);
}

fn two_threads() {
    let one = thread::spawn(|| named("one", park).join().unwrap());
    named("other", park).join().unwrap();
    one.join().unwrap();
}

fn many() {
    // A hundred are named: the thread that waits is one of 120.
    let handles: Vec<_> = (0..119).map(|_| spawn(park)).collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

const LONGER_THAN_A_LOOK: Duration = Duration::from_millis(3300);

fn a_thread_asleep_in_std() {
    let handle = spawn(park);
    let fiber = handle.thread().clone();
    let wakes = thread::spawn(move || {
        thread::sleep(LONGER_THAN_A_LOOK);
        fiber.unpark();
    });
    handle.join().unwrap();
    wakes.join().unwrap();
}

fn a_thread_asleep_here() {
    let handle = spawn(park);
    let fiber = handle.thread().clone();
    let wakes = thread::spawn(move || {
        sleep(LONGER_THAN_A_LOOK);
        fiber.unpark();
    });
    handle.join().unwrap();
    wakes.join().unwrap();
}

fn a_join_under_a_limit() {
    let handle = spawn(park);
    let fiber = handle.thread().clone();
    assert!(timeout(LONGER_THAN_A_LOOK, || handle.join().is_err()).is_err());
    fiber.unpark();
}

fn a_sleeper() {
    let handle = spawn(park);
    let fiber = handle.thread().clone();
    drop(spawn(move || {
        sleep(LONGER_THAN_A_LOOK);
        fiber.unpark();
    }));
    handle.join().unwrap();
}

fn one_that_computes() {
    let handle = spawn(park);
    let fiber = handle.thread().clone();
    drop(spawn(move || {
        // Blocks its carrier, as a computation would.
        thread::sleep(LONGER_THAN_A_LOOK);
        fiber.unpark();
    }));
    handle.join().unwrap();
}

/// A call on another thread ends some time, and its fiber goes on then.
fn an_offloaded_call() {
    let handle = spawn(park);
    let fiber = handle.thread().clone();
    drop(spawn(move || {
        offload(|| thread::sleep(LONGER_THAN_A_LOOK));
        fiber.unpark();
    }));
    handle.join().unwrap();
}

/// Threads that have made such calls wake no fiber.
fn after_offloaded_calls() {
    for _ in 0..3 {
        run(|| offload(|| ()));
    }
    named("the waiter", park).join().unwrap();
}

/// Fibers that are left to themselves may wait for as long as they like.
fn no_thread_waits() {
    drop(spawn(park));
    thread::sleep(LONGER_THAN_A_LOOK);
}

fn a_foreign_thread() {
    let handle = spawn(park);
    let fiber = handle.thread().clone();
    let wakes = thread::spawn(move || {
        thread::sleep(Duration::from_secs(20));
        fiber.unpark();
    });
    handle.join().unwrap();
    wakes.join().unwrap();
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let case = CASES.iter().find(|case| case.0 == name).expect("a case");
        carefree_insight::register();
        assert_eq!(current().name(), Some("main"));
        case.1();
        return ExitCode::SUCCESS;
    }
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for mode in ["own", "threads"] {
            for (name, _, end) in CASES {
                let passed = &passed;
                scope.spawn(move || {
                    check(name, mode, end);
                    passed.fetch_add(1, Ordering::Relaxed);
                });
            }
        }
    });
    let passed = passed.load(Ordering::Relaxed);
    println!("\ntest result: ok. {passed} passed; 0 failed");
    ExitCode::SUCCESS
}

fn check(name: &str, mode: &str, end: &End) {
    let child = Command::new(std::env::current_exe().unwrap())
        .env(CASE, name)
        .env("CAREFREE_TLS", mode)
        // It is there, and says nothing of the cases that block a carrier on purpose.
        .env("CAREFREE_WATCH", "60000")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let signal = output.status.signal();
    let (aborts, words): (bool, &[&str]) = match end {
        Report(words) => (true, words),
        Suspicion(words) => (false, words),
        Silence => (false, &[]),
    };
    let right = match aborts {
        true => signal == Some(libc::SIGABRT),
        false => output.status.success(),
    };
    assert!(right, "{name} ({mode}): {}\n{said}", output.status);
    for word in words {
        assert!(said.contains(word), "{name} ({mode}) does not say {word:?}:\n{said}");
    }
    assert!(!words.is_empty() || said.is_empty(), "{name} ({mode}) says:\n{said}");
    println!("test {name} ({mode}) ... ok");
}
