//! `carefree bench feed fetch` from end to end, in every language that is installed, at sizes that
//! take a moment; and programs that do not do what they report.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use carefree_testing::artifact;
use serde_json::Value;
use support::{stderr, stdout};

/// Those of `SMALL` that one of the two has; the other refuses them.
fn small(workload: &str) -> &'static [&'static str] {
    if workload == "feed" { &SMALL[..4] } else { &SMALL[4..] }
}

/// One sample of each, of the smallest sizes that tell anything.
const SMALL: [&str; 8] =
    ["--people", "1,3", "--nutrients", "4", "--requests", "3", "--latency", "1"];

/// The program under test, which finds what this machine has and builds it in a folder that it
/// shares with crates/lab/tests/languages.rs: each program is built once for both.
fn bench(more: &[&str]) -> Output {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("programs");
    Command::new(env!("CARGO_BIN_EXE_carefree"))
        .args(["bench", "--samples", "1", "--format", "json", "--force"])
        .args(more)
        .env("XDG_CACHE_HOME", &cache)
        .env("XDG_DATA_HOME", &cache)
        .output()
        .expect("the program starts")
}

/// The lines of one type.
fn lines(output: &Output, kind: &str) -> Vec<Value> {
    let all = stdout(output).lines().map(|line| serde_json::from_str(line).expect("JSON"));
    all.filter(|line: &Value| line["type"] == kind).collect()
}

fn word(line: &Value, key: &str) -> String {
    line[key].as_str().unwrap_or_default().to_owned()
}

