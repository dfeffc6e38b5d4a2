//! `carefree report`, `compare` and `history`, on records made for the purpose.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use support::{carefree, run, stderr, stdout};

/// A record of one figure, with the samples of a machine with so many cores.
fn record(folder: &Path, name: &str, version: &str, cores: u32, samples: &[f64]) -> String {
    let sample = |(position, value): (usize, &f64)| {
        format!(
            r#"{{"type":"sample","runtime":"ruby","version":"{version}","unit":"thread","workload":"alloc","parameters":{{"switches":2,"units":10000}},"run":"2026-01-31T12:00:00Z {name}","position":{position},"pin":null,"program":"p","figures":{{"time_per_unit":{value}}}}}"#
        )
    };
    let samples: Vec<String> = samples.iter().enumerate().map(sample).collect();
    let path = folder.join(name);
    let text = format!(
        "{}\n{}\n{}\n",
        format_args!(
            r#"{{"type":"environment","schema":2,"started":"2026-01-31T12:00:00Z {name}","cpu":"Example 9000","cores":{cores},"cores_allowed":{cores},"memory":8589934592}}"#
        ),
        r#"{"type":"run","seed":1,"samples":7,"quick":false,"pinned":false,"interrupted":false,"load":{"others":0.0,"steal":0.0}}"#,
        samples.join("\n")
    );
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

const CALM: [f64; 7] = [18_100.0, 18_000.0, 18_300.0, 18_050.0, 18_200.0, 17_900.0, 18_150.0];

fn slower(factor: f64) -> Vec<f64> {
    CALM.iter().map(|value| value * factor).collect()
}

fn compare(old: &str, new: &str, more: &[&str]) -> Output {
    run(["compare", old, new].iter().chain(more))
}

#[test]
fn a_regression_is_named_and_ends_with_its_own_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = record(folder.path(), "old.jsonl", "3.2", 2, &CALM);
    let new = record(folder.path(), "new.jsonl", "3.3", 2, &slower(3.6));
    let output = compare(&old, &new, &[]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("3.6x slower") && text.contains("ruby 3.2 → 3.3"), "{text}");

    let output = compare(&old, &new, &["--fail-on-regression", "10"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("ruby 3.3 thread alloc time per unit: 3.6x slower"));
    // A pipeline is told as well, by what it reads.
    let junit = folder.path().join("compare.xml").display().to_string();
    let told = format!("junit={junit}");
    let gate = ["--fail-on-regression", "10", "--annotate", "github", "--annotate", &told];
    let output = compare(&old, &new, &gate);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("::error title=ruby 3.3 thread alloc time per unit"), "{said}");
    let xml = fs::read_to_string(&junit).expect("written");
    assert!(xml.contains("tests=\"1\" failures=\"1\"") && xml.contains("3.6x slower"), "{xml}");
    let output = compare(&old, &new, &["--annotate", "github"]);
    assert_eq!(output.status.code(), Some(2), "there is nothing to annotate: {output:?}");

    for (old, new, percent) in [(&old, &new, "400"), (&new, &old, "0")] {
        let output = compare(old, new, &["--fail-on-regression", percent]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    // The same samples on both sides, as a run has them that used the other's again.
    let output = compare(&old, &old, &["--fail-on-regression", "0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = stdout(&compare(&old, &old, &[])).to_owned();
    assert!(text.contains("1 figure rests on samples that stand on both sides"), "{text}");
}

#[test]
fn two_versions_of_one_record_are_compared() {
    let output = compare("published@3.2", "published@3.3", &[]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("ruby 3.2 → 3.3") && text.contains("(3.6x slower)"), "{text}");
    assert!(!text.contains("ruby 3.4") && !text.contains("ruby 2"), "{text}");
    let most = "the largest change is ruby 3.2 → 3.3 thread warm, last time per unit: 6.5x slower";
    assert!(text.contains(most), "{text}");
    let output = compare("published@3.2", "published@9", &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = stderr(&output);
    assert!(
        said.starts_with("carefree: published has no version and no build '9'; it has "),
        "{said}"
    );

    // Two builds of one version.
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "1.jsonl", "3.5.0 (base)", 2, &CALM);
    record(folder.path(), "2.jsonl", "3.5.0 (patch)", 2, &slower(0.5));
    let at = |build: &str| format!("{}@{build}", folder.path().display());
    let output = compare(&at("base"), &at("patch"), &["--fail-on-regression", "5"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("2.0x faster"), "{}", stdout(&output));
    let output = compare(&at("patch"), &at("base"), &["--fail-on-regression", "5"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let page = folder.path().join("page.html").display().to_string();
    let output = compare(&at("base"), &at("patch"), &["--out", &page]);
    assert!(output.status.success(), "{output:?}");
    let html = fs::read_to_string(&page).expect("written");
    assert!(html.contains("<h1>Old and New</h1>") && html.contains("2.0x faster"), "{html}");
}

#[test]
fn too_few_samples_to_show_anything_are_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = record(folder.path(), "old.jsonl", "3.2", 2, &CALM[..3]);
    let new = record(folder.path(), "new.jsonl", "3.2", 2, &slower(9.0)[..3]);
    let text = stdout(&compare(&old, &new, &[])).to_owned();
    assert!(text.contains("None of these could have shown one"), "{text}");
    // A check that can never fail is none.
    for (old, new) in [(&*old, &*new), ("published", "published")] {
        let output = compare(old, new, &["--fail-on-regression", "5"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).ends_with("there is nothing to judge\n"), "{output:?}");
    }
    let enough = record(folder.path(), "enough.jsonl", "3.2", 2, &CALM);
    let text = stdout(&compare(&enough, &enough, &[])).to_owned();
    assert!(!text.contains("could have shown"), "{text}");
}

#[test]
fn where_nothing_changed_no_difference_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = record(folder.path(), "old.jsonl", "3.2", 2, &CALM);
    let new = record(folder.path(), "new.jsonl", "3.2", 2, &slower(1.002));
    for format in ["text", "markdown", "csv", "json"] {
        let output = compare(&old, &new, &["--format", format]);
        assert!(output.status.success(), "{output:?}");
        assert!(stdout(&output).contains("no difference shown"), "{format}: {}", stdout(&output));
    }
    let output = compare(&old, &new, &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert_eq!(json["pairs"][0]["verdict"], "no difference shown");
}

#[test]
fn machines_that_differ_are_told_and_not_judged() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = record(folder.path(), "old.jsonl", "3.2", 2, &CALM);
    let new = record(folder.path(), "new.jsonl", "3.2", 16, &slower(2.0));
    assert!(
        stdout(&compare(&old, &new, &[]))
            .contains("different machines (cores: 2 and 16; cores in use: 2 and 16)")
    );
    let output = compare(&old, &new, &["--fail-on-regression", "5"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("--across-machines"), "{output:?}");
    let output = compare(&old, &new, &["--fail-on-regression", "5", "--across-machines"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn published_figures_and_ones_own_have_names() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "one.jsonl", "3.3.8", 2, &slower(3.0));
    let mine = folder.path().display().to_string();
    let output = compare("published", "mine", &["--record", &mine]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("ruby 3.3 → 3.3.8") && text.contains("65.1 µs"), "{text}");
    assert!(text.contains("1 figure untested"), "{text}");
}

#[test]
fn history_names_the_step() {
    let output = run(["history", "published"]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("ruby: thread allocation 3.6x slower from 3.2 to 3.3"), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let one = record(folder.path(), "one.jsonl", "3.2", 2, &CALM);
    let two = record(folder.path(), "two.jsonl", "3.3", 2, &slower(3.6));
    let output = run(["history", &two, &one, "--format", "markdown"]);
    let step = "thread allocation 3.6x slower from 3.2 to 3.3 (18.10 µs to 65.16 µs)";
    assert!(stdout(&output).contains(step), "{}", stdout(&output));
    assert!(stdout(&run(["history", &one])).contains("No figure was measured twice"));
    let output = run(["history", &two, &one, "--format", "html"]);
    assert!(stdout(&output).contains("<h1>What changed, and when</h1>"), "{output:?}");
    assert!(stdout(&output).contains(step), "{output:?}");
}

#[test]
fn a_record_is_shown_in_every_format_and_kept_where_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = record(folder.path(), "one.jsonl", "3.3", 2, &CALM);
    for (format, sign) in [
        ("text", "Performance Summary"),
        ("markdown", "### Performance Summary"),
        ("csv", "runtime,version"),
        ("json", r#"{"type":"environment""#),
        ("html", "<!DOCTYPE html>"),
    ] {
        let output = run(["report", &one, "--format", format]);
        assert!(output.status.success(), "{output:?}");
        assert!(stdout(&output).contains(sign), "{format}: {}", stdout(&output));
    }
    let page = folder.path().join("page.html").display().to_string();
    let output = run(["report", &one, "--out", &page]);
    assert!(output.status.success() && stdout(&output).is_empty(), "{output:?}");
    assert!(fs::read_to_string(&page).expect("written").starts_with("<!DOCTYPE html>"));
}

/// Damages a record: a line of zeros, as a file system leaves them that has lost a block.
fn damage(path: &str, line: usize) {
    let text = fs::read_to_string(path).expect("there");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[line - 1] = "\0".repeat(40);
    fs::write(path, lines.join("\n") + "\n").expect("written");
}

#[test]
fn a_damaged_record_is_told_of_and_the_others_are_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let mine = folder.path().display().to_string();
    record(folder.path(), "a.jsonl", "3.2", 2, &CALM);
    let damaged = record(folder.path(), "b.jsonl", "3.3", 2, &slower(3.6));
    damage(&damaged, 5);
    fs::write(folder.path().join("c.jsonl"), [0xff, 0xfe, 0x00]).expect("written");
    for arguments in [
        vec!["report", &mine],
        vec!["history", &mine],
        vec!["compare", "mine@3.2", "mine@3.3", "--record", &mine],
    ] {
        let output = run(&arguments);
        assert!(output.status.success(), "{output:?}");
        let said = stderr(&output);
        assert!(said.contains("b.jsonl: line 5 is damaged and left out: "), "{said}");
        assert!(said.contains("c.jsonl: this is no record"), "{said}");
        assert!(stdout(&output).contains("3.3"), "the other samples are there: {output:?}");
    }

    // What is damaged is listed, named, and mended once.
    let list = run(["records", "list", &mine]);
    let text = stdout(&list).to_owned();
    for part in ["a.jsonl", "b.jsonl", "whole", "1 line damaged", "ruby 3.3", "this is no record"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let verify = run(["records", "verify", "--record", &mine]);
    assert_eq!(verify.status.code(), Some(1), "{verify:?}");
    let text = stdout(&verify);
    assert!(text.contains("b.jsonl: line 5: ") && text.ends_with("1 file whole, 2 damaged\n"));
    let before = fs::read(&damaged).expect("there");
    let repair = run(["records", "repair", &mine]);
    assert_eq!(repair.status.code(), Some(1), "nothing of one file can be saved: {repair:?}");
    assert!(stdout(&repair).contains("b.jsonl: 1 damaged line left out"), "{repair:?}");
    assert_eq!(fs::read(format!("{damaged}.damaged")).expect("as it was"), before);
    let again = run(["records", "verify", &damaged]);
    assert!(again.status.success(), "{again:?}");
    let text = fs::read_to_string(&damaged).expect("there");
    assert_eq!(text.lines().count(), 2 + 6, "{text}");
    fs::remove_file(folder.path().join("c.jsonl")).expect("there");
    let clean = run(["records", "repair", &mine]);
    assert_eq!((clean.status.code(), stdout(&clean)), (Some(0), "0 files repaired\n"));
}

#[test]
fn what_a_record_says_is_no_order_to_the_terminal_and_no_tag() {
    let folder = tempfile::tempdir().expect("a folder");
    let evil = r"3.2 (\u001b[2J\u009b1m<script>x</script>)";
    record(folder.path(), "a.jsonl", evil, 2, &CALM);
    record(folder.path(), "b.jsonl", "3.3", 2, &slower(2.0));
    let mine = folder.path().display().to_string();
    for command in ["report", "history"] {
        for format in ["text", "markdown", "csv", "html"] {
            let output = run([command, &mine, "--format", format]);
            assert!(output.status.success(), "{output:?}");
            let text = stdout(&output);
            assert!(text.contains("[2J"), "{command} {format}: {text}");
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{command} {format}");
            let is_marked_up = ["markdown", "html"].contains(&format);
            assert!(!is_marked_up || !text.contains("<script>x"), "{command} {format}: {text}");
        }
    }
}

#[test]
fn mistakes_are_told_in_one_line_with_their_own_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().display().to_string();
    let missing = folder.path().join("x.jsonl").display().to_string();
    let none: [&[&str]; 9] = [
        &["records", "list", &missing],
        &["records", "verify", &missing],
        &["records", "repair", &missing],
        &["report", "published", "--out", "page.pdf"],
        &["report", &missing],
        &["report", &empty],
        &["compare", "published", &missing],
        &["compare", "published", "published", "--out", "changes.svg"],
        &["history", "mine", "--record", &missing],
    ];
    for arguments in none {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
        assert!(stderr(&output).starts_with("carefree: "), "{output:?}");
    }
}

/// As after a full disk, or an end amid writing.
#[test]
fn a_record_whose_last_line_is_cut_is_not_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = record(folder.path(), "cut.jsonl", "1", 2, &[1.0, 2.0, 3.0]);
    let text = fs::read_to_string(&path).expect("there");
    assert!(run(["records", "verify", &path]).status.success());
    fs::write(&path, &text[..text.len() - 20]).expect("written");
    let verify = run(["records", "verify", &path]);
    assert_eq!(verify.status.code(), Some(1), "{verify:?}");
    assert!(stdout(&verify).contains("cut.jsonl: the last line is half there"), "{verify:?}");
    assert!(run(["records", "repair", &path]).status.success());
    assert!(run(["records", "verify", &path]).status.success());
}

/// Runs it with less address space than a file of these tests has.
fn in_little_memory(arguments: &[&str]) -> Output {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "ulimit -v 800000; exec \"$0\" \"$@\""]);
    shell.arg(carefree().get_program()).args(arguments).output().expect("a shell")
}

#[test]
fn what_is_damaged_or_no_record_takes_no_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let grow = |path: &str| {
        let file = fs::OpenOptions::new().append(true).create(true).open(path).expect("ours");
        // (It is a hole, which takes no room on the disk.)
        file.set_len(1 << 30).expect("ours");
    };
    let nothing = folder.path().join("nothing.jsonl").display().to_string();
    grow(&nothing);
    let output = in_little_memory(&["report", &nothing]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let expected = format!("carefree: {nothing}: this is no record: its first line is not one");
    assert!(stderr(&output).starts_with(&expected), "{output:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");

    let damaged = record(folder.path(), "damaged.jsonl", "3.2", 2, &CALM);
    grow(&damaged);
    let output = in_little_memory(&["report", "--format", "csv", &damaged]);
    assert!(output.status.success(), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("line 10 is damaged and left out: it is longer than"), "{said}");
    assert!(stdout(&output).contains("ruby,3.2,thread,alloc"), "{output:?}");
    let repaired = in_little_memory(&["records", "repair", &damaged]);
    assert!(repaired.status.success(), "{repaired:?}");
    assert!(stdout(&repaired).contains("1 damaged line left out"), "{repaired:?}");
    assert!(run(["records", "verify", &damaged]).status.success());
}
