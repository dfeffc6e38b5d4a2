//! `carefree run`: what it says, and how what it runs ends.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use support::{run, stderr, stdout};

#[test]
fn a_program_ends_as_without() {
    let output = run(["run", "/bin/sh", "-c", "echo told; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(stdout(&output), "told\n");
}

#[test]
fn what_is_not_there_is_said() {
    let output = run(["run", "no-such-program-here"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert_eq!(stderr(&output), "carefree: no-such-program-here: no such program in PATH\n");
    let output = run(["run"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = run(["run", "--carriers", "0", "sh"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// The tests of the lab have the library built, so it may be there or not.
#[test]
fn the_doctor_says_what_becomes_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let denied = folder.path().join("java");
    fs::write(&denied, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&denied, fs::Permissions::from_mode(0o755)).unwrap();
    let denied = denied.to_str().unwrap();
    let output = run(["doctor", denied]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).starts_with(&format!("The threads of {denied} stay threads.\n")));
    assert!(stdout(&output).contains("Because the JVM waits"), "{output:?}");
    let output = run(["doctor", "--format", "json", "/bin/sh"]);
    let report: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    let fibers = report["become_fibers"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!fibers)), "{output:?}");
    let because = report["checks"][0]["reason"].as_str();
    assert_eq!(because.is_none(), fibers, "{output:?}");
    let output = run(["doctor", "no-such-program-here"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(stderr(&output), "carefree: no-such-program-here: no such program in PATH\n");
}

#[test]
fn a_program_whose_threads_stay_threads_is_run_unless_strict() {
    let folder = tempfile::tempdir().unwrap();
    let java = folder.path().join("java");
    fs::write(&java, "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(&java, fs::Permissions::from_mode(0o755)).unwrap();
    let java = java.to_str().unwrap();
    let output = run(["run", java]);
    assert_eq!(stdout(&output), "ran\n");
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(stderr(&output).contains("stay threads, because"), "{output:?}");
    let output = run(["run", "--strict", java]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("is not run, because"), "{output:?}");
}

/// The doctor has fibers itself, and says whose they are.
#[test]
fn a_program_with_fibers_of_its_own_is_told_of() {
    // Cargo does not build the library beside the program for these tests.
    let folder = Path::new(env!("CARGO_BIN_EXE_carefree")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "carefree-preload", "--target-dir"]);
    build.arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    let output = run(["run", "/proc/self/exe", "doctor"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("\nnote  thread-local storage: threads\n"), "{output:?}");
    assert!(stdout(&output).contains("the program runs under `carefree run`"), "{output:?}");
}
