//! A plan as a file, and its tasks as any engine runs them.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use support::{carefree, run, stderr, stdout};

/// Writes a plan of two tasks that take a moment.
fn make_plan(folder: &Path) -> String {
    let path = folder.join("plan.json").display().to_string();
    let small = ["--quick", "--samples", "2", "--units", "20", "--seed", "5", "--plan", &path];
    // Two builds that are one program: the second task is the same again under other names.
    let output = run(["bench", "alloc", "--runtime", "carefree,rust"].iter().chain(&small));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stdout(&output), "   1  carefree, rust\n");
    // A plan may be written by hand, too.
    let text = fs::read_to_string(&path).expect("written");
    let mut plan: Value = serde_json::from_str(&text).expect("JSON");
    let mut second = plan["tasks"][0].clone();
    second["task"] = 2.into();
    second["arguments"][0] = "switch".into();
    plan["tasks"].as_array_mut().expect("tasks").push(second);
    fs::write(&path, plan.to_string()).expect("written");
    path
}

fn task(plan: &str, number: u32, results: &Path, machine: &str) -> Output {
    let number = number.to_string();
    let mut command = carefree();
    command.args(["bench", "--plan", plan, "--task", &number, "--machine", machine, "--record"]);
    command.arg(results).output().expect("the program starts")
}

/// The files of a folder whose names end so.
fn files(folder: &Path, end: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("there").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
    names.retain(|name| name.ends_with(end));
    names.sort();
    names
}

#[test]
fn tasks_of_two_machines_make_one_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let (plan, results) = (make_plan(folder.path()), folder.path().join("results"));
    for (number, machine) in [(1, "n1"), (2, "n1"), (2, "n2.example"), (1, "n2.example")] {
        let output = task(&plan, number, &results, machine);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(stdout(&output), "", "a task reports nothing");
    }
    assert_eq!(files(&results, ".jsonl").len(), 4);
    assert_eq!(files(&results, ".receipt.json").len(), 4);
    assert_eq!(fs::read_dir(results.join("work")).expect("there").count(), 0, "nothing is left");

    let results = results.display().to_string();
    let report = run(["report", &results, "--format", "csv"]);
    assert!(report.status.success(), "{report:?}");
    let text = stdout(&run(["report", &results])).to_owned();
    // Hardware alike is no reason to show the figures of one in place of the other's.
    assert!(text.contains("\n  n1") && text.contains("\n  n2.example"), "{text}");
}

#[test]
fn a_task_that_is_done_is_not_measured_again_unless_its_record_is_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let (plan, results) = (make_plan(folder.path()), folder.path().join("results"));
    assert!(task(&plan, 1, &results, "n1").status.success());
    let record = results.join(&files(&results, ".jsonl")[0]);
    let first = fs::read_to_string(&record).expect("there");

    let output = task(&plan, 1, &results, "n1");
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("task 1 (carefree, rust) on n1 is done already"));
    assert_eq!(fs::read_to_string(&record).expect("there"), first);

    fs::write(&record, &first[..first.len() / 2]).expect("written");
    let output = task(&plan, 1, &results, "n1");
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("is measured again: "), "{output:?}");
    assert_eq!(files(&results, ".jsonl.damaged").len(), 1);
    let again = fs::read_to_string(&record).expect("there");
    // A busy machine has more warnings one time than another, but as many samples.
    let samples = |record: &str| record.matches("\"type\":\"sample\"").count();
    assert!(samples(&first) > 0 && samples(&again) == samples(&first) && again != first);
}

