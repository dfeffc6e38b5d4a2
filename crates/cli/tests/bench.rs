//! `carefree bench` from end to end, at sizes that take a moment.

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{carefree, run, said, stderr, stdout};

const SMALL: [&str; 9] =
    ["bench", "--runtime", "carefree,rust", "--quick", "--samples", "2", "--units", "20", "--seed"];

fn small(more: &[&str]) -> std::process::Output {
    let output = run(SMALL.iter().chain(&["5"]).chain(more));
    assert!(output.status.success(), "{output:?}");
    output
}

/// A record's lines, each under its type.
fn json(text: &str) -> Value {
    let mut record = serde_json::json!({"result": [], "sample": [], "warning": [], "failure": []});
    for line in text.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        let kind = line["type"].as_str().expect("a type").to_owned();
        match record[&kind].as_array_mut() {
            Some(lines) => lines.push(line),
            None => record[&kind] = line,
        }
    }
    record
}

/// What each workload has to tell, with the unit it is told in.
const METRICS: [(&str, &[(&str, &str)]); 5] = [
    (
        "alloc",
        &[
            ("time_per_unit", "ns"),
            ("memory_per_unit", "bytes"),
            ("whole_memory_per_unit", "bytes"),
        ],
    ),
    ("switch", &[("time_per_switch", "ns"), ("switches_per_second", "switches/s")]),
    ("warm", &[("first_time_per_unit", "ns"), ("last_time_per_unit", "ns")]),
    ("throughput", &[("time", "ms"), ("units_per_second", "units/s")]),
    ("parked", &[("memory_per_unit", "bytes"), ("whole_memory_per_unit", "bytes")]),
];

const UNITS: [(&str, &str); 3] =
    [("coroutine", "carefree"), ("fiber", "carefree"), ("thread", "rust")];

#[test]
fn json_has_every_figure_of_every_unit_and_workload() {
    let record = json(stdout(&small(&["--format", "json"])));
    assert_eq!(record["environment"]["schema"], 2);
    let environment = record["environment"].as_object().expect("an environment");
    for key in ["cpu", "cores", "governor", "kernel", "libc", "memory", "page_size", "thp", "aslr"]
    {
        assert!(environment.contains_key(key), "no {key}");
    }
    for key in ["carefree", "rustc", "tls_mode", "guard_mode"] {
        assert!(environment[key].is_string(), "no {key}");
    }
    let results = record["result"].as_array().expect("results");
    let mut expected = 0;
    for (workload, metrics) in METRICS {
        for (unit, runtime) in UNITS {
            for (metric, value_unit) in metrics {
                expected += 1;
                let found: Vec<&Value> = results
                    .iter()
                    .filter(|r| {
                        r["workload"] == workload && r["unit"] == unit && r["metric"] == *metric
                    })
                    .collect();
                let [result] = found[..] else { panic!("{workload} {unit} {metric}: {found:?}") };
                assert_eq!(result["runtime"], runtime);
                assert!(result["version"].as_str().is_some_and(|v| v.contains('.')), "{result}");
                assert_eq!(result["value_unit"], *value_unit);
                assert_eq!(result["parameters"]["units"], 20);
                assert!(result["parameters"]["switches"].as_u64() >= Some(1));
                let samples = result["samples"].as_array().expect("samples");
                assert_eq!(samples.len(), 2);
                assert!(samples.iter().all(Value::is_f64), "{result}");
                let number = |key: &str| result[key].as_f64().expect("a number");
                assert!(number("ci_low") <= number("median"), "{result}");
                assert!(number("median") <= number("ci_high"), "{result}");
                if !metric.contains("memory") {
                    assert!(number("median") > 0.0, "{result}");
                }
            }
        }
    }
    assert_eq!(results.len(), expected, "and nothing else");
}

