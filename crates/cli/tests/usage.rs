//! Orders that make no sense: one clear line that names the right ones, exit code 2, and nothing
//! measured.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use support::{run, stderr, stdout};

fn refused(arguments: &[&str]) -> String {
    let started = Instant::now();
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    // The default run takes minutes.
    assert!(started.elapsed() < Duration::from_secs(20), "{arguments:?} measured first");
    said.trim_end().to_owned()
}

#[test]
fn wrong_names_are_answered_with_the_right_ones() {
    assert_eq!(
        refused(&["bench", "alloc", "swich"]),
        "carefree: there is no workload 'swich'; \
         the workloads are alloc, switch, warm, throughput, parked, feed and fetch"
    );
    assert_eq!(
        refused(&["bench", "--runtime", "rubby"]).split(" are").next(),
        Some("carefree: there is no runtime 'rubby'; the runtimes")
    );
    let units = refused(&["bench", "--unit", "fibre"]);
    assert!(units.starts_with("carefree: there is no unit 'fibre'; the units are"), "{units}");
    for unit in ["coroutine", "fiber", "thread", "goroutine"] {
        assert!(units.contains(unit), "{units}");
    }
    assert_eq!(
        refused(&["bench", "--with", "ruby"]),
        "carefree: --with takes a runtime and a program, as in ruby=/path/to/ruby, not 'ruby'"
    );
    assert_eq!(
        refused(&["bench", "--format", "xml"]),
        "carefree: there is no format 'xml'; the formats are text, json, markdown, csv, html and svg"
    );
    assert_eq!(
        refused(&["bnch"]),
        "carefree: there is no command 'bnch'; the commands are bench, report, compare, history and doctor"
    );
    assert_eq!(
        refused(&["compare", "mine"]),
        "carefree: <NEW> is missing; see carefree compare --help"
    );
    for command in ["bench", "doctor"] {
        let folder = refused(&[command, "--targets", "/no/such/folder"]);
        assert_eq!(folder, "carefree: --targets /no/such/folder: there is no such folder");
    }
    assert_eq!(
        refused(&["bench", "--sample", "3"]),
        "carefree: there is no --sample; did you mean --samples?"
    );
}

#[test]
fn a_folder_without_targets_is_told_before_measuring() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().display();
    let line = refused(&["bench", "--targets", &place.to_string()]);
    let none = "no folder in it has a target.toml; see docs/targets.md";
    assert_eq!(line, format!("carefree: --targets {place}: {none}"));
    std::fs::write(folder.path().join("target.toml"), "schema = 1\n").expect("written");
    let line = refused(&["doctor", "--targets", &place.to_string()]);
    let inside = "this is a target; name the folder that it is in";
    assert_eq!(line, format!("carefree: --targets {place}: {inside}"));
}

#[test]
fn records_that_cannot_be_kept_where_they_were_asked_for_are_told_before_measuring() {
    let line = refused(&["bench", "switch", "--runtime", "carefree", "--record", "/proc/nowhere"]);
    assert!(line.starts_with("carefree: records cannot be kept in /proc/nowhere: "), "{line}");
}

#[test]
fn wrong_numbers_are_answered_with_the_right_ones() {
    for wrong in ["0", "-3", "many", "1.5", "99999999999"] {
        assert_eq!(
            refused(&["bench", "--samples", wrong]),
            format!("carefree: --samples takes a number from 1 to 10,000, not '{wrong}'")
        );
    }
    for wrong in ["0", "-1", "x"] {
        assert_eq!(
            refused(&["bench", "--units", wrong]),
            format!("carefree: --units takes a number from 1 to 100,000,000, not '{wrong}'")
        );
    }
    assert_eq!(
        refused(&["bench", "--seed", "-1"]),
        "carefree: --seed takes a number from 0 to 18,446,744,073,709,551,615, not '-1'"
    );
    assert_eq!(refused(&["bench", "--samples"]), "carefree: --samples needs a value");
}

#[test]
fn an_unwritable_out_is_found_before_measuring() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("file"), "kept").expect("written");

    let line = refused(&["bench", "--out", &at("no/such.json")]);
    assert!(line.ends_with(&format!("there is no folder {}", at("no"))), "{line}");
    let line = refused(&["bench", "--out", &at("")]);
    assert!(line.ends_with("this is a folder; name a file in it"), "{line}");
    let line = refused(&["bench", "--out", &at("file/x.json")]);
    assert!(line.ends_with("not a directory"), "{line}");
    let line = refused(&["bench", "--out", "/proc/x.json"]);
    assert!(line.starts_with("carefree: --out /proc/x.json: "), "{line}");

    assert_eq!(fs::read_to_string(at("file")).expect("there"), "kept");
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
}

#[test]
fn help_and_version_are_no_mistakes() {
    let help = run(["bench", "--help"]);
    assert!(help.status.success());
    for word in ["alloc", "switch", "warm", "throughput", "parked", "--quick", "--out"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
    assert!(!stdout(&help).contains("__sample"));
    let version = run(["--version"]);
    assert_eq!(stdout(&version), format!("carefree {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn no_order_at_all_gets_the_help() {
    let output = run::<&str>([]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("Usage: carefree"), "{output:?}");
}