#[test]
fn samples_of_a_task_that_was_broken_off_are_used_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (plan, results) = (make_plan(folder.path()), folder.path().join("results"));
    assert!(task(&plan, 1, &results, "n1").status.success());
    // What a machine leaves that ends in the middle: the samples, and no receipt.
    let name = files(&results, ".jsonl").remove(0);
    let work = results.join("work").join(name.trim_end_matches(".jsonl"));
    fs::create_dir_all(&work).expect("made");
    let whole = fs::read_to_string(results.join(&name)).expect("there");
    let kept: Vec<&str> =
        whole.lines().filter(|line| !line.contains("\"type\":\"result\"")).take(4).collect();
    assert_eq!(kept.iter().filter(|line| line.contains("\"type\":\"sample\"")).count(), 2);
    fs::write(work.join("begun.jsonl"), kept.join("\n") + "\n{\"type\":\"sam").expect("written");
    fs::remove_file(results.join(&name)).expect("there");
    fs::remove_file(results.join(&files(&results, ".receipt.json")[0])).expect("there");

    let output = task(&plan, 1, &results, "n1");
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("2 samples of earlier runs stand"), "{output:?}");
    let again = fs::read_to_string(results.join(&name)).expect("there");
    for sample in kept.iter().filter(|line| line.contains("\"type\":\"sample\"")) {
        assert!(again.contains(sample), "{sample} is lost");
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = make_plan(folder.path());
    let results = folder.path().join("results");
    let refused = |output: Output, said: &str| {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(said), "{output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    };
    refused(
        task(&plan, 3, &results, "n1"),
        "there is no task 3 in this plan; its tasks are 1 to 2",
    );
    refused(task(&plan, 1, &results, "../n1"), "--machine '../n1': a name has letters");
    refused(task("/no/such", 1, &results, "n1"), "--plan /no/such: there is no such file");
    refused(run(["bench", "--plan", &plan]), "there is a plan of this name");
    let both = ["bench", "--plan", &plan, "--task", "1", "--record", "x", "--samples", "3"];
    refused(run(both), "--samples cannot stand beside --task");
    let out = ["bench", "--plan", "x.json", "--out", "x.html"];
    refused(run(out), "--plan measures nothing that --out could show");
}

/// Whether a program is there that only some machines have.
fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Runs a line of a document in a shell, where `carefree` is the program under test.
fn shell(line: &str, folder: &Path, variables: &[(&str, &str)]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_carefree"));
    let mut command = Command::new("sh");
    // What it needs to find no other runtimes is set for the program alone.
    let function = format!("#!/bin/sh\nPATH= exec {} \"$@\"\n", program.display());
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("made");
    fs::write(bin.join("carefree"), function).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bin.join("carefree"), mode).expect("ours");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("set"));
    command.args(["-c", line]).current_dir(folder).env("PATH", path).env("HOME", folder);
    command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command.envs(variables.iter().copied()).output().expect("a shell")
}

const PAGE: &str = include_str!("../../../docs/fleet.md");

#[test]
fn the_pages_line_for_gnu_parallel_runs_all_tasks() {
    if !has("parallel") {
        return;
    }
    let line = PAGE.lines().find(|line| line.starts_with("parallel --jobs 1")).expect("the line");
    let folder = tempfile::tempdir().expect("a folder");
    make_plan(folder.path());
    let output = shell(&line.replace("::: 1 2 3", "::: 1 2"), folder.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let results = folder.path().join("results");
    assert_eq!(files(&results, ".jsonl").len(), 2);
    // The engine tells of a task that fails.
    let output = shell(line, folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("there is no task 3"), "{output:?}");
}

#[test]
fn the_pages_manifest_for_kubernetes_is_yaml_whose_command_runs() {
    if !has("ruby") {
        return;
    }
    let manifest = PAGE.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let manifest = manifest.expect("the page has a manifest");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.yaml");
    fs::write(&path, manifest).expect("written");
    let read = "require 'yaml'; require 'json'; puts YAML.load_file(ARGV[0]).to_json";
    let output = Command::new("ruby").args(["-e", read]).arg(&path).output().expect("ruby");
    assert!(output.status.success(), "{output:?}");
    let job: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&job["kind"], &job["spec"]["completionMode"]), (&"Job".into(), &"Indexed".into()));
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let words: Vec<&str> = container["command"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|word| word.as_str().expect("text"))
        .collect();
    let [_, "-c", line] = words[..] else { panic!("{words:?}") };

    make_plan(folder.path());
    let line = line.replace("/fleet/", &format!("{}/", folder.path().display()));
    let variables = [("NODE", "n1"), ("JOB_COMPLETION_INDEX", "1")];
    let output = shell(&line, folder.path(), &variables);
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("task 2 (carefree, rust) on n1: "), "{output:?}");
}