#[test]
fn each_sample_has_a_process_of_its_own_and_proves_its_switches() {
    let record = json(stdout(&small(&["--format", "json"])));
    let trials = record["sample"].as_array().expect("trials");
    assert_eq!(trials.len(), 2 * METRICS.len() * UNITS.len());
    let processes: BTreeSet<u64> =
        trials.iter().map(|t| t["proof"]["process"].as_u64().expect("a process")).collect();
    assert_eq!(processes.len(), trials.len());
    for trial in trials {
        let sample = &trial["proof"];
        let count = |key: &str| sample[key].as_u64().expect("a count");
        let parameters = &trial["parameters"];
        let rounds = parameters["rounds"].as_u64().unwrap_or(1);
        let each = parameters["switches"].as_u64().expect("a count");
        assert_eq!(count("switches_asked"), 20 * each * rounds, "{trial}");
        assert_eq!(sample["rounds"].as_array().map(Vec::len), usize::try_from(rounds).ok());
        // Where units share a core, each yield has another unit to switch to.
        if trial["unit"] != "thread" && parameters["cores"] == 1 || trial["unit"] == "coroutine" {
            assert!(count("switches_made") >= count("switches_asked"), "{trial}");
        }
        assert!(count("switches_made") > 0, "{trial}");
        if trial["workload"] == "switch" {
            assert!(trial["pin"].is_u64() && parameters["cores"] == 1, "{trial}");
        }
    }
    let order = |trials: &[Value]| -> Vec<String> {
        trials.iter().map(|t| format!("{} {}", t["unit"], t["workload"])).collect()
    };
    let (first, second) = trials.split_at(trials.len() / 2);
    assert_ne!(order(first), order(second), "the order is drawn anew for each round");
    let again = json(stdout(&small(&["--format", "json"])));
    assert_eq!(order(trials), order(again["sample"].as_array().expect("trials")));
}

#[test]
fn text_has_the_five_tables_and_no_escapes_when_piped() {
    let output = small(&[]);
    let text = stdout(&output);
    for title in [
        "Performance Summary",
        "Context Switching Performance",
        "Memory Usage Per Unit",
        "Cache Warming Performance",
        "Throughput Performance",
    ] {
        assert!(text.contains(title), "no {title} in {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    assert_eq!(said(&output), "", "no progress bar when piped");
}

#[test]
fn a_file_gets_the_format_of_its_name_and_standard_output_stays_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("record.json"), "old").expect("written");
    for name in ["record.json", "record.csv", "record.md", "record"] {
        let output = small(&["switch", "--unit", "thread", "--out", &at(name)]);
        assert_eq!(stdout(&output), "", "{name}");
        assert!(stderr(&output).contains("written to"), "{output:?}");
        let text = fs::read_to_string(at(name)).expect("written");
        match name {
            "record.json" => assert_eq!(json(&text)["environment"]["schema"], 2),
            "record.csv" => assert!(text.starts_with("runtime,version,unit,"), "{text}"),
            "record.md" => assert!(text.starts_with("## Fiber vs Thread Benchmark"), "{text}"),
            _ => assert!(text.contains("\nContext Switching Performance\n"), "{text}"),
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 4, "nothing is left over");
}

#[test]
fn only_what_was_named_is_measured() {
    let output = small(&["parked", "switch", "--unit", "thread", "--pin", "--format", "csv"]);
    let lines: Vec<&str> = stdout(&output).lines().skip(1).collect();
    let kinds: BTreeSet<(&str, &str)> = lines
        .iter()
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            assert_eq!(cells[4], "1", "pinned to one core: {line}");
            (cells[2], cells[3])
        })
        .collect();
    assert_eq!(kinds, BTreeSet::from([("thread", "parked"), ("thread", "switch")]));
}

#[test]
fn a_limit_reached_is_named_with_its_knob_and_the_rest_goes_on() {
    let output = Command::new("sh")
        .arg("-c")
        // Room for less than a hundred threads with 2 MiB of stack each.
        .arg("ulimit -v 200000; exec \"$0\" bench --runtime rust --unit thread alloc switch --samples 1")
        .arg(env!("CARGO_BIN_EXE_carefree"))
        .output()
        .expect("sh starts");
    let text = stdout(&output);
    assert!(text.contains("RLIMIT_AS"), "{text}");
    assert!(text.contains("ulimit -v unlimited"), "{text}");
    assert!(text.contains("Context Switching Performance"), "{text}");
    assert_eq!(output.status.code(), Some(1), "what was asked for is not all there");
}

/// Starts a run that would take minutes and waits until it is in its third sample.
fn long_run(more: &[&str]) -> Child {
    let child = carefree()
        .args(["bench", "switch", "--runtime", "rust", "--unit", "thread", "--samples", "10000"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let started = Instant::now();
    let mut samples = BTreeSet::new();
    while samples.len() < 3 {
        let path = format!("/proc/{0}/task/{0}/children", child.id());
        let children = fs::read_to_string(path).expect("it runs");
        // Other children say which version they are.
        let is_sample = |child: &&str| {
            let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("__sample")
        };
        samples.extend(children.split_whitespace().filter(is_sample).map(str::to_owned));
        assert!(started.elapsed() < Duration::from_secs(120), "no samples are taken");
        thread::sleep(Duration::from_millis(1));
    }
    child
}

fn interrupt(child: &Child) {
    let process = i32::try_from(child.id()).expect("a process number");
    // SAFETY: kill touches no memory; the process is ours and not waited for yet.
    assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let child = long_run(&["--format", "json"]);
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let record = json(stdout(&output));
    assert_eq!(record["run"]["interrupted"], true);
    let samples = record["result"][0]["samples"].as_array().expect("samples").len();
    assert!((2..10_000).contains(&samples), "{samples}");
}

#[test]
fn ctrl_c_writes_the_file_that_was_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("record.json");
    let child = long_run(&["--out", &path.display().to_string()]);
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let record = json(&fs::read_to_string(&path).expect("written"));
    assert_eq!(record["run"]["interrupted"], true);
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "nothing is left over");
}

