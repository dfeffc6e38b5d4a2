//! Command lines with mistakes: the message says what would be right, the exit code is 2, and
//! nothing is measured.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use support::{run, said, stderr, stdout};

/// What a refusal says, all of it.
fn complaint(arguments: &[&str]) -> String {
    let started = Instant::now();
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    // The default run takes minutes.
    assert!(started.elapsed() < Duration::from_secs(20), "{arguments:?} measured first");
    said(&output).trim_end().to_owned()
}

/// What clap says of words that make no sense: a line, and what would have been right.
fn misread(arguments: &[&str], right: &[&str]) {
    let said = complaint(arguments);
    assert!(said.starts_with("error: "), "{arguments:?}: {said}");
    for word in right {
        assert!(said.contains(word), "{arguments:?}, {word}: {said}");
    }
}

/// What we say of words that mean nothing here, in one line.
fn refused(arguments: &[&str]) -> String {
    let said = complaint(arguments);
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    said
}

#[test]
fn wrong_names_are_answered_with_the_right_ones() {
    let workloads = ["alloc", "switch", "warm", "throughput", "parked", "feed", "fetch", "serve"];
    misread(&["bench", "alloc", "swich"], &workloads);
    misread(&["bench", "--format", "xml"], &["text", "json", "markdown", "csv", "html", "svg"]);
    misread(
        &["history", "mine", "--format", "svg"],
        &["[possible values: text, markdown, csv, html]"],
    );
    let of_comparisons = "[possible values: text, json, markdown, csv, html]";
    misread(&["compare", "mine", "mine", "--format", "svg"], &[of_comparisons]);
    misread(&["bnch"], &["'bench'"]);
    misread(&["compare", "mine"], &["<NEW>"]);
    misread(&["bench", "--sample", "3"], &["'--samples'"]);
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
    for command in ["bench", "doctor"] {
        let folder = refused(&[command, "--targets", "/no/such/folder"]);
        assert_eq!(folder, "carefree: --targets /no/such/folder: there is no such folder");
    }
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
fn wrong_numbers_are_refused_by_their_option() {
    for wrong in ["0", "-3", "many", "1.5", "99999999999"] {
        misread(&["bench", "--samples", wrong], &["'--samples <N>'", wrong, "1..=10000"]);
    }
    for wrong in ["-3", "1e309", "NaN", "18446744073709551616"] {
        misread(&["bench", "--units", wrong], &[wrong, "is not in 1..=100000000"]);
        misread(&["bench", "feed", "--people", wrong], &[wrong, "is not in 1..=1000000"]);
    }
    for list in [",2", "1,,2", "1,", ""] {
        misread(
            &["bench", "feed", "--people", list],
            &["'--people <N,..>'", "a number is missing"],
        );
    }
    misread(&["bench", "serve", "--kind", "plain,"], &["'--kind", "a name is missing", "backend"]);
    for option in ["--runtime", "--unit"] {
        misread(&["bench", option, "ruby,,go"], &[option, "a name is missing"]);
    }
    misread(&["run", "--threads-for", "f,", "true"], &["--threads-for", "a name is missing"]);
    misread(&["bench", "--samples", "0"], &["1..=10000"]);
    misread(&["bench", "--units", "0"], &["1..=100000000"]);
    misread(&["bench", "--seed", "-1"], &["'--seed <S>'"]);
    misread(&["bench", "--samples"], &["a value is required for '--samples <N>'"]);
}

#[test]
fn an_option_that_no_workload_of_the_run_has_is_refused() {
    assert_eq!(
        refused(&["bench", "alloc", "--people", "3"]),
        "carefree: --people is an option of feed, and this run measures alloc: name it, as in \
         carefree bench feed --people"
    );
    let all = "alloc, switch, warm, throughput and parked";
    for (option, value, of) in [
        ("--full", None, "feed"),
        ("--people", Some("3"), "feed"),
        ("--nutrients", Some("3"), "feed"),
        ("--requests", Some("3"), "fetch"),
        ("--latency", Some("20"), "fetch"),
        ("--body", Some("3"), "fetch"),
        ("--encoding", Some("fixed"), "fetch"),
        ("--read-size", Some("0"), "fetch"),
        ("--rate", Some("5"), "serve"),
        ("--connections", Some("5"), "serve"),
        ("--idle", Some("5"), "serve"),
        ("--time", Some("50"), "serve"),
    ] {
        let arguments: Vec<&str> = ["bench", option].into_iter().chain(value).collect();
        let said = refused(&arguments);
        let start = format!("carefree: {option} is an option of {of}, and this run measures {all}");
        assert!(said.starts_with(&start), "{said}");
        let other = if of == "feed" { "fetch" } else { "feed" };
        let arguments: Vec<&str> = ["bench", other, option].into_iter().chain(value).collect();
        assert!(refused(&arguments).contains(&format!("measures {other}")), "{arguments:?}");
    }
    let said = refused(&["bench", "feed", "fetch", "--units", "5"]);
    assert!(said.starts_with("carefree: --units is no option of feed and fetch"), "{said}");
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

#[test]
fn each_command_says_of_itself_what_the_list_says() {
    let output = run(["--help"]);
    let help = stdout(&output);
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").take_while(|line| !line.is_empty());
    // (What is too long for a line goes on in the next.)
    let commands: Vec<_> = listed.filter_map(|line| line.trim().split_once("  ")).collect();
    assert_eq!(commands.len(), 7, "{help}");
    for (command, about) in commands {
        let own = run([command, "--help"]);
        assert!(stdout(&own).starts_with(about.trim()), "{command}: {own:?}");
    }
}

#[test]
fn what_cannot_be_written_ends_every_command_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (damaged, plan) = (at("damaged.jsonl"), at("plan.json"));
    let heading = "{\"type\":\"environment\",\"schema\":2,\"started\":\"2026-01-31T12:00:00Z\",\"cores\":2,\"cores_allowed\":2}\n";
    fs::write(&damaged, format!("{heading}garbage\n")).expect("written");
    let commands: [&[&str]; 9] = [
        &["report", "published"],
        &["history", "published"],
        &["compare", "published@3.2", "published@3.3"],
        &["records", "list", &damaged],
        &["records", "verify", &damaged],
        &["records", "repair", &damaged],
        &["doctor", "/bin/sh"],
        &["bench", "switch", "--runtime", "carefree", "--plan", &plan],
        &["bench", "switch", "--runtime", "carefree", "--quick", "--samples", "1"],
    ];
    for command in commands {
        let full = fs::File::options().write(true).open("/dev/full").expect("there");
        let output = support::carefree().args(command).stdout(full).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{command:?}: {output:?}");
        let expected = "carefree: cannot write to standard output: No space left on device";
        assert!(said(&output).starts_with(expected), "{command:?}: {output:?}");
    }
}
