//! `carefree report`, `compare` and `history`, on records made for the purpose.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use support::{run, stderr, stdout};

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
    let most = "the largest change is ruby 3.3 thread warm last time per unit: 6.5x slower";
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
        stdout(&compare(&old, &new, &[])).contains("different machines (cores in use: 2 and 16)")
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
    let step = "thread allocation 3.6x slower from 3.2 to 3.3 (18.1 µs to 65.2 µs)";
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

#[test]
fn mistakes_are_told_in_one_line_with_their_own_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().display().to_string();
    let missing = folder.path().join("x.jsonl").display().to_string();
    let none: [&[&str]; 5] = [
        &["report", &missing],
        &["report", &empty],
        &["compare", "published", &missing],
        &["compare", "published", "published", "--format", "svg"],
        &["history", "mine", "--record", &missing],
    ];
    for arguments in none {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
        assert!(stderr(&output).starts_with("carefree: "), "{output:?}");
    }
}