/// A target whose program starts another, in a session of its own, and tells of both in a file.
const WANDERER: &str = r#"schema = 1
name = "wanderer"
title = "Wanderer"
package = "apt install dash"
[find]
path = ["sh"]
version = ["{runtime}", "-c", "echo 1"]
[programs.units]
workloads = ["switch"]
run = ["{runtime}", "-c", "setsid sleep 600 & echo $! $$ > {folder}/told.new; mv {folder}/told.new {folder}/told; wait"]
[programs.unknown]
workloads = ["alloc"]
run = ["{runtime}", "-c", "setsid env -i sleep 600 & echo $! $$ > {folder}/told.new; mv {folder}/told.new {folder}/told; wait"]
[units.thread]
role = "thread"
what = "a wanderer"
"#;

/// Whether a process runs: not one that has ended and is not waited for yet.
fn runs(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a run of [`WANDERER`], and returns the lab and the two processes, which run.
fn wandering(workload: &str, folder: &Path) -> (Child, [String; 2]) {
    let target = folder.join("wanderer");
    fs::create_dir(&target).expect("a folder");
    fs::write(target.join("target.toml"), WANDERER).expect("a file");
    let lab = carefree()
        .args(["bench", workload, "--runtime", "wanderer", "--samples", "1", "--force"])
        .arg("--targets")
        .arg(folder)
        .env("PATH", "/usr/bin:/bin")
        .env("XDG_DATA_HOME", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let told = target.join("told");
    until("it tells of itself", || told.exists());
    let told = fs::read_to_string(&told).expect("told");
    let mut processes = told.split_whitespace().map(str::to_owned);
    let processes = [(); 2].map(|()| processes.next().expect("two"));
    assert!(processes.iter().all(|process| runs(process)), "{told}");
    (lab, processes)
}

#[test]
fn a_lab_that_is_killed_leaves_nothing_running() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut lab, processes) = wandering("switch", folder.path());
    lab.kill().expect("it runs");
    lab.wait().expect("it ends");
    for process in processes {
        until("what it has left ends", || !runs(&process));
    }
}

/// A process that has dropped its environment, and with it the lab's mark, is found by its control group.
#[test]
fn a_lab_that_is_killed_leaves_no_control_group_and_nothing_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut lab, [wanderer, program]) = wandering("alloc", folder.path());
    let groups = fs::read_to_string(format!("/proc/{wanderer}/cgroup")).expect("it runs");
    let name = groups.lines().find_map(|line| {
        let name = line.rsplit('/').next()?;
        name.starts_with("carefree-bench-").then_some(name)
    });
    lab.kill().expect("it runs");
    lab.wait().expect("it ends");
    until("the program ends", || !runs(&program));
    let Some(name) = name else {
        println!("skipped: no control group can be made here");
        let wanderer = wanderer.parse().expect("a process number");
        // SAFETY: kill touches no memory; the process is the test's own.
        unsafe { libc::kill(wanderer, libc::SIGKILL) };
        return;
    };
    until("what it has left ends", || !runs(&wanderer));
    until("the group is gone", || {
        let found = Command::new("find").args(["/sys/fs/cgroup", "-name", name]).output();
        found.expect("find runs").stdout.is_empty()
    });
}

/// A target whose build takes a while, and fails where another fills the same folder.
const LONER: &str = r#"schema = 1
name = "loner"
title = "Loner"
package = "apt install dash"
[find]
path = ["sh"]
version = ["{runtime}", "-c", "echo 1"]
[programs.units]
workloads = ["switch"]
build = [["{runtime}", "-c", "mkdir {cache}/mine && sleep 2"]]
run = ["{runtime}", "-c", "echo it runs >&2"]
[units.thread]
role = "thread"
what = "one that needs its folder for itself"
"#;

