//! `carefree bench --on slurm`, by a real Slurm of two nodes on this machine's loopback address.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{carefree, stderr, stdout};
use tempfile::TempDir;

const NODES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slurm/two-nodes");

/// Where Slurm's commands and daemons are.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

/// Two nodes, which end with this.
struct Slurm {
    folder: TempDir,
}

impl Slurm {
    /// Starts them; `None` where Slurm is not installed or cannot run.
    fn start() -> Option<Slurm> {
        let there =
            |program: &str| PATH.split(':').any(|folder| Path::new(folder).join(program).exists());
        let missing = ["slurmctld", "slurmd", "sbatch", "munged"].into_iter().find(|p| !there(p));
        if let Some(missing) = missing {
            println!("skipped: slurm is not installed ({missing} is missing)");
            return None;
        }
        // What the script does to end a node with all that runs on it.
        let apart = ["--pid", "--fork", "--kill-child=KILL", "--mount-proc", "true"];
        if !Command::new("unshare").args(apart).output().is_ok_and(|o| o.status.success()) {
            println!("skipped: slurm takes root, and namespaces of process numbers");
            return None;
        }
        let slurm = Slurm { folder: tempfile::tempdir().expect("a folder") };
        slurm.order(&["start"]);
        Some(slurm)
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("slurm")
    }

    /// The folder of records.
    fn records(&self) -> PathBuf {
        self.folder.path().join("records")
    }

    fn order(&self, words: &[&str]) {
        let (order, rest) = words.split_first().expect("an order");
        let log = self.folder.path().join("two-nodes.log");
        // Not a pipe, which the daemons would hold open.
        let file = || fs::OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let mut command = Command::new("bash");
        command.arg(NODES).arg(order).arg(self.place()).args(rest).env("PATH", PATH);
        let status = command.stdin(Stdio::null()).stdout(file()).stderr(file()).status();
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(status.expect("bash").success(), "two-nodes {order}: {said}");
    }

    /// `carefree bench --on slurm` with small samples.
    fn bench(&self, more: &[&str]) -> Command {
        let mut command = carefree();
        command.args(["bench", "alloc", "--runtime", "carefree,rust", "--quick", "--units", "20"]);
        command.args(["--on", "slurm"]).arg("--record").arg(self.records()).args(more);
        command.env("PATH", PATH).env("SLURM_CONF", self.place().join("slurm.conf"));
        command
    }

