//! Slurm, by its own commands: which machines there are, and jobs for them.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use carefree_lab::printable;

use crate::args::Fleet;

/// How long one of its commands may take. They wait for a controller that is restarted.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most lines of what a command says against an order that are told.
const REASONS: usize = 4;

/// A task of an array, as Slurm has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// The array's number.
    pub(super) array: u64,
    pub(super) task: u32,
    pub(super) machine: String,
    /// `PENDING`, `NODE_FAIL`.
    pub(super) state: String,
}

impl Job {
    pub(super) fn is_over(&self) -> bool {
        let over = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "REVOKED",
            "TIMEOUT",
        ];
        over.contains(&&*self.state)
    }

    pub(super) fn is_running(&self) -> bool {
        ["RUNNING", "COMPLETING", "CONFIGURING"].contains(&&*self.state)
    }
}

/// The machines that were asked for.
///
/// # Errors
/// One line: Slurm is not here, or there is no such partition or machine.
pub(super) fn machines(orders: &Fleet) -> Result<Vec<String>> {
    let partitions = ask("sinfo", &["--noheader", "--format=%P"], "")?;
    let names: Vec<&str> = partitions.lines().map(|name| name.trim_end_matches('*')).collect();
    let partition = match &orders.partition {
        Some(partition) if names.contains(&&**partition) => partition.clone(),
        Some(partition) => bail!(
            "--partition {}: Slurm has no such partition; it has {}",
            partition.escape_debug(),
            names.join(", ")
        ),
        None => {
            let default = partitions.lines().find_map(|name| name.strip_suffix('*'));
            let default = default.map(str::to_owned);
            default.with_context(|| format!("name one with --partition: {}", names.join(", ")))?
        }
    };
    let option = format!("--partition={partition}");
    let all = ask("sinfo", &["--noheader", "--Node", "--format=%N", &option], "")?;
    let mut all: Vec<String> = all.lines().map(str::to_owned).collect();
    all.dedup();
    let Some(list) = &orders.nodes else {
        return Ok(all);
    };
    let wanted = ask("scontrol", &["show", "hostnames", list], "")
        .with_context(|| format!("--nodes {}", list.escape_debug()))?;
    let mut wanted: Vec<String> = wanted.lines().map(str::to_owned).collect();
    wanted.sort();
    wanted.dedup();
    if wanted.is_empty() {
        bail!("--nodes names no machine; partition {partition} has {}", shortened(&all));
    }
    match wanted.iter().find(|name| !all.contains(name)) {
        Some(unknown) => bail!(
            "--nodes {}: partition {partition} has no machine {unknown}; it has {}",
            list.escape_debug(),
            shortened(&all)
        ),
        None => Ok(wanted),
    }
}

/// The first of many names.
fn shortened(names: &[String]) -> String {
    match names.len() {
        0..=12 => names.join(", "),
        many => format!("{} and {} more", names[..12].join(", "), many - 12),
    }
}