/// Measures both workloads in one runtime, checks every sample's proof, and returns the names of
/// the units that fetched and the ways in which people were fed.
fn measure(runtime: &str, more: &[&str]) -> Option<(BTreeSet<String>, BTreeSet<String>)> {
    let output = bench(&[&SMALL, &["feed", "fetch", "--runtime", runtime][..], more].concat());
    // Or not a part of it that all its units need.
    let absent = ["is not installed", "no runtime has these units"];
    if absent.iter().any(|words| stderr(&output).contains(words)) {
        println!("skipped: {runtime} is not installed");
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let (mut fetched, mut fed) = (BTreeSet::new(), BTreeSet::new());
    for sample in lines(&output, "sample") {
        let (proof, parameters) = (&sample["proof"], &sample["parameters"]);
        if sample["workload"] == "feed" {
            fed.insert(word(parameters, "how"));
            let people = parameters["people"].as_u64().expect("people");
            assert_eq!(proof["eaten"], 3 * people * 4, "{sample}");
            continue;
        }
        fetched.insert(word(&sample, "unit"));
        let server = &proof["server"];
        assert_eq!(proof["requests"], server["answered"], "{sample}");
        assert_eq!(server["failed"], 0, "{sample}");
        let kept = word(&sample, "unit").ends_with("keep-alive");
        let connections = server["connections"].as_u64().expect("a number");
        if kept {
            assert!(connections <= 3, "{sample}");
        } else {
            assert_eq!(proof["requests"], connections, "{sample}");
        }
        let figures = sample["figures"].as_object().expect("figures");
        for metric in ["time", "requests_per_second", "peak_memory"] {
            assert!(figures[metric].as_f64().is_some_and(|value| value > 0.0), "{sample}");
        }
    }
    Some((fetched, fed))
}

/// The first of the ways in which every runtime fetches, and those of its units.
fn ways(units: &[&str]) -> BTreeSet<String> {
    let kept = |unit: &&str| [(*unit).to_owned(), format!("{unit}+keep-alive")];
    ["sequential".to_owned(), "keep-alive".to_owned()]
        .into_iter()
        .chain(units.iter().flat_map(kept))
        .collect()
}

fn words(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

const ALL_WAYS: [&str; 4] = ["fibers", "hybrid", "processes", "threads"];

#[test]
fn our_own_fibers_and_threads() {
    let (fetched, fed) = measure("carefree", &[]).expect("it is here");
    assert_eq!(fetched, words(&["fiber", "fiber+keep-alive"]));
    assert_eq!(fed, words(&ALL_WAYS[..3]));
    // Chunked, byte by byte, and more than one chunk of it.
    let fetch = ["--encoding", "chunked", "--read-size", "1", "--body", "700", "--unit", "thread"];
    let output = bench(&[small("fetch"), &["fetch", "--runtime", "rust"], &fetch].concat());
    assert!(output.status.success(), "{output:?}");
    let samples = lines(&output, "sample");
    assert!(!samples.is_empty());
    for sample in samples {
        assert_eq!(sample["parameters"]["encoding"], "chunked");
        assert_eq!(sample["parameters"]["read_size"], 1);
        let answered = sample["proof"]["server"]["answered"].as_u64().expect("a number");
        assert_eq!(sample["proof"]["body_bytes"], answered * 700, "{sample}");
        assert!(sample["figures"]["bytes_allocated"].as_f64().is_some_and(|bytes| bytes > 700.0));
    }
}

#[test]
fn tokio_and_may() {
    if let Some((fetched, fed)) = measure("rust", &["--unit", "task,may"]) {
        assert_eq!(fetched, words(&["may", "may+keep-alive", "task", "task+keep-alive"]));
        assert_eq!(fed, words(&ALL_WAYS[..3]));
    }
}

#[test]
fn python() {
    if let Some((fetched, fed)) = measure("python", &["--unit", "thread"]) {
        assert_eq!(fetched, ways(&["thread"]));
        assert_eq!(fed, words(&["threads"]));
    }
    // What else there is depends on what is installed beside it.
    if let Some((fetched, fed)) = measure("python", &["--unit", "task"]) {
        assert!(fetched.is_subset(&ways(&["task"])), "{fetched:?}");
        assert_eq!(fed, words(&ALL_WAYS[..3]));
    }
}

#[test]
fn ruby() {
    if let Some((fetched, fed)) = measure("ruby", &["--unit", "thread,fiber"]) {
        // A fiber without a scheduler cannot wait for a socket; one of the async gem, where it is
        // installed, can.
        assert!(fetched.is_superset(&ways(&["thread"])), "{fetched:?}");
        assert!(fetched.is_subset(&ways(&["thread", "task"])), "{fetched:?}");
        assert_eq!(fed, words(&ALL_WAYS));
    }
}

#[test]
fn go() {
    if let Some((fetched, fed)) = measure("go", &[]) {
        assert_eq!(fetched, ways(&["goroutine", "thread"]));
        assert_eq!(fed, words(&ALL_WAYS));
    }
}

#[test]
fn java() {
    if let Some((fetched, fed)) = measure("java", &["--unit", "platform"]) {
        assert_eq!(fetched, words(&["platform", "platform+keep-alive"]));
        assert_eq!(fed, words(&["threads"]));
    }
}

#[test]
fn node() {
    if let Some((fetched, fed)) = measure("node", &["--unit", "async"]) {
        assert!(fetched.is_superset(&words(&["async", "async+keep-alive"])), "{fetched:?}");
        assert_eq!(fed, words(&ALL_WAYS[..3]));
    }
}

#[test]
fn d() {
    if let Some((fetched, fed)) = measure("d", &["--unit", "thread,fiber"]) {
        assert_eq!(fetched, ways(&["thread"]));
        assert_eq!(fed, words(&ALL_WAYS));
    }
}

/// The threads of programs that know nothing of fibers, as fibers.
#[test]
fn threads_under_carefree_run() {
    artifact::preload();
    for runtime in ["python", "ruby", "d"] {
        if let Some((fetched, fed)) = measure(runtime, &["--unit", "thread (carefree)"]) {
            assert!(fetched.is_superset(&words(&["thread (carefree)"])), "{fetched:?}");
            assert_eq!(fed, words(&["fibers"]));
        }
    }
}

#[test]
fn erlang() {
    if let Some((fetched, fed)) = measure("erlang", &[]) {
        assert!(fetched.is_subset(&ways(&["process"])), "{fetched:?}");
        assert_eq!(fed, words(&ALL_WAYS[..2]));
    }
}

#[test]
fn cpp() {
    if let Some((fetched, fed)) = measure("c++", &["--unit", "thread"]) {
        assert!(fetched.is_empty(), "{fetched:?}");
        assert_eq!(fed, words(&["threads"]));
    }
}

#[test]
fn php_and_lua() {
    for runtime in ["php", "lua"] {
        if let Some((fetched, fed)) = measure(runtime, &[]) {
            assert!(fetched.is_empty(), "{fetched:?}");
            assert_eq!(fed, words(&["fibers"]));
        }
    }
}

/// A target whose runtime is bash, which can open connections.
const TOML: &str = r#"schema = 1
name = "broken"
title = "Broken"
package = "apt install bash"
[find]
path = ["bash"]
version = ["{runtime}", "-c", "echo $BASH_VERSION"]
[programs.both]
workloads = ["feed", "fetch"]
run = ["{runtime}", "{folder}/both.sh"]
"#;

const PROGRAM: &str = r#"
for order; do eval "${order%%=*}='${order#*=}'"; done
[ "$phases" = 1 ] && for phase in base done; do echo "{\"phase\":\"$phase\"}"; read -r _; done
asked=$((yields * units * ${nutrients:-0} * rounds))
times='"switches_asked":ASKED,"switches_made":0,"rounds":[TIMES],"warmup":{"rounds":WARM,"ns":1}'
list=$(for i in $(seq "$rounds"); do printf '{"create_ns":0,"run_ns":5},'; done)
times=${times/TIMES/${list%,}}
times=${times/WARM/$warmup}
times=${times/ASKED/$asked}
if [ "$workload" = feed ]; then
    eaten=$((3 * units * nutrients * rounds))
    [ "$unit" = hungry ] && eaten=$((eaten - 1))
    echo "{\"sample\":{\"units\":$units,$times,\"eaten\":$eaten}}"
    exit
fi
address=${url#http://}; address=${address%/}
connect() { exec 3<>"/dev/tcp/${address%:*}/${address#*:}"; }
ask() { printf 'GET / HTTP/1.1\r\nHost: lab\r\nConnection: %s\r\n\r\n' "$1" >&3; }
receive() {
    while read -r -u 3 line && [ "$line" != $'\r' ]; do :; done
    read -r -N "$body" -u 3 text
}
requests=$((units * (rounds + warmup)))
for i in $(seq $requests); do
    case $unit in
    liar) ;;
    selfish) [ "$i" = 1 ] && connect; ask keep-alive; receive ;;
    wasteful) connect; ask keep-alive; receive ;;
    rude) connect; printf 'GET / HTTP/1.1\r\n\r\n' >&3; receive ;;
    crash) connect; ask close; kill -SEGV $$ ;;
    *)
        if [ "$keep_alive" = 1 ]; then
            [ "$i" = 1 ] && connect
            ask keep-alive
        else
            connect; ask close
        fi
        receive ;;
    esac