/// Labs in containers, and on machines that share a home, may have the same process number.
#[test]
fn labs_with_one_process_number_build_beside_each_other() {
    let alone = ["--pid", "--fork", "--mount-proc"];
    let can = Command::new("unshare").args(alone).arg("true").output();
    if !can.is_ok_and(|done| done.status.success()) {
        println!("skipped: unshare makes no namespaces here");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("targets/loner");
    fs::create_dir_all(&target).expect("a folder");
    fs::write(target.join("target.toml"), LONER).expect("a file");
    let lab = |number: usize| {
        Command::new("unshare")
            .args(alone)
            .arg(env!("CARGO_BIN_EXE_carefree"))
            .args(["bench", "switch", "--runtime", "loner", "--samples", "1", "--force"])
            .arg("--targets")
            .arg(folder.path().join("targets"))
            .env("XDG_DATA_HOME", folder.path().join(number.to_string()))
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare starts")
    };
    for lab in [1, 2].map(lab) {
        let output = lab.wait_with_output().expect("it ends");
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert!(said.contains("it runs") && !said.contains("could not build"), "{said}");
    }
}

/// A target whose build takes long, and tells of itself in a file.
const BUILDER: &str = r#"schema = 1
name = "builder"
title = "Builder"
package = "apt install dash"
[find]
path = ["sh"]
version = ["{runtime}", "-c", "echo 1"]
[programs.units]
workloads = ["switch"]
build = [["{runtime}", "-c", "sleep 600 & echo $! $$ > {folder}/told.new; mv {folder}/told.new {folder}/told; wait"]]
run = ["{runtime}"]
[units.thread]
role = "thread"
what = "one that is never there"
"#;

#[test]
fn a_build_ends_with_the_lab() {
    for is_killed in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("targets/builder");
        fs::create_dir_all(&target).expect("a folder");
        fs::write(target.join("target.toml"), BUILDER).expect("a file");
        let mut child = carefree()
            .args(["bench", "switch", "--runtime", "builder", "--samples", "1", "--force"])
            .arg("--targets")
            .arg(folder.path().join("targets"))
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_DATA_HOME", folder.path())
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let told = target.join("told");
        until("it tells of itself", || told.exists());
        let told = fs::read_to_string(&told).expect("told");
        let processes: Vec<&str> = told.split_whitespace().collect();
        assert!(processes.len() == 2 && processes.iter().all(|process| runs(process)), "{told}");
        if is_killed {
            child.kill().expect("it runs");
        } else {
            interrupt(&child);
            until("Ctrl-C ends it", || child.try_wait().expect("it is ours").is_some());
        }
        let output = child.wait_with_output().expect("it ends");
        if !is_killed {
            assert_eq!(output.status.code(), Some(130), "{output:?}");
            assert_eq!(said(&output), "carefree: broken off before the first sample\n");
        }
        for process in processes {
            until("the build ends", || !runs(process));
        }
    }
}

