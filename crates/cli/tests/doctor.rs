//! `carefree doctor`, on whatever machine the tests run on.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use support::{carefree, run, said, stderr, stdout};

#[test]
fn the_doctor_runs_fibers_and_says_what_it_means() {
    let output = run(["doctor"]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.starts_with("Fibers work here.\n"), "{text}");
    for what in [
        "1,000 fibers yielded, slept and were joined",
        "thread-local storage: ",
        "stack guards: ",
        "vm.max_map_count: ",
        "kernel.threads-max: ",
        "RLIMIT_NOFILE: ",
    ] {
        assert!(text.contains(what), "no {what} in {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

fn checks(environment: &[(&str, &str)]) -> (Option<i32>, Value) {
    let output = carefree()
        .args(["doctor", "--format", "json"])
        .envs(environment.iter().copied())
        .output()
        .expect("the program starts");
    let report = serde_json::from_str(stdout(&output)).expect("JSON");
    (output.status.code(), report)
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["checks"].as_array().expect("checks");
    all.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn json_says_the_same() {
    let (code, report) = checks(&[]);
    assert_eq!(code, Some(0));
    assert_eq!((&report["schema"], &report["fibers_work"]), (&1.into(), &true.into()));
    for check in report["checks"].as_array().expect("checks") {
        for key in ["name", "verdict", "value", "meaning"] {
            assert!(check[key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {check}");
        }
    }
}

#[test]
fn what_was_forced_is_what_is_found_and_fibers_work_all_the_same() {
    let (code, report) = checks(&[("CAREFREE_TLS", "shared"), ("CAREFREE_GUARDS", "mprotect")]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(check(&report, "thread-local storage")["value"], "shared");
    assert!(check(&report, "thread-local storage")["reason"].is_string());
    assert_eq!(check(&report, "thread-local storage")["advice"], "unset CAREFREE_TLS");
    assert_eq!(check(&report, "stack guards")["value"], "mprotect");
    let maps = check(&report, "vm.max_map_count");
    assert_eq!(maps["verdict"], "note");
    assert!(maps["meaning"].as_str().is_some_and(|text| text.ends_with("fibers.")), "{maps}");
}

#[test]
fn threads_in_place_of_fibers_are_not_called_fibers() {
    let threads = [("CAREFREE_TLS", "threads")];
    let (code, report) = checks(&threads);
    assert_eq!((code, &report["threads"]), (Some(0), &true.into()), "{report}");
    let tls = check(&report, "thread-local storage");
    assert_eq!((&tls["value"], &tls["verdict"]), (&"threads".into(), &"note".into()));
    assert_eq!(tls["advice"], "unset CAREFREE_TLS");
    assert!(!report.to_string().contains("stack guards"), "{report}");
    let output = carefree().arg("doctor").envs(threads).output().expect("the program starts");
    assert!(stdout(&output).starts_with("Threads stand for fibers here.\n"), "{output:?}");
    // Nor measured as such.
    let records = tempfile::tempdir().expect("a folder");
    let output = carefree()
        .args(["bench", "alloc", "--quick", "--runtime", "carefree", "--unit", "fiber"])
        .args(["--units", "20", "--samples", "1", "--record"])
        .arg(records.path())
        .envs(threads)
        .output()
        .expect("the program starts");
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert!(said.contains("threads stand for fibers here"), "{said}");
}

#[test]
fn fibers_that_do_not_work_are_a_finding_with_its_reason() {
    // A quarter of their stacks fits. (On two carriers, enough of the fibers may have ended before the others begin.)
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 60000; exec \"$0\" doctor --format json"])
        .arg(env!("CARGO_BIN_EXE_carefree"))
        .env("CAREFREE_CARRIERS", "1")
        .output()
        .expect("sh starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert_eq!(report["fibers_work"], false);
    let fibers = check(&report, "fibers");
    assert_eq!(fibers["verdict"], "bad");
    assert!(fibers["reason"].is_string(), "{fibers}");
}

#[test]
fn runtimes_that_are_not_here_come_with_what_brings_them() {
    // The tests have nothing in PATH, and nothing at home.
    let (_, report) = checks(&[]);
    let runtimes = ["C++", "D", "Erlang/OTP", "Go", "Java", "Node.js", "Python", "Ruby", "Rust"];
    for name in runtimes {
        let check = check(&report, name);
        // Some stand where they are found without PATH; of those some need it to answer.
        let silent = check["value"] == "does not answer";
        assert!(
            !silent || check["reason"].as_str().is_some_and(|why| why.contains("is there, but"))
        );
        if silent || check["value"] == "not found" {
            assert_eq!(check["verdict"], "note");
            assert!(check["advice"].as_str().is_some_and(|text| !text.is_empty()), "{check}");
        } else {
            let version = check["value"].as_str().expect("text");
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{check}");
        }
    }
    let engine = check(&report, "container images");
    assert_eq!(engine["verdict"], "note");
    assert!(engine["reason"].as_str().is_some_and(|text| text.contains("neither answers")));
}

/// Those that this machine need not have: programs that answer as they do.
#[test]
fn builds_that_are_variants_are_known_by_their_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    };
    program("python3", "echo 3.13.0t\necho \"$0\"");
    program(
        "dotnet",
        "echo 'Microsoft.AspNetCore.App 8.0.11 [/usr/share/dotnet]'\n\
         echo 'Microsoft.NETCore.App 6.0.36 [/usr/share/dotnet]'\n\
         echo 'Microsoft.NETCore.App 8.0.11 [/usr/share/dotnet]'",
    );
    for tool in ["sed", "tail", "grep"] {
        let place = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
        let place = place.iter().find(|place| place.exists()).expect("it is on every machine");
        std::os::unix::fs::symlink(place, folder.path().join(tool)).expect("a link");
    }
    std::os::unix::fs::symlink("/bin/sh", folder.path().join("sh")).expect("a link");
    let (_, report) = checks(&[("PATH", folder.path().to_str().expect("a plain path"))]);
    for (title, version, variant) in
        [("Python", "3.13.0t", "python/free-threaded"), ("C#", "8.0.11-net", "csharp/net")]
    {
        let check = check(&report, title);
        let value = check["value"].as_str().expect("text");
        assert!(value.split(", ").any(|one| one == version), "{check}");
        assert!(check["meaning"].as_str().is_some_and(|text| text.contains(variant)), "{check}");
    }
}

#[test]
fn what_a_target_says_is_no_order_to_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = r#"schema = 1
name = "evil"
title = "\u001b[2JEvil"
package = "apt install \u001b]0;title\u0007"
[find]
path = ["no-such-program"]
version = ["{runtime}"]
[programs.units]
workloads = ["alloc"]
run = ["{runtime}"]
[units.thread]
role = "thread"
what = "a thread"
"#;
    std::fs::create_dir(folder.path().join("evil")).expect("made");
    std::fs::write(folder.path().join("evil/target.toml"), text).expect("written");
    let output = run(["doctor", "--targets", folder.path().to_str().expect("text")]);
    let said = stdout(&output);
    assert!(said.contains("[2JEvil: not found"), "{said}");
    assert!(said.contains("]0;title"), "{said}");
    assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
}

#[test]
fn ones_own_targets_are_looked_for_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = |name: &str, find: &str| {
        let text = format!(
            "schema = 1\nname = \"{name}\"\ntitle = \"My {name}\"\npackage = \"apt install {name}\"\n\
             [find]\n{find}\nversion = [\"{{runtime}}\", \"-c\", \"echo 4.2\"]\n\
             [parts.kit]\nprobe = [\"/no/such/program\"]\npackage = \"apt install {name}-kit\"\n\
             [programs.units]\nworkloads = [\"alloc\"]\nneeds = [\"kit\"]\nrun = [\"{{runtime}}\"]\n\
             [units.thread]\nrole = \"thread\"\nwhat = \"a thread\"\n"
        );
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("made");
        std::fs::write(place.join("target.toml"), text).expect("written");
    };
    target("here", "globs = [\"/bin/sh\"]");
    target("gone", "path = [\"gone\"]");
    let place = folder.path().to_str().expect("text");
    let output = run(["doctor", "--format", "json", "--targets", place]);
    let report: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    let gone = check(&report, "My gone");
    assert_eq!(
        (&gone["value"], &gone["advice"]),
        (&"not found".into(), &"apt install gone".into())
    );
    let here = check(&report, "My here");
    assert_eq!((&here["value"], &here["verdict"]), (&"4.2".into(), &"note".into()));
    assert_eq!(here["advice"], "apt install here-kit");
    assert!(here["meaning"].as_str().is_some_and(|text| text.contains("thread, which needs kit")));

    // Nor is it a failure of bench, which says why there is nothing to measure.
    let output = run(["bench", "alloc", "--runtime", "here", "--targets", place]);
    assert_eq!(output.status.code(), Some(2));
    let line = "carefree: here 4.2 thread is left out: it needs kit (apt install here-kit)";
    assert!(said(&output).starts_with(line), "{output:?}");
    let output = run([
        "bench",
        "alloc",
        "--runtime",
        "carefree,here",
        "--targets",
        place,
        "--units",
        "20",
        "--samples",
        "1",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("apt install here-kit"), "{}", stdout(&output));
}

/// Programs that do not answer until all of them are asked.
#[test]
fn programs_that_do_not_answer_are_waited_for_at_the_same_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let barrier = folder.path().join("asked");
    std::fs::create_dir(&barrier).expect("made");
    for number in 0..8 {
        let program = folder.path().join(format!("slow{number}"));
        let script = format!(
            "#!/bin/sh\nPATH=/usr/bin:/bin\ntouch {0}/{number}\n\
             while [ \"$(ls {0} | wc -l)\" -lt 8 ]; do sleep 0.05; done\necho {number}.0\n",
            barrier.display()
        );
        std::fs::write(&program, script).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("ours");
    }
    // Four of one target, and four with a target each.
    let target = |name: &str, globs: &str| {
        let text = format!(
            "schema = 1\nname = \"{name}\"\ntitle = \"Slow {name}\"\npackage = \"none\"\n\
             [find]\nglobs = [\"{}/{globs}\"]\nversion = [\"{{runtime}}\"]\n\
             [programs.units]\nworkloads = [\"alloc\"]\nrun = [\"{{runtime}}\"]\n\
             [units.thread]\nrole = \"thread\"\nwhat = \"a thread\"\n",
            folder.path().display()
        );
        let place = folder.path().join("targets").join(name);
        std::fs::create_dir_all(&place).expect("made");
        std::fs::write(place.join("target.toml"), text).expect("written");
    };
    target("many", "slow[0-3]");
    for number in 4..8 {
        target(&format!("s{number}"), &format!("slow{number}"));
    }
    let targets = folder.path().join("targets").display().to_string();
    let output = run(["doctor", "--format", "json", "--targets", &targets]);
    let report: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert_eq!(check(&report, "Slow many")["value"], "0.0, 1.0, 2.0, 3.0");
    assert_eq!(check(&report, "Slow s7")["value"], "7.0");
}

#[test]
fn a_wrong_format_is_answered_with_the_right_ones() {
    let output = run(["doctor", "--format", "markdown"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("[possible values: text, json]"), "{output:?}");
}

#[test]
fn what_keeps_fibers_from_starting_is_said() {
    for (variable, value, why) in [
        ("CAREFREE_CARRIERS", "some", "CAREFREE_CARRIERS=some is not a number of carriers"),
        ("CAREFREE_TLS", "x", "CAREFREE_TLS=x is none of `own`, `shared` and `threads`"),
    ] {
        let output = carefree().arg("doctor").env(variable, value).output().unwrap();
        let said = stdout(&output);
        assert!(said.contains(why) && !said.contains("panicked"), "{said}");
        assert!(said.starts_with("Fibers do not work here.") && !output.status.success(), "{said}");
    }
}
