//! `--image`, with an engine of shell script that runs an image's programs right here: what the
//! engine is asked for, and what becomes of its answers.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::{carefree, run, stderr, stdout};
use tempfile::TempDir;

/// As Debian's podman on a machine without the rights for its own choice of runtime: it answers,
/// and runs containers with `--runtime runc` alone.
const ENGINE: &str = r#"#!/bin/sh
here=${0%/*}
echo "$*" >> "$here/log"
[ "$1" = version ] && { echo 4.3.1; exit 0; }
[ "$1" = ps ] && { cat "$here/containers" 2>/dev/null; exit 0; }
[ "$1" = rm ] && exit 0
[ "$1 $2" = "--runtime runc" ] || { echo "crun: no such luck" >&2; exit 126; }
shift 2
case $1 in
inspect) echo 0; exit 0 ;;
kill) exit 0 ;;
esac
shift
while [ $# -gt 0 ]; do
    case $1 in
    fake:*|own/fork:*) shift; break ;;
    --name|--network|--ulimit|--security-opt|--volume|--env) shift 2 ;;
    *) shift ;;
    esac
done
PATH=$here/image/bin:/usr/bin:/bin
exec "$@"
"#;

const RUNTIME: &str = r#"#!/bin/sh
case $1 in
version) echo "fake version 7.2" ;;
sample) shift; exec sh "$@" ;;
esac
"#;

const TOML: &str = r#"schema = 1
name = "fake"
title = "Fake"
package = "apt install fake"
[find]
version = ["{runtime}", "version"]
after = "fake version "
[image]
names = ["fake"]
runtime = "fake"
[parts.compiler]
probe = ["{bin}/fakec"]
package = "apt install fakec"
[programs.units]
workloads = ["switch"]
needs = ["compiler"]
run = ["{runtime}", "sample", "{folder}/program.sh"]
[units.fiber]
role = "fiber"
what = "a shell that does as it is told"
"#;

const PROGRAM: &str = r#"
for order; do
    case $order in units=*|switches=*) eval "$order" ;; esac
done
made=$((units * switches))
echo "{\"sample\":{\"units\":$units,\"switches_asked\":$made,\"switches_made\":$made,\"rounds\":[{\"create_ns\":1000,\"run_ns\":2000}]}}"
"#;

struct Machine {
    top: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { top: tempfile::tempdir().expect("a folder") };
        let top = machine.top.path();
        fs::create_dir_all(top.join("targets/fake")).expect("made");
        fs::write(top.join("targets/fake/target.toml"), TOML).expect("written");
        fs::write(top.join("targets/fake/program.sh"), PROGRAM).expect("written");
        executable(&top.join("podman"), ENGINE);
        // The program is found by a link, as in the images of most runtimes.
        executable(&top.join("image/opt/fake/bin/fake"), RUNTIME);
        executable(&top.join("image/opt/fake/bin/fakec"), "#!/bin/sh\necho 3.1\n");
        fs::create_dir_all(top.join("image/bin")).expect("made");
        std::os::unix::fs::symlink("../opt/fake/bin/fake", top.join("image/bin/fake"))
            .expect("a link");
        machine
    }

    fn bench(&self, image: &str) -> Output {
        let targets = self.top.path().join("targets");
        carefree()
            .args(["bench", "switch", "--format", "json", "--samples", "2", "--image", image])
            .arg("--targets")
            .arg(targets)
            .env("PATH", format!("{}:/usr/bin:/bin", self.top.path().display()))
            .output()
            .expect("the program starts")
    }
}

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

/// Whether an engine of the machine's own would be asked before ours.
fn docker_answers() -> bool {
    let answer = std::process::Command::new("docker").args(["version"]).output();
    answer.is_ok_and(|answer| answer.status.success())
}

#[test]
fn a_runtime_in_an_image_is_measured_with_its_limits_lifted() {
    if docker_answers() {
        println!("skipped: docker answers before the engine of this test");
        return;
    }
    let machine = Machine::new();
    let output = machine.bench("fake:7");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = stdout(&output).lines();
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let samples: Vec<&Value> = lines.iter().filter(|line| line["type"] == "sample").collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0]["version"], "7.2 (fake:7)");

    let log = fs::read_to_string(machine.top.path().join("log")).expect("it was asked");
    let run = log.lines().rfind(|line| line.contains("program.sh")).expect("a sample");
    for order in [
        "--runtime runc run --rm",
        "--network none",
        "--ulimit nofile=20000:20000",
        "--ulimit nproc=32768:32768",
        "--pids-limit=-1",
        "--cpuset-cpus=",
        "/targets/fake:ro",
        "fake:7 fake sample",
    ] {
        assert!(run.contains(order), "{order} in {run}");
    }
    // The compiler stands beside the program itself, not beside the link.
    let part = lines.iter().find_map(|line| line["runtimes"][0]["parts"]["compiler"].as_str());
    assert_eq!(part, Some("3.1"), "{log}");
}

#[test]
fn an_image_of_ones_own_is_measured_under_a_name() {
    if docker_answers() {
        println!("skipped: docker answers before the engine of this test");
        return;
    }
    let machine = Machine::new();
    for (wish, version) in
        [("fake@patch=own/fork:dev", "7.2 (patch)"), ("fake=own/fork:dev", "7.2 (own/fork:dev)")]
    {
        let output = machine.bench(wish);
        assert!(output.status.success(), "{output:?}");
        let samples = stdout(&output).lines().filter(|line| line.contains("\"type\":\"sample\""));
        assert_eq!(samples.filter(|l| l.contains(&format!("\"{version}\""))).count(), 2);
    }
    let refusal = |wish: &str| {
        let output = machine.bench(wish);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        stderr(&output).to_owned()
    };
    let line = refusal("own/fork:dev");
    assert!(
        line.ends_with("say which runtime it has, as in --image ruby=own/fork:dev\n"),
        "{line}"
    );
    let line = refusal("fake@a b=own/fork:dev");
    assert!(line.starts_with("carefree: --image fake@a b: a name has letters"), "{line}");
    assert!(refusal("fak=own/fork:dev").starts_with("carefree: there is no runtime 'fak'"));
    assert!(refusal("fake=").contains("behind the = stands the image"));
}

#[test]
fn containers_of_runs_that_were_killed_are_removed() {
    if docker_answers() {
        println!("skipped: docker answers before the engine of this test");
        return;
    }
    let machine = Machine::new();
    assert!(machine.bench("fake:7").status.success());
    let log = || fs::read_to_string(machine.top.path().join("log")).expect("it was asked");
    let names: Vec<String> = log()
        .lines()
        .filter_map(|line| line.split("--name ").nth(1)?.split(' ').next().map(str::to_owned))
        .collect();
    // The lab that made these is gone; those of others, and of machines elsewhere, are left alone.
    let others = ["carefree-web", "carefree-0123456789ab-4026531836-7-8-0", "postgres"];
    let all: Vec<&str> = names.iter().map(String::as_str).chain(others).collect();
    fs::write(machine.top.path().join("containers"), all.join("\n")).expect("written");
    let output = machine.bench("fake:7");
    assert!(output.status.success(), "{output:?}");
    let removed: Vec<String> = log()
        .lines()
        .filter_map(|line| line.strip_prefix("rm --force ").map(str::to_owned))
        .collect();
    assert_eq!(removed, names);
    let said = format!("ended {} containers that a run which was killed had left", names.len());
    assert!(stderr(&output).contains(&said), "{output:?}");
}

#[test]
fn no_engine_is_a_clear_message() {
    // The tests have nothing in PATH.
    let output = run(["bench", "switch", "--image", "ruby:3.4"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "carefree: --image needs docker or podman, and neither answers: docker is not installed; \
         podman is not installed\n"
    );
}

#[test]
fn an_image_that_cannot_be_run_is_told_in_one_line() {
    if docker_answers() {
        println!("skipped: docker answers before the engine of this test");
        return;
    }
    let machine = Machine::new();
    let told = |image: &str| {
        let output = machine.bench(image);
        assert_eq!(output.status.code(), Some(2));
        stderr(&output).to_owned()
    };
    assert_eq!(
        told("other:1"),
        "carefree: no target says that it is in an image 'other:1': say which runtime it has, as in \
         --image ruby=other:1\n"
    );
    let engine = ENGINE.replace("exec \"$@\"", "echo no such image >&2; exit 125");
    executable(&machine.top.path().join("podman"), &engine);
    // Why neither the engine's own runtime worked nor the other one, which may not be installed.
    assert_eq!(
        told("fake:7"),
        "carefree: image fake:7 could not be run: crun: no such luck; with runc: no such image\n"
    );
    executable(&machine.top.path().join("podman"), "#!/bin/sh\necho no rights >&2\nexit 1\n");
    let line = told("fake:7");
    assert!(line.contains("neither answers") && line.contains("podman says: no rights"), "{line}");
}