/// Runs with standard output and standard error on a terminal, and returns what was shown.
fn on_a_terminal(no_color: bool) -> String {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: both numbers are writable; the name, the modes and the size may be left out.
    let opened = unsafe {
        libc::openpty(
            &mut ours,
            &mut theirs,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(opened, 0, "no terminal to be had");
    // SAFETY: openpty has just opened both, and no other code knows them.
    let (mut ours, theirs) = unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) };
    let mut command = carefree();
    command
        .args(SMALL)
        .args(["5", "switch", "alloc", "--unit", "thread"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(theirs.try_clone().expect("a descriptor"))
        .stderr(theirs)
        .process_group(0);
    if no_color {
        command.env("NO_COLOR", "1");
    }
    let mut child = command.spawn().expect("the program starts");
    // The command holds the terminal's other side open.
    drop(command);
    let mut shown = Vec::new();
    // Ends with an error, as terminals do when their other side is closed.
    let _ = ours.read_to_end(&mut shown);
    assert!(child.wait().expect("it ends").success());
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn a_terminal_gets_a_progress_bar_and_colours() {
    let shown = on_a_terminal(false);
    assert!(shown.contains("/4 "), "no bar in {shown}");
    assert!(shown.contains("\x1b[1mPerformance Summary"), "{shown}");
}

#[test]
fn no_color_means_no_colours() {
    let shown = on_a_terminal(true);
    assert!(shown.contains("Performance Summary"), "{shown}");
    assert!(!shown.contains("\x1b[1m") && !shown.contains("\x1b[2m"), "{shown}");
}

#[test]
fn what_was_measured_is_kept_and_used_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let records = folder.path().display().to_string();
    let measure = |more: &[&str]| {
        let orders = ["switch", "--unit", "thread", "--record", &records, "--format", "json"];
        let output = small(&[&orders, more].concat());
        let record = json(stdout(&output));
        let samples = record["sample"].as_array().expect("samples").clone();
        let processes: Vec<u64> =
            samples.iter().filter_map(|sample| sample["proof"]["process"].as_u64()).collect();
        assert_eq!(processes.len(), samples.len());
        (processes, said(&output))
    };
    let (first, said) = measure(&[]);
    assert_eq!((first.len(), said.as_str()), (2, ""));
    let (again, said) = measure(&[]);
    assert_eq!(again, first, "the same samples");
    assert!(said.starts_with("carefree: 2 samples of earlier runs stand for"), "{said}");
    let (anew, _) = measure(&["--force"]);
    assert!(anew.iter().all(|process| !first.contains(process)), "{anew:?} {first:?}");
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 3, "a record each");
    for entry in fs::read_dir(folder.path()).expect("there") {
        let text = fs::read_to_string(entry.expect("there").path()).expect("text");
        let record = json(&text);
        assert_eq!(record["run"]["interrupted"], false, "the last one counts: {text}");
        assert!(record["run"]["command"].as_str().is_some_and(|c| c.contains("bench --runtime")));
        assert_eq!(record["sample"].as_array().map(Vec::len), Some(2));
        assert!(!record["result"].as_array().expect("results").is_empty());
    }
}

/// Or a history would have one point of both, and a comparison the same samples on both sides.
#[test]
fn two_runs_of_a_moment_do_not_begin_in_the_same_second() {
    let folder = tempfile::tempdir().expect("a folder");
    let records = folder.path().display().to_string();
    let orders = ["switch", "--unit", "coroutine", "--record", &records, "--format", "json"];
    let starts: Vec<String> = (0..4)
        .map(|_| {
            let record = json(stdout(&small(&[&orders[..], &["--force"]].concat())));
            record["sample"][0]["run"].as_str().expect("a time").to_owned()
        })
        .collect();
    assert!(starts.windows(2).all(|pair| pair[0] != pair[1]), "{starts:?}");
}

#[test]
fn a_run_that_was_broken_off_is_taken_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let records = folder.path().display().to_string();
    let child = long_run(&["--record", &records, "--force"]);
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let said = stderr(&output);
    let file =
        fs::read_dir(folder.path()).expect("there").next().expect("a record").expect("there");
    let resume = "; to go on from there: carefree bench switch --runtime rust --unit thread";
    assert!(said.contains(&format!("recorded in {}{resume}", file.path().display())), "{said}");
    assert!(!said.contains("--force"), "it would measure all of it anew: {said}");
    let output = run([
        "bench",
        "switch",
        "--runtime",
        "rust",
        "--unit",
        "thread",
        "--samples",
        "2",
        "--record",
        &records,
        "--format",
        "csv",
    ]);
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("2 samples of earlier runs"), "{}", stderr(&output));
}

#[test]
fn an_interval_that_is_narrow_enough_ends_the_sampling() {
    // A runtime that always reports the same times: the load of this machine does not matter.
    let top = tempfile::tempdir().expect("a folder");
    let place = top.path().join("steady");
    fs::create_dir(&place).expect("made");
    let runtime = place.join("steady");
    fs::write(&runtime, STEADY).expect("written");
    fs::set_permissions(&runtime, Permissions::from_mode(0o755)).expect("set");
    let toml = STEADY_TOML.replace("HERE", place.to_str().expect("text"));
    fs::write(place.join("target.toml"), toml).expect("written");
    let targets = top.path().to_str().expect("text");
    let orders =
        ["switch", "--runtime", "steady", "--targets", targets, "--samples", "40", "--precision"];
    let output = run(["bench", "--format", "json"].iter().chain(&orders).chain(&["1"]));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(json(stdout(&output))["sample"].as_array().map_or(0, Vec::len), 5);
}

const STEADY: &str = r#"#!/bin/sh
[ "$1" = version ] && { echo "steady version 1.0"; exit 0; }
for order; do
    case $order in units=*|switches=*) eval "$order" ;; esac
done
made=$((units * switches))
echo "{\"sample\":{\"units\":$units,\"switches_asked\":$made,\"switches_made\":$made,\"rounds\":[{\"create_ns\":1000,\"run_ns\":2000}]}}"
"#;

const STEADY_TOML: &str = r#"schema = 1
name = "steady"
title = "Steady"
package = "none"
[find]
globs = ["HERE/steady"]
version = ["{runtime}", "version"]
after = "steady version "
[programs.units]
workloads = ["switch"]
run = ["{runtime}", "sample"]
[units.fiber]
role = "fiber"
what = "a shell that always takes as long"
"#;