    /// What one of Slurm's commands prints.
    fn ask(&self, program: &str, words: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(words).env("PATH", PATH);
        command.env("SLURM_CONF", self.place().join("slurm.conf"));
        let output = command.output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until something is so.
    fn until<T>(&self, what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = is_so() {
                return found;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {what}\n{}{}",
                self.ask("squeue", &["--states=all"]),
                self.ask("sinfo", &["-N", "-l"])
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The lines of samples that a machine has taken so far, in a task that is not over.
    fn taken(&self, machine: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for task in fs::read_dir(self.records().join("work")).into_iter().flatten().flatten() {
            if !task.file_name().to_string_lossy().ends_with(&format!("-{machine}")) {
                continue;
            }
            for file in fs::read_dir(task.path()).into_iter().flatten().flatten() {
                lines.extend(samples(&fs::read_to_string(file.path()).unwrap_or_default()));
            }
        }
        lines
    }

    /// The record of a machine that is done.
    fn record(&self, machine: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(self.records()).into_iter().flatten().flatten();
        let end = format!("-{machine}.jsonl");
        entries.map(|e| e.path()).find(|path| path.to_string_lossy().ends_with(&end))
    }

    /// Whether this machine's task is over, and says so.
    fn receipt(&self, machine: &str) -> Option<Value> {
        let mut path = self.record(machine)?.into_os_string().into_string().expect("text");
        path.truncate(path.len() - "jsonl".len());
        let text = fs::read_to_string(path + "receipt.json").ok()?;
        Some(serde_json::from_str(&text).expect("a receipt"))
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let mut command = Command::new("bash");
        let _ = command.arg(NODES).arg("stop").arg(self.place()).env("PATH", PATH).status();
    }
}

/// A run that ends with this.
struct Driver(Option<Child>);

impl Driver {
    fn start(mut command: Command) -> Driver {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Driver(Some(command.spawn().expect("the program starts")))
    }

    fn signal(&self, signal: i32) {
        let child = self.0.as_ref().expect("it runs");
        let id = i32::try_from(child.id()).expect("the number of a process");
        // SAFETY: this sends a signal to a child that has not been waited for.
        let sent = unsafe { libc::kill(id, signal) };
        assert_eq!(sent, 0);
    }

    fn output(mut self) -> Output {
        let child = self.0.take().expect("it runs");
        child.wait_with_output().expect("it ends")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn samples(text: &str) -> Vec<String> {
    let is_whole = |line: &&str| {
        line.starts_with("{\"type\":\"sample\"") && serde_json::from_str::<Value>(line).is_ok()
    };
    text.lines().filter(is_whole).map(str::to_owned).collect()
}

#[test]
fn two_machines_measure_side_by_side_and_once() {
    let Some(slurm) = Slurm::start() else { return };
    let output = slurm.bench(&["--samples", "2"]).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("\n  n1") && text.contains("\n  n2"), "{text}");
    assert!(text.contains("Across Machines: Thread by Fiber"), "{text}");
    assert!(stderr(&output).contains("2 of 2 tasks are done"), "{output:?}");

    // What is done is not measured again, and the machine that was added is.
    let before = fs::read(slurm.record("n1").expect("a record")).expect("there");
    let jobs = slurm.ask("squeue", &["--noheader", "--array", "--states=all"]);
    let output = slurm.bench(&["--samples", "2", "--nodes", "n[1-2]"]).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("2 of 2 tasks were done before"), "{output:?}");
    assert_eq!(fs::read(slurm.record("n1").expect("a record")).expect("there"), before);
    let again = slurm.ask("squeue", &["--noheader", "--array", "--states=all"]);
    assert_eq!(again.lines().count(), jobs.lines().count(), "{again}");

    // A machine alone in its partition, with a report in another format.
    let more = ["--samples", "3", "--partition", "half", "--format", "csv", "--exclusive=false"];
    let output = slurm.bench(&more).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("1 of 1 tasks are done"), "{output:?}");
}

#[test]
fn a_node_that_is_killed_in_mid_run_loses_nothing() {
    let Some(slurm) = Slurm::start() else { return };
    let driver = Driver::start(slurm.bench(&["--samples", "60"]));
    let before =
        slurm.until("samples of n2", || Some(slurm.taken("n2")).filter(|lines| lines.len() >= 4));
    slurm.order(&["kill", "n2"]);
    let at_its_end = slurm.taken("n2");
    assert!(at_its_end.len() < 180, "the run was over before the node was killed");
    // Slurm notices, and has the task wait for its machine.
    slurm.until("the task is requeued", || {
        let jobs = slurm.ask("squeue", &["--noheader", "--array", "--format=%n %T"]);
        jobs.lines().any(|line| line == "n2 PENDING").then_some(())
    });
    slurm.order(&["revive", "n2"]);
    let output = driver.output();
    assert!(output.status.success(), "{output:?}");
    for machine in ["n1", "n2"] {
        assert_eq!(slurm.receipt(machine).expect("a receipt")["complete"], true);
        let record = fs::read_to_string(slurm.record(machine).expect("a record")).expect("there");
        // A coroutine, a fiber and a thread.
        let failed: Vec<&str> =
            record.lines().filter(|line| line.contains("\"failure\"")).collect();
        assert_eq!(samples(&record).len(), 3 * 60, "on {machine}: {failed:?}");
        if machine == "n2" {
            let lost: Vec<&String> = before.iter().filter(|line| !record.contains(*line)).collect();
            assert!(lost.is_empty(), "{lost:?}");
            let kept = at_its_end.iter().filter(|line| record.contains(*line)).count();
            assert_eq!(kept, at_its_end.len(), "what was measured before is used");
        }
    }
}

#[test]
fn ctrl_c_cancels_the_jobs_and_the_same_command_goes_on() {
    let Some(slurm) = Slurm::start() else { return };
    let many = ["--samples", "400"];
    let driver = Driver::start(slurm.bench(&many));
    for machine in ["n1", "n2"] {
        slurm.until("samples", || (slurm.taken(machine).len() >= 3).then_some(()));
    }
    driver.signal(libc::SIGINT);
    let output = driver.output();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(stderr(&output).contains("cancelling this run's jobs"), "{output:?}");
    let jobs = slurm.ask("squeue", &["--noheader", "--array", "--format=%T"]);
    assert_eq!(jobs, "", "jobs are left");
    let kept = slurm.taken("n1").len();
    assert!(kept >= 3, "the samples are gone");
    assert!(
        stderr(&output).contains(" samples of 2 tasks that are not done are kept"),
        "{output:?}"
    );
    assert!(["n1", "n2"].iter().all(|machine| stdout(&output).contains(machine)), "{output:?}");
    let report = carefree().arg("report").arg(slurm.records()).output().expect("it runs");
    let said = stderr(&report);
    assert!(said.contains("no task is done") && said.contains("/work/"), "{said}");

    // It does go on: the next run finds the samples.
    let driver = Driver::start(slurm.bench(&many));
    let log = slurm.until("the task goes on", || {
        let logs = fs::read_dir(slurm.records().join("log")).expect("logs").flatten();
        let texts = logs.map(|log| fs::read_to_string(log.path()).unwrap_or_default());
        texts.into_iter().find(|text| text.contains("samples of earlier runs stand for"))
    });
    driver.signal(libc::SIGINT);
    assert_eq!(driver.output().status.code(), Some(130), "{log}");
}

#[test]
fn a_record_that_arrives_damaged_is_measured_again() {
    let Some(slurm) = Slurm::start() else { return };
    let driver = Driver::start(slurm.bench(&["--samples", "2"]));
    slurm.until("jobs", || {
        let jobs = slurm.ask("squeue", &["--noheader", "--array", "--states=all"]);
        (jobs.lines().count() == 2).then_some(())
    });
    // Stopped, it cannot look at the record before it is damaged.
    driver.signal(libc::SIGSTOP);
    slurm.until("a receipt", || slurm.receipt("n1"));
    let path = slurm.record("n1").expect("a record");
    let whole = fs::read(&path).expect("there");
    fs::write(&path, &whole[..whole.len() - 9]).expect("written");
    driver.signal(libc::SIGCONT);
    let output = driver.output();
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("is damaged; it is measured again"), "{output:?}");
    let record = fs::read_to_string(slurm.record("n1").expect("a record")).expect("there");
    assert_eq!(samples(&record).len(), 6);
    assert!(record.ends_with('\n'));
}

#[test]
fn what_slurm_does_not_have_is_told_in_one_line() {
    let refused = |output: &Output, said: &str| {
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(stderr(output).contains(said), "{output:?}");
        assert_eq!(stderr(output).lines().count(), 1, "{output:?}");
    };
    // Tests run it with an empty PATH.
    let output = support::run(["bench", "alloc", "--on", "slurm"]);
    refused(&output, "there is no sinfo here: --on slurm takes Slurm's");
    let Some(slurm) = Slurm::start() else { return };
    let run = |more: &[&str]| slurm.bench(more).output().expect("it starts");
    refused(
        &run(&["--partition", "nosuch"]),
        "--partition nosuch: Slurm has no such partition; it has lab, half",
    );
    refused(&run(&["--nodes", "n[1-3]"]), "partition lab has no machine n3; it has n1, n2");
    let half = ["--partition", "half", "--nodes", "n2"];
    refused(&run(&half), "partition half has no machine n2; it has n1");
    refused(&run(&["--sbatch=--account"]), "sbatch refuses the tasks: ");
    assert!(!slurm.records().join("work").exists());
}
