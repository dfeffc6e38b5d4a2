//! What the environment asks for is done, and said.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::process::Command;

use carefree::{TlsMode, platform, run, spawn, yield_now};

const CHILD: &str = "CAREFREE_TEST_CHILD";

/// What a process says of its platform after fibers have run in it.
fn with(variable: &str, value: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["the_child", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env(variable, value)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn the_child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    // Asked first: the answer must not depend on whether fibers have run.
    let before = format!("{:?}", platform());
    let sum = run(|| {
        let handles: Vec<_> = (0..20)
            .map(|n| {
                spawn(move || {
                    yield_now();
                    n
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum::<usize>()
    });
    assert_eq!(sum, 190);
    assert_eq!(before, format!("{:?}", platform()));
    println!("{before}");
}

#[test]
fn the_environment_is_obeyed() {
    assert!(with("CAREFREE_FSGSBASE", "off").contains("fsgsbase: false"));
    assert!(with("CAREFREE_TLS", "shared").contains("tls: Shared"));
    assert!(with("CAREFREE_TLS", "threads").contains("tls: Threads"));
    assert!(with("CAREFREE_GUARDS", "mprotect").contains("guards: Mprotect"));
}

#[test]
fn modes_are_explained() {
    let platform = platform();
    assert!(!platform.tls_reason.is_empty() && !platform.guards_reason.is_empty());
    assert_eq!(platform.tls != TlsMode::Own, platform.tls_bytes == 0);
}