/// Hands some tasks to one machine, and returns the array's number. The tasks run one at a time.
///
/// # Errors
/// What Slurm says against it.
pub(super) fn submit(
    (name, orders): (&str, &Fleet),
    machine: &str,
    tasks: &[u32],
    log: &Path,
    script: &str,
) -> Result<u64> {
    let numbers: Vec<String> = tasks.iter().map(u32::to_string).collect();
    let mut words = vec![
        "--parsable".to_owned(),
        format!("--job-name={name}"),
        format!("--array={}%1", numbers.join(",")),
        "--nodes=1".into(),
        format!("--nodelist={machine}"),
        // A machine that fails gets the task again when it is back.
        "--requeue".into(),
        "--open-mode=append".into(),
        format!("--output={}", log.display()),
        "--chdir=/".into(),
    ];
    words.extend(orders.partition.iter().map(|name| format!("--partition={name}")));
    if orders.exclusive.unwrap_or(true) {
        words.extend(["--exclusive".to_owned(), "--mem=0".to_owned()]);
    }
    words.extend(orders.sbatch.iter().cloned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = ask("sbatch", &words, script)?;
    let number = said.trim().split(';').next().unwrap_or_default();
    number.parse().with_context(|| format!("sbatch answered '{}'", said.trim().escape_debug()))
}

/// The jobs of a name, those that are over as long as Slurm remembers them.
///
/// # Errors
/// What Slurm says against it.
pub(super) fn jobs(name: &str) -> Result<Vec<Job>> {
    let option = format!("--name={name}");
    let columns = "--format=%F|%K|%T|%n";
    let said =
        ask("squeue", &["--noheader", "--me", "--array", "--states=all", &option, columns], "")?;
    Ok(said.lines().filter_map(job).collect())
}

fn job(line: &str) -> Option<Job> {
    let mut columns = line.split('|').map(str::trim);
    let mut next = || columns.next();
    let (array, task, state, machine) = (next()?, next()?, next()?, next()?);
    let (array, task) = (array.parse().ok()?, task.parse().ok()?);
    Some(Job { array, task, machine: machine.to_owned(), state: state.to_owned() })
}

/// How a task ended that Slurm's controller has forgotten, where Slurm keeps accounts.
pub(super) fn ended(array: u64, task: u32) -> Option<String> {
    let job = format!("--jobs={array}_{task}");
    let words = ["--noheader", "--parsable2", "--allocations", "--format=State", &job];
    let said = ask("sacct", &words, "").ok()?;
    // `CANCELLED by 0`
    Some(said.lines().last()?.split(' ').next()?.to_owned()).filter(|state| !state.is_empty())
}

/// The machines of these that cannot run anything at present.
///
/// # Errors
/// What Slurm says against it.
pub(super) fn down(machines: &[&str]) -> Result<Vec<String>> {
    let option = format!("--nodes={}", machines.join(","));
    let said = ask("sinfo", &["--noheader", "--Node", "--format=%N|%T", &option], "")?;
    let is_down = |state: &str| {
        let words = ["down", "drain", "fail", "unk", "power", "reboot", "maint"];
        state.ends_with('*') || words.iter().any(|word| state.starts_with(word))
    };
    let nodes = said.lines().filter_map(|line| line.split_once('|'));
    Ok(nodes.filter(|(_, state)| is_down(state)).map(|(name, _)| name.to_owned()).collect())
}

/// Cancels arrays.
///
/// # Errors
/// What Slurm says against it.
pub(super) fn cancel(arrays: &[u64]) -> Result<()> {
    for some in arrays.chunks(200) {
        let numbers: Vec<String> = some.iter().map(u64::to_string).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        ask("scancel", &numbers, "")?;
    }
    Ok(())
}

/// What one of Slurm's commands answers.
fn ask(program: &str, words: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for this program to handle.
        .process_group(0)
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow!(
                "there is no {program} here: --on slurm takes Slurm's commands (Debian: slurm-client)"
            ),
            _ => anyhow!("{program} cannot be run: {error}"),
        })?;
    // A command that ends without reading it tells why on standard error.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = ended_within(&mut child, PATIENCE)
        .with_context(|| format!("{program} did not answer within {} s", PATIENCE.as_secs()))?;
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
    };
    let (out, err) = (text(out), text(err));
    if status {
        return Ok(out);
    }
    // The reason may be the first line, before advice, or the last, behind details.
    let lines: Vec<&str> = err.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines[..] {
        [] => bail!("it gave no reason"),
        _ => bail!("{}", printable::line(&lines[..lines.len().min(REASONS)].join("; "))),
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    })
}

/// Whether it succeeded; nothing if it had to be ended.
fn ended_within(child: &mut Child, patience: Duration) -> Option<bool> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if begun.elapsed() < patience => thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squeue_are_read() {
        let found = job("17|3|NODE_FAIL|n1").expect("a job");
        assert_eq!((found.array, found.task, &*found.machine), (17, 3, "n1"));
        assert!(found.is_over() && !found.is_running());
        assert!(!job("17|3|PENDING|n1").expect("a job").is_over());
        // A job that is no array's, and a line cut short.
        assert_eq!(job("18|N/A|PENDING|n1"), None);
        assert_eq!(job("17|3|PEND"), None);
    }

    #[test]
    fn a_command_that_is_not_there_or_hangs_is_told() {
        let error = ask("no-such-sbatch", &[], "").expect_err("not there").to_string();
        assert!(error.contains("there is no no-such-sbatch here"), "{error}");
        let mut child = Command::new("sleep").arg("600").spawn().expect("sleep");
        assert_eq!(ended_within(&mut child, Duration::from_millis(20)), None);
        let script = r#"printf '\nno "such" \33[2J\nTry help\n' >&2; exit 3"#;
        let error = ask("sh", &["-c", script], "x").unwrap_err().to_string();
        assert_eq!(error, r#"no "such" \u{1b}[2J; Try help"#);
        assert_eq!(ask("cat", &[], "to be read").expect("it works"), "to be read");
    }
}
