//! Runs a program in each mode, and compares the outcomes.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::known::{Known, known};
use crate::program::Program;
use crate::worker::{Hello, Job};

/// A way to run programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    pub name: &'static str,
    fibers: bool,
    variables: &'static [(&'static str, &'static str)],
}

const fn fibers(name: &'static str, variables: &'static [(&'static str, &'static str)]) -> Mode {
    Mode { name, fibers: true, variables }
}

/// The mode that the others are compared with.
pub const THREADS: Mode = Mode { name: "threads", fibers: false, variables: &[] };

/// The modes of fibers: those on one carrier, and those on two.
pub const FIBERS: [[Mode; 2]; 2] = [
    [
        fibers("io_uring, 1 carrier", &[("CAREFREE_REACTOR", "uring"), ("CAREFREE_CARRIERS", "1")]),
        fibers("epoll, 1 carrier", &[("CAREFREE_REACTOR", "epoll"), ("CAREFREE_CARRIERS", "1")]),
    ],
    [
        fibers(
            "io_uring, 2 carriers",
            &[("CAREFREE_REACTOR", "uring"), ("CAREFREE_CARRIERS", "2")],
        ),
        fibers("epoll, 2 carriers", &[("CAREFREE_REACTOR", "epoll"), ("CAREFREE_CARRIERS", "2")]),
    ],
];

/// Milliseconds before a call is taken to wait.
const PATIENCE: u64 = 20;
/// The same, when a difference is run again: longer than any call takes that does not wait.
const MORE_PATIENCE: u64 = 1000;
/// Seconds before a program is taken to hang.
const LIMIT: u32 = 40;
/// How much longer a worker may take to say so.
const GRACE: Duration = Duration::from_secs(30);
/// How often threads, and how often fibers, repeat a program that seems to differ.
const AGAIN: [usize; 2] = [5, 3];

/// The outcome of a program in one mode.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    Lines(Vec<String>),
    /// The worker has died or hangs: its last words.
    Died(String),
}

/// A process that runs programs.
#[derive(Debug)]
struct Worker {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    fn start(program: &Path, mode: Mode, directory: &Path) -> io::Result<(Worker, Hello)> {
        let errors = File::create(directory.join("errors"))?;
        let mut child = Command::new(program)
            .args(["worker", if mode.fibers { "fibers" } else { "threads" }])
            .arg(directory)
            .envs(mode.variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (send, lines) = channel();
        let mut output = BufReader::new(output.expect("it is piped"));
        thread::spawn(move || {
            let mut line = String::new();
            while output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                if send.send(std::mem::take(&mut line)).is_err() {
                    break;
                }
            }
        });
        let worker = Worker { child, input: input.expect("it is piped"), lines };
        let hello = worker.lines.recv_timeout(GRACE).map_err(io::Error::other)?;
        Ok((worker, serde_json::from_str(&hello)?))
    }