done
bytes=$((requests * body))
[ "$unit" = deaf ] && bytes=$((bytes - 7))
echo "{\"sample\":{\"units\":$units,$times,\"requests\":$requests,\"body_bytes\":$bytes}}"
"#;

/// Runs the broken target's `units`, and returns what failed with its message.
fn broken(workload: &str, units: &[&str]) -> Option<(Output, Vec<(String, String)>)> {
    if Command::new("bash").arg("-c").arg("true").status().is_err() {
        println!("skipped: bash is not installed");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("broken");
    fs::create_dir(&target).expect("a folder");
    let tables: String = units
        .iter()
        .map(|unit| format!("[units.{unit}]\nrole = \"thread\"\nwhat = \"a shell\"\n"))
        .collect();
    fs::write(target.join("target.toml"), format!("{TOML}{tables}")).expect("a file");
    fs::write(target.join("both.sh"), PROGRAM).expect("a file");
    let place = folder.path().to_str().expect("a plain path");
    let broken = [workload, "--targets", place, "--runtime", "broken"];
    let output = bench(&[small(workload), &broken].concat());
    let failures = lines(&output, "failure");
    let told = failures.iter().map(|line| (word(line, "unit"), word(line, "message"))).collect();
    Some((output, told))
}

#[test]
fn clients_that_do_other_work_than_ordered_are_refused_and_the_others_go_on() {
    let units = ["liar", "deaf", "selfish", "wasteful", "rude", "crash", "honest"];
    let Some((output, failures)) = broken("fetch", &units) else { return };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = |unit: &str| {
        let found = failures.iter().find(|(name, _)| name == unit);
        found.map(|(_, message)| message.as_str()).unwrap_or("no failure")
    };
    assert!(told("liar").ends_with("made 18 requests; the server answered 0"), "{failures:?}");
    assert!(told("deaf").contains("received 18,425 bytes of bodies; the server sent 18,432"));
    assert!(told("selfish").starts_with("1 connections for 18 requests"), "{failures:?}");
    assert!(told("wasteful+keep-alive").starts_with("18 connections for 3"), "{failures:?}");
    assert!(told("rude").ends_with("the server answered 0"), "{failures:?}");
    assert!(told("crash").contains("SIGSEGV"), "{failures:?}");
    let measured: BTreeSet<String> =
        lines(&output, "sample").iter().map(|sample| word(sample, "unit")).collect();
    for unit in ["honest", "honest+keep-alive", "sequential", "keep-alive"] {
        assert!(measured.contains(unit), "{unit} is missing: {failures:?}");
    }
}

#[test]
fn a_program_that_does_not_feed_all_people_is_refused() {
    let Some((output, failures)) = broken("feed", &["hungry", "honest"]) else { return };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(failures.iter().all(|(unit, _)| unit == "hungry"), "{failures:?}");
    assert!(failures.iter().any(|(_, why)| why.contains("they ate: 35")), "{failures:?}");
    assert_eq!(lines(&output, "sample").len(), 4, "the honest one has two points of two kinds");
}

#[test]
fn points_left_out_for_want_of_time_are_told_of() {
    // Ten million times the work of the second point, which takes no time at all.
    let output = bench(&[
        "feed",
        "--runtime",
        "carefree",
        "--unit",
        "coroutine",
        "--quick",
        "--people",
        "1000",
        "--nutrients",
        "1,10,100000000",
    ]);
    assert!(output.status.success(), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("coroutine feed: 6 points are left out for want of time"), "{said}");
    assert_eq!(lines(&output, "sample").len(), 12);
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    for (order, value, right) in [
        ("--requests", "0", "0 is not in 1..=4000"),
        ("--latency", "-1", "'--latency <MS>'"),
        ("--encoding", "gzip", "[possible values: fixed, chunked]"),
        ("--people", "0", "0 is not in 1..=1000000"),
    ] {
        let output = support::run(["bench", "fetch", order, value]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = stderr(&output);
        assert!(said.contains(right), "{order}: {said}");
    }
}
