//! `carefree bench serve` from end to end, in every language that is installed, under loads that take
//! a moment; and servers that do not do what they are asked.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use support::{stderr, stdout};

/// Five requests, over four connections, and five idle ones.
const SMALL: [&str; 8] = ["--rate", "100", "--time", "50", "--connections", "4", "--idle", "5"];

/// One sample of each kind of server, under the small load where `more` says nothing else; programs are built in the folder
/// that crates/cli/tests/feed_fetch.rs has.
fn start(more: &[&str]) -> Child {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("programs");
    Command::new(env!("CARGO_BIN_EXE_carefree"))
        .args(["bench", "serve", "--samples", "1", "--format", "json", "--force"])
        .args(SMALL.chunks(2).filter(|order| !more.contains(&order[0])).flatten())
        .args(more)
        .env("XDG_CACHE_HOME", &cache)
        .env("XDG_DATA_HOME", &cache)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn end(child: Child) -> Output {
    child.wait_with_output().expect("the program ends")
}

/// The lines of one type.
fn lines(output: &Output, kind: &str) -> Vec<Value> {
    let all = stdout(output).lines().map(|line| serde_json::from_str(line).expect("JSON"));
    all.filter(|line: &Value| line["type"] == kind).collect()
}

fn word(line: &Value, key: &str) -> String {
    line[key].as_str().unwrap_or_default().to_owned()
}

/// Measures the servers of one runtime, checks what was asked of each, and returns their units.
fn measure(runtime: &str) -> Option<BTreeSet<String>> {
    let output = end(start(&["--runtime", runtime, "--backend-latency", "5"]));
    let absent = ["is not installed", "no runtime has these units"];
    if absent.iter().any(|words| stderr(&output).contains(words)) {
        println!("skipped: {runtime} is not installed");
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let (mut plain, mut backed) = (BTreeSet::new(), BTreeSet::new());
    for sample in lines(&output, "sample") {
        let (unit, version) = (word(&sample, "unit"), word(&sample, "version"));
        let p50 = sample["figures"]["latency_p50"].as_f64().expect("a figure");
        if sample["parameters"]["kind"] == "backend" {
            assert_eq!(sample["parameters"]["latency_ms"], 5, "{sample}");
            assert!(p50 >= 5e6, "{sample}");
            let answered = sample["proof"]["served"]["backend_answered"].as_u64();
            // The first hundred, the idle ones, those at the rate, and those made as fast as could be.
            assert!(answered.is_some_and(|count| count > 110), "{sample}");
            backed.insert((version, unit));
        } else {
            plain.insert((version, unit));
        }
        let served = &sample["proof"]["served"];
        assert_eq!(served["paced"]["requests"], 5, "{sample}");
        assert!(served["rushed"]["requests"].as_u64().is_some_and(|count| count >= 4), "{sample}");
        assert_eq!(served["idle"], 5, "{sample}");
        let figures = sample["figures"].as_object().expect("figures");
        for metric in ["latency_p50", "latency_p99", "cpu_per_request", "requests_per_second"] {
            assert!(figures[metric].as_f64().is_some_and(|value| value > 0.0), "{sample}");
        }
        assert!(figures.contains_key("memory_per_connection"), "{sample}");
        // Of five requests, none is the slowest of a thousand.
        assert!(!figures.contains_key("latency_p999"), "{sample}");
        assert_eq!(sample["parameters"]["rate"], 100, "{sample}");
    }
    assert_eq!(plain, backed, "{runtime}");
    Some(plain.into_iter().map(|(_, unit)| unit).collect())
}

/// Checks which units of a runtime serve, of those that are always there and those that may be.
fn check(runtime: &str, always: &[&str], perhaps: &[&str]) {
    let Some(units) = measure(runtime) else { return };
    for unit in always {
        assert!(units.contains(*unit), "{runtime}: {units:?}");
    }
    let known = |unit: &str| always.contains(&unit) || perhaps.contains(&unit);
    assert!(units.iter().all(|unit| known(unit)), "{runtime}: {units:?}");
}

#[test]
fn carefree() {
    check("carefree", &["fiber"], &[]);
}

#[test]
fn rust() {
    // The others need what is fetched from crates.io.
    check("rust", &["thread"], &["task", "may"]);
}

#[test]
fn python() {
    check("python", &["thread"], &["task", "thread (carefree)"]);
}

#[test]
fn go() {
    check("go", &["goroutine"], &[]);
}

#[test]
fn node() {
    check("node", &["async"], &[]);
}

#[test]
fn java() {
    check("java", &["platform"], &["virtual"]);
}

#[test]
fn erlang() {
    check("erlang", &["process"], &[]);
}

#[test]
fn ruby() {
    // The others are servers of gems.
    check("ruby", &["thread"], &["thread (carefree)", "puma", "puma (carefree)", "task"]);
}

#[test]
fn cpp() {
    // All of them need Boost.
    check("c++", &[], &["thread", "thread (carefree)", "coroutine", "task"]);
}

#[test]
fn csharp() {
    check("csharp", &["task", "thread"], &[]);
}

#[test]
fn d() {
    check("d", &["fiber", "thread"], &["thread (carefree)"]);
}

#[test]
fn php() {
    // It needs ReactPHP.
    check("php", &[], &["fiber"]);
}

#[test]
fn ocaml() {
    // OCaml 5, with cohttp for promises.
    check("ocaml", &[], &["promise", "thread", "thread (carefree)"]);
}

#[test]
fn lua() {
    // In whichever version its libraries are for.
    check("lua@all", &[], &["cqueue"]);
}

/// A target whose runtime is Python, which can listen.
const TOML: &str = r#"schema = 1
name = "broken"
title = "Broken"
package = "apt install python3"
[find]
path = ["python3"]
version = ["{runtime}", "-c", "import platform; print(platform.python_version())"]
[programs.serve]
workloads = ["serve"]
run = ["{runtime}", "{folder}/serve.py"]
"#;

const PROGRAM: &str = r#"
import http.client, json, os, socket, sys, threading, time

orders = dict(argument.split("=", 1) for argument in sys.argv[1:])
unit = orders["unit"]
server = socket.create_server(("127.0.0.1", 0), backlog=64)
seen = 0

def ask(target):
    connection = http.client.HTTPConnection(orders["backend"].removeprefix("http://"))
    connection.request("GET", target)
    body = connection.getresponse().read().decode()
    connection.close()
    return body

def work():
    until = time.thread_time() + (0.3 if unit == "ceremonious" else 0)
    while time.thread_time() < until:
        pass

def attend(stream):
    work()
    answer(stream)
    work()

def answer(stream):
    global seen
    answered = 0
    for line in stream.makefile("rb"):
        if not line.startswith(b"GET"):
            continue
        seen += 1
        target = line.split()[1].decode()
        if unit == "crash" and seen == 50:
            os._exit(7)
        if unit == "selfish" and seen == 50:
            stream.shutdown(socket.SHUT_RDWR)
            return
        body = f"carefree {target if unit != 'liar' or seen < 50 else '/1'}\n"
        if unit in ("wasteful", "diligent") and "backend" in orders:
            body = ask(target)
        if unit == "wasteful" and target == "/50":
            ask(target)
        answered += 1
        last = "Connection: close\r\n" if unit == "forgetful" and answered == 60 else ""
        stream.sendall(f"HTTP/1.1 200 OK\r\n{last}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        if last:
            stream.shutdown(socket.SHUT_RDWR)
            return

def accept():
    while True:
        threading.Thread(target=attend, args=(server.accept()[0],), daemon=True).start()

threading.Thread(target=accept, daemon=True).start()
if unit != "shy":
    port = {} if unit == "secretive" else {"port": server.getsockname()[1]}
    print(json.dumps({"phase": "serving", **port}), flush=True)
    sys.stdin.readline()
if unit == "stubborn":
    time.sleep(1000)
print('{"sample":{"units":1,"switches_asked":0,"switches_made":0,"rounds":[]}}')
"#;

/// A run of units of the broken target, in a folder that is there until it has ended.
struct Run {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Run {
    /// Starts one of these units, which serve as `serve` in their table says.
    fn start(kind: &str, serve: &str, units: &[&str], more: &[&str]) -> Option<Run> {
        if Command::new("python3").arg("--version").output().is_err() {
            println!("skipped: python3 is not installed");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("broken");
        fs::create_dir(&target).expect("a folder");
        let table =
            |unit| format!("[units.{unit}]\nrole = \"thread\"\nwhat = \"a server\"\n{serve}\n");
        let tables: String = units.iter().map(table).collect();
        fs::write(target.join("target.toml"), format!("{TOML}{tables}")).expect("a file");
        fs::write(target.join("serve.py"), PROGRAM).expect("a file");
        let place = folder.path().to_str().expect("a plain path");
        let orders = ["--targets", place, "--runtime", "broken", "--kind", kind];
        let orders = [&orders[..], &["--backend-latency", "1"]].concat();
        let orders = if kind == "plain" { &orders[..6] } else { &orders };
        Some(Run { child: start(&[orders, more].concat()), _folder: folder })
    }

    /// What it printed, and what failed, with its message. Something did.
    fn failures(self) -> (Output, Vec<(String, String)>) {
        let output = end(self.child);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let failures = lines(&output, "failure");
        let told = failures.iter().map(|line| (word(line, "unit"), word(line, "message")));
        let told = told.collect();
        (output, told)
    }
}

fn measured(output: &Output) -> Vec<String> {
    lines(output, "sample").iter().map(|sample| word(sample, "unit")).collect()
}

/// The lab waits 10 seconds for it. By its name this is one of the first tests, so that others run
/// meanwhile.
#[test]
fn a_late_end_is_a_failure() {
    let Some(stubborn) = Run::start("plain", "", &["stubborn"], &[]) else { return };
    let (output, failures) = stubborn.failures();
    let [(_, why)] = &failures[..] else { panic!("{failures:?}") };
    assert!(why.contains("had not ended 10 s after it was told to"), "{why}");
    assert!(measured(&output).is_empty());
}

#[test]
fn servers_that_do_not_serve_are_failures_and_the_others_go_on() {
    let units = ["liar", "selfish", "crash", "shy", "secretive", "honest"];
    let Some(others) = Run::start("plain", "", &units, &[]) else { return };
    let (output, failures) = others.failures();
    for (unit, words) in [
        ("liar", "was answered by \"carefree /1\\n\""),
        ("selfish", "closed a connection that was to be kept"),
        ("crash", "the server ended while it was to serve"),
        ("shy", "stop at the phases serving; it stopped at: none"),
        ("secretive", "the server names no port"),
    ] {
        let found = failures.iter().find(|(name, _)| name == unit);
        assert!(found.is_some_and(|(_, why)| why.contains(words)), "{unit}: {failures:?}");
    }
    assert_eq!(measured(&output), ["honest"]);
}

#[test]
fn a_server_asks_its_backend_once_for_each_request() {
    let serve = "serve = [\"plain\", \"backend\"]";
    let units = ["wasteful", "honest", "diligent"];
    let Some(run) = Run::start("backend", serve, &units, &[]) else { return };
    let (output, failures) = run.failures();
    for (unit, words) in [
        // It makes the answer up, and that is right for a plain server alone.
        (
            "honest",
            "request 1 was answered by \"carefree /1\\n\" (12 bytes), not by \"carefree /1 ",
        ),
        ("wasteful", "it was to ask once for each"),
    ] {
        let found = failures.iter().find(|(name, _)| name == unit);
        assert!(found.is_some_and(|(_, why)| why.contains(words)), "{unit}: {failures:?}");
    }
    assert_eq!(measured(&output), ["diligent"]);
}

#[test]
fn a_server_that_knows_no_backend_is_left_out_in_a_line() {
    let Some(run) = Run::start("backend", "", &["honest"], &[]) else { return };
    let output = end(run.child);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(
            "honest is left out of serve with --kind backend: its program is no such server"
        ),
        "{said}"
    );
}

/// Of nine idle connections and of five, one of three is left.
#[test]
fn a_server_that_holds_few_idle_connections_is_given_as_few_and_the_report_says_so() {
    let limit = "max_idle = { most = 3, why = \"its select takes no more\" }";
    let Some(run) = Run::start("plain", limit, &["honest"], &["--idle", "5,9"]) else { return };
    let output = end(run.child);
    assert!(output.status.success(), "{}", stderr(&output));
    let samples = lines(&output, "sample");
    let idle: Vec<&Value> = samples.iter().map(|sample| &sample["parameters"]["idle"]).collect();
    assert_eq!(idle, [3], "{samples:?}");
    assert_eq!(samples[0]["proof"]["served"]["idle"], 3);
    let said = lines(&output, "warning");
    let words = "honest holds 3 idle connections at most: its select takes no more";
    assert!(said.iter().any(|line| word(line, "message").contains(words)), "{said:?}");
}

/// What is asked of it otherwise stays: that it answers at once, and that it asks a backend.
#[test]
fn a_server_that_holds_few_idle_connections_is_measured_in_both_kinds() {
    let table = "serve = [\"plain\", \"backend\"]\n\
                 max_idle = { most = 3, why = \"its select takes no more\" }";
    let Some(run) = Run::start("plain,backend", table, &["diligent"], &[]) else { return };
    let output = end(run.child);
    assert!(output.status.success(), "{}", stderr(&output));
    let samples = lines(&output, "sample");
    let kinds: BTreeSet<String> =
        samples.iter().map(|sample| word(&sample["parameters"], "kind")).collect();
    assert_eq!(kinds, BTreeSet::from(["plain".to_owned(), "backend".to_owned()]), "{samples:?}");
    assert_eq!(samples.len(), 2, "{samples:?}");
}

/// Its server closes each connection after sixty answers, and says so.
#[test]
fn a_server_that_closes_connections_now_and_then_is_measured_and_the_report_says_so() {
    let orders = ["--connections", "1", "--idle", "1"];
    let Some(run) = Run::start("plain", "", &["forgetful"], &orders) else { return };
    let output = end(run.child);
    assert!(output.status.success(), "{}", stderr(&output));
    let samples = lines(&output, "sample");
    let [sample] = &samples[..] else { panic!("{samples:?}") };
    let served = &sample["proof"]["served"];
    assert!(served["closed"].as_u64().is_some_and(|count| count >= 1), "{served}");
    let notes = sample["proof"]["notes"].as_array().expect("notes");
    let words = "closes a connection after some number of requests";
    assert!(notes.iter().any(|note| note.as_str().is_some_and(|n| n.contains(words))), "{sample}");
}

/// Its server works for .3 s when a connection begins, and again when it ends.
#[test]
fn what_connections_take_to_begin_and_to_end_is_no_part_of_a_request() {
    let orders = ["--connections", "3", "--idle", "1"];
    let Some(run) = Run::start("plain", "", &["ceremonious"], &orders) else { return };
    let output = end(run.child);
    assert!(output.status.success(), "{}", stderr(&output));
    let samples = lines(&output, "sample");
    let served = &samples[0]["proof"]["served"];
    let used = served["cpu_ns"].as_u64().expect("processor time");
    let slowest = served["paced"]["most_ns"].as_u64().expect("a time");
    assert!(used < 280_000_000 && slowest < 280_000_000, "{served}");
}

#[test]
fn a_load_for_each_value_and_reports_in_words() {
    let output = Command::new(env!("CARGO_BIN_EXE_carefree"))
        .args(["bench", "serve", "--samples", "1", "--runtime", "carefree", "--idle", "5,6"])
        .args(["--rate", "100,200", "--time", "50", "--connections", "4", "--force"])
        .args(["--kind", "plain,backend", "--backend-latency", "1"])
        .env("XDG_DATA_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for words in ["Serving HTTP", " 100 requests a second", "Latency counts from when"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let loads =
        ["200 requests a second", "5 idle", "6 idle", "plain answer", "waits 1 ms for a backend"];
    for words in loads {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn loads_that_make_no_sense_are_refused() {
    for (order, value, right) in [
        ("--rate", "0", "0 is not in 1..=1000000"),
        ("--time", "5", "5 is not in 10..=60000"),
        ("--idle", "0", "0 is not in 1..=20000"),
        ("--connections", "-1", "'--connections <N>'"),
        ("--kind", "slow", "possible values: plain, backend"),
        ("--backend-latency", "6000", "6000 is not in 0..=5000"),
    ] {
        let output = support::run(["bench", "serve", order, value]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = stderr(&output);
        assert!(said.contains(right), "{order}: {said}");
    }
    let orders = ["bench", "serve", "--kind", "plain", "--backend-latency", "5"];
    let output = support::run(orders);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("is of servers with a backend"), "{output:?}");
}

/// Runs under limits on open files, soft and hard.
#[test]
fn the_limit_on_files_is_raised_as_far_as_it_may_be_and_else_named() {
    let serve = |soft: u64, hard: u64| {
        let carefree = env!("CARGO_BIN_EXE_carefree");
        let command = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec {carefree} \"$@\"");
        Command::new("sh")
            .args(["-c", &command, "sh", "bench", "serve", "--samples", "1", "--force"])
            .args(["--runtime", "carefree", "--kind", "plain", "--idle", "100"])
            .args(["--connections", "4", "--rate", "100", "--time", "10"])
            .env("XDG_DATA_HOME", env!("CARGO_TARGET_TMPDIR"))
            .output()
            .expect("sh starts")
    };
    let raised = serve(64, 400);
    assert!(raised.status.success(), "{}", stderr(&raised));
    let refused = serve(64, 300);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = stdout(&refused);
    for words in
        ["100 idle connections cannot be had: 308 files are needed, 300 allowed", "ulimit -Hn 308"]
    {
        assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{said}");
    }
}