    fn run(&mut self, program: &Program, patience: u64) -> Option<Vec<String>> {
        let job = Job { program: program.clone(), patience, limit: LIMIT };
        let mut text = serde_json::to_string(&job).expect("it can be written");
        text.push('\n');
        self.input.write_all(text.as_bytes()).ok()?;
        let patience = Duration::from_secs(LIMIT.into()) + GRACE;
        serde_json::from_str(&self.lines.recv_timeout(patience).ok()?).ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Workers of all modes, which are started when they are needed.
#[derive(Debug)]
pub struct Workers {
    program: PathBuf,
    directory: TempDir,
    workers: Vec<(Mode, Option<Worker>)>,
    /// Whether there is a file system that is soon full.
    pub small: bool,
}

/// How a mode differs from threads.
#[derive(Clone, Debug)]
pub struct Difference {
    pub mode: Mode,
    pub threads: Made,
    pub fibers: Made,
    /// Of the times it was run again, how often it differed.
    pub again: (usize, usize),
}

/// What comparing has shown.
#[derive(Clone, Debug)]
pub enum Verdict {
    Same,
    /// Threads do not come to its end.
    Endless,
    /// They differ in what is known and accepted.
    Known(&'static Known),
    /// They differed once, and not again: it may depend on timing.
    Once(Box<Difference>),
    Differs(Box<Difference>),
}

impl Workers {
    /// Workers that run `program`, which is this crate's.
    ///
    /// # Errors
    /// When there is no place for files.
    pub fn new(program: &Path) -> io::Result<Workers> {
        let directory = tempfile::Builder::new().prefix("carefree-fuzz-").tempdir()?;
        let program = program.to_owned();
        Ok(Workers { program, directory, workers: Vec::new(), small: true })
    }

    /// Has `mode` run `program`.
    pub fn run(&mut self, mode: Mode, program: &Program, patience: u64) -> Made {
        let place = self.workers.iter().position(|(other, _)| *other == mode);
        let place = place.unwrap_or_else(|| {
            self.workers.push((mode, None));
            self.workers.len() - 1
        });
        let directory = self.directory.path().join(format!("{place}"));
        let worker = &mut self.workers[place].1;
        if worker.is_none() {
            let started = std::fs::create_dir_all(&directory)
                .and_then(|()| Worker::start(&self.program, mode, &directory));
            match started {
                Ok((started, hello)) => {
                    self.small &= hello.small;
                    *worker = Some(started);
                }
                Err(error) => return Made::Died(format!("it did not start: {error}")),
            }
        }
        let running = worker.as_mut().expect("it was started");
        match running.run(program, patience) {
            Some(lines) => Made::Lines(lines),
            None => {
                let status = running.child.try_wait().ok().flatten();
                *worker = None;
                let errors = std::fs::read(directory.join("errors")).unwrap_or_default();
                let errors = String::from_utf8_lossy(&errors);
                let status = status.map_or("no end".to_owned(), |status| status.to_string());
                Made::Died(format!("{status}\n{errors}"))
            }
        }
    }

    /// Compares what `modes` make of `program` with what threads do.
    pub fn compare(&mut self, program: &Program, modes: &[Mode]) -> Verdict {
        let threads = self.run(THREADS, program, PATIENCE);
        if matches!((&threads, program), (Made::Died(_), Program::Sequence(_))) {
            // The rescuer could not end one of its waits: there is nothing to compare with.
            return Verdict::Endless;
        }
        let mut verdict = Verdict::Same;
        for mode in modes {
            let fibers = self.run(*mode, program, PATIENCE);
            match self.look_closer(program, *mode, &threads, fibers) {
                Verdict::Same => {}
                Verdict::Differs(difference) => return Verdict::Differs(difference),
                other => verdict = other,
            }
        }
        verdict
    }

    fn look_closer(
        &mut self,
        program: &Program,
        mode: Mode,
        threads: &Made,
        fibers: Made,
    ) -> Verdict {
        match differ(program, threads, &fibers) {
            Differ::No => return Verdict::Same,
            Differ::Known(known) => return Verdict::Known(known),
            Differ::Yes => {}
        }
        let mut legal = vec![threads.clone()];
        legal.extend((0..AGAIN[0]).map(|_| self.run(THREADS, program, MORE_PATIENCE)));
        let is_legal = |made: &Made| {
            legal.iter().any(|legal| !matches!(differ(program, legal, made), Differ::Yes))
        };
        // What must hold for a crowd must hold always, and no program may crash.
        let sure = matches!(program, Program::Crowd(_)) || matches!(fibers, Made::Died(_));
        if is_legal(&fibers) {
            return Verdict::Same;
        }
        let mut latest = fibers;
        let mut times = 0;
        for _ in 0..AGAIN[1] {
            let made = self.run(mode, program, MORE_PATIENCE);
            if !is_legal(&made) {
                times += 1;
                latest = made;
            }
        }
        // Shown beside the threads' outcome that had as much patience.
        let threads = legal.last().expect("there is one").clone();
        let again = (times, AGAIN[1]);
        let difference = Box::new(Difference { mode, threads, fibers: latest, again });
        if times > 0 || sure { Verdict::Differs(difference) } else { Verdict::Once(difference) }
    }
}

enum Differ {
    No,
    Known(&'static Known),
    Yes,
}

/// The first line that differs.
fn place(one: &[String], other: &[String]) -> Option<usize> {
    let differ = one.iter().zip(other).position(|(one, other)| one != other);
    differ.or((one.len() != other.len()).then_some(one.len().min(other.len())))
}

fn differ(program: &Program, threads: &Made, fibers: &Made) -> Differ {
    let (Made::Lines(threads), Made::Lines(fibers)) = (threads, fibers) else { return Differ::Yes };
    let Some(at) = place(threads, fibers) else { return Differ::No };
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
    match known(program, at, &line(threads), &line(fibers)) {
        Some(known) => Differ::Known(known),
        None => Differ::Yes,
    }
}

/// The program and its outcomes, as text.
pub fn report(program: &Program, difference: &Difference) -> String {
    let mut text = String::new();
    let mut steps = Vec::new();
    match program {
        Program::Sequence(sequence) => {
            if let Some(limit) = sequence.file_limit {
                text += &format!("  files may have {limit} bytes\n");
            }
            if let Some(storm) = sequence.storm {
                text += &format!("  a storm of signals: {storm:?}\n");
            }
            for object in &sequence.objects {
                text += &format!("  open {object:?}\n");
            }
            steps.extend(
                sequence.steps.iter().map(|step| format!("{:?} {:?}", step.via, step.call)),
            );
        }
        Program::Crowd(crowd) => text += &format!("  {crowd:?}\n"),
    }
    let name = difference.mode.name;
    match (&difference.threads, &difference.fibers) {
        (Made::Lines(threads), Made::Lines(fibers)) => {
            for at in 0..threads.len().max(fibers.len()) {
                let nothing = String::new();
                let (one, other) =
                    (threads.get(at).unwrap_or(&nothing), fibers.get(at).unwrap_or(&nothing));
                let step = steps.get(at).cloned().unwrap_or_else(|| "at the end".to_owned());
                text += &format!("  {step}\n");
                if one == other {
                    text += &format!("      {one}\n");
                } else {
                    text += &format!("    threads: {one}\n    {name}: {other}  <-- differs\n");
                }
            }
        }
        (threads, fibers) => {
            text += &steps.iter().map(|step| format!("  {step}\n")).collect::<String>();
            for (name, made) in [("threads", threads), (name, fibers)] {
                match made {
                    Made::Lines(lines) => text += &format!("  {name}: {lines:?}\n"),
                    Made::Died(words) => text += &format!("  {name}: the worker died: {words}\n"),
                }
            }
        }
    }
    let (times, all) = difference.again;
    text + &format!("  run again, it differed {times} of {all} times\n")
}
