//! A program that links this crate is watched and has its deadlocks explained, without a call of its own.
//!
//! Each case runs in a process of its own, started from this program's `main`: a deadlock is one of all
//! threads of a process.

use std::hint::black_box;
use std::process::{Command, ExitCode};

use carefree::{Builder, Runtime, metrics, park, spawn};

const CASE: &str = "CAREFREE_TEST_CASE";

/// A name, the program, the mode that it runs in, and what it reports.
type Case = (&'static str, fn(), &'static str, &'static str);

const CASES: &[Case] = &[
    ("a_fiber_computes", a_fiber_computes, "own", "'the computer' has run for"),
    ("one_of_another_runtime", one_of_another_runtime, "own", "'the computer' has run for"),
    ("one_in_a_forked_child", one_in_a_forked_child, "own", "'the computer' has run for"),
    ("a_deadlock", a_deadlock, "own", "'the waiter' is parked until"),
    ("a_deadlock", a_deadlock, "threads", "'the waiter' is parked until"),
    ("a_dump", a_dump, "own", "'the waiter' is parked until"),
    ("a_dump", a_dump, "threads", "'the waiter' is parked until"),
];

/// Keeps its carrier until the watchdog has reported it.
fn compute() {
    while metrics().reports == 0 {
        for n in 0..1000 {
            black_box(n);
        }
    }
}

fn computer() -> Builder {
    Builder::new().name("the computer".into())
}

fn a_fiber_computes() {
    computer().spawn(compute).unwrap().join().unwrap();
}

fn one_of_another_runtime() {
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| computer().spawn(compute).unwrap().join().unwrap());
}

fn one_in_a_forked_child() {
    spawn(|| ()).join().unwrap();
    // SAFETY: the child spawns a fiber and ends, as a child of a program with fibers may.
    let child = unsafe { libc::fork() };
    if child == 0 {
        a_fiber_computes();
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: `status` is written to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

fn a_deadlock() {
    Builder::new().name("the waiter".into()).spawn(park).unwrap().join().unwrap();
}

fn a_dump() {
    let _waiter = Builder::new().name("the waiter".into()).spawn(park).unwrap();
    while !carefree::dump().contains("'the waiter' is parked") {
        std::thread::yield_now();
    }
    carefree::dump_to(std::io::stderr()).unwrap();
    std::process::exit(0);
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let case = CASES.iter().find(|case| case.0 == name).expect("a case");
        // SAFETY: takes a number. A case that is not reported ends the process.
        unsafe { libc::alarm(120) };
        case.1();
        return ExitCode::SUCCESS;
    }
    for (name, _, mode, words) in CASES {
        let output = Command::new(std::env::current_exe().unwrap())
            .env(CASE, name)
            .env("CAREFREE_TLS", mode)
            .env("CAREFREE_WATCH", "10")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "{name} ({mode}): {}\n{said}", output.status);
        println!("test {name} ({mode}) ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed", CASES.len());
    ExitCode::SUCCESS
}
