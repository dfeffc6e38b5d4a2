//! The mode, the reason for it, and this whole suite with the other way to set the thread pointer.

use std::process::Command;

use carefree_context::tls::{self, Mode};

use crate::harness::{alone, child, emulated, layout, myself};

/// Keeps sanitizers from complaining about the test's runner.
const QUIET: [(&str, &str); 2] =
    [("ASAN_OPTIONS", "detect_leaks=0"), ("TSAN_OPTIONS", "report_bugs=0")];

const TEST: &str = "modes::the_mode_and_its_reason";
/// Makes the child ask for shared mode in code.
const ASK: &str = "CAREFREE_TEST_ASK_TO_SHARE";

/// Prints the mode when run alone; otherwise asks children in various environments.
#[test]
fn the_mode_and_its_reason() {
    if alone(TEST) {
        if std::env::var_os(ASK).is_some() {
            // SAFETY: this program runs no fiber.
            let shared = unsafe { tls::ask_to_share() };
            assert_eq!(shared, matches!(tls::mode(), Mode::Shared(_)));
        }
        match tls::mode() {
            Mode::Own(layout) => println!("\nown: {layout}"),
            Mode::Shared(reason) => println!("\nshared: {reason}"),
            Mode::Threads(reason) => println!("\nthreads: {reason}"),
        }
        return;
    }
    let expect = |variables: &[(&str, &str)], runner: &[&str], begin: &str, contain: &str| {
        let output = child(TEST, variables, runner);
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stdout}\n{stderr}");
        let modes = ["own: ", "shared: ", "threads: "];
        let line = stdout.lines().find(|line| modes.iter().any(|mode| line.starts_with(mode)));
        let line = line.unwrap_or_else(|| panic!("{stdout}\n{stderr}"));
        assert!(line.starts_with(begin) && line.contains(contain), "{variables:?}: {line}");
        line.to_owned()
    };
    expect(&[], &[], "own: ", "bytes a fiber");
    expect(&[("CAREFREE_TLS", "own")], &[], "own: ", "");
    expect(&[("CAREFREE_TLS", "shared")], &[], "shared: ", "CAREFREE_TLS=shared asks for it");
    expect(&[("CAREFREE_TLS", "threads")], &[], "threads: ", "CAREFREE_TLS=threads asks for it");
    expect(&[("CAREFREE_TLS", "owned")], &[], "threads: ", "CAREFREE_TLS=owned is none of");
    expect(&[(ASK, "1")], &[], "shared: ", "the program asks for it");
    // The user's setting overrides the program's.
    expect(&[(ASK, "1"), ("CAREFREE_TLS", "own")], &[], "own: ", "");
    expect(&[(ASK, "1"), ("CAREFREE_TLS", "threads")], &[], "threads: ", "CAREFREE_TLS=threads");
    // Rounding adds a little to the setting.
    for asked in [0, 100, 4096] {
        let value = asked.to_string();
        let line = expect(&[("CAREFREE_TLS_RESERVE", &value)], &[], "own: ", " in reserve");
        let (before, _) = line.split_once(" in reserve").unwrap();
        let reserve = before.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
        assert!((asked..asked + 128).contains(&reserve), "{line}");
    }
    expect(&[("CAREFREE_TLS_RESERVE", "much")], &[], "threads: ", "is not a number of bytes");
    expect(&[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")], &[], "own: ", "");
    expect(&[("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")], &[], "own: ", "");
    if emulated() {
        return println!("skipped: valgrind and sanitizers do not run in an emulator");
    }
    match Command::new("valgrind").arg("--version").output() {
        Ok(_) => {
            expect(&[("CAREFREE_TLS", "shared")], &["valgrind", "-q"], "shared: ", "asks for it");
            expect(&[], &["valgrind", "-q", "--error-exitcode=9"], "own: ", "bytes a fiber");
        }
        Err(_) => println!("skipped: valgrind is not installed"),
    }
    for (library, tool) in [("libasan.so", "AddressSanitizer"), ("libtsan.so", "ThreadSanitizer")] {
        match sanitizer(library) {
            Some(path) => {
                let variables = [("LD_PRELOAD", path.as_str()), QUIET[0], QUIET[1]];
                expect(&variables, &[], "threads: ", tool);
            }
            None => println!("skipped: {library} is not installed"),
        }
    }
}

/// The path of a sanitizer's library, from the C compiler.
fn sanitizer(library: &str) -> Option<String> {
    let output = Command::new("cc").arg(format!("-print-file-name={library}")).output().ok()?;
    let path = std::fs::canonicalize(String::from_utf8(output.stdout).ok()?.trim()).ok()?;
    Some(path.to_str()?.to_owned())
}

/// Runs everything again, with a cache of malloc's for each block.
#[test]
fn all_of_it_with_a_malloc_of_each_blocks_own() {
    if !layout().lends_malloc() {
        return;
    }
    if emulated() {
        return println!("skipped: an emulator is slow, and some of the suite does not run there");
    }
    let mut command = myself(&[]);
    let output =
        command.args(["--skip", "modes::"]).env("CAREFREE_MALLOC", "own").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(" passed"), "{text}");
}

/// Runs everything again, with the system call in place of `wrfsbase`.
#[test]
fn all_of_it_without_fsgsbase() {
    const VARIABLE: &str = "CAREFREE_TEST_NO_FSGSBASE";
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: only x86-64 has two ways to set the thread pointer");
    }
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let output = myself(&[]).args(["--skip", "modes::"]).env(VARIABLE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(" passed"), "{text}");
}
