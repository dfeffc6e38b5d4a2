//! The process that takes one sample: started, listened to, looked at, and waited for.

use std::ffi::CString;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use carefree_workloads::answer::{Answer, Failure};
use carefree_workloads::sys::Usage;
use nix::sys::signal::Signal;
use serde::Deserialize;

use crate::folder::Folder;
use crate::leftovers;
use crate::memory::{Group, Memory, Meter};
use crate::printable;
use crate::sample::astray;
use crate::served::Served;
use crate::serving::{self, Load, Look};
use crate::sys;

/// How to start a sample's process.
#[derive(Debug)]
pub struct Launch {
    /// The program with its orders; the lab adds the rest.
    pub command: Command,
    /// Where it runs in a container: how to find it from outside, and how to end it.
    pub container: Option<Box<dyn Container>>,
    /// Whether it gets a folder of its own to run in, and does not run where the lab was started.
    pub is_apart: bool,
}

impl Launch {
    /// A program of this machine.
    pub fn plain(command: Command) -> Launch {
        Launch { command, container: None, is_apart: true }
    }
}

/// A container that a sample runs in.
pub trait Container: fmt::Debug {
    /// The sample's process, by its number outside, and the control group it has for itself.
    fn process(&self) -> Option<(u32, Option<std::path::PathBuf>)>;
    /// Ends it.
    fn end(&self);
}

/// What a process left behind.
#[derive(Debug)]
pub(crate) struct Remains {
    /// Its number.
    pub(crate) process: u32,
    /// What it printed last, and whether that was an answer.
    pub(crate) last: String,
    /// The end of what it said on standard error.
    pub(crate) complaint: String,
    pub(crate) status: ExitStatus,
    /// What it used in all.
    pub(crate) usage: Usage,
    /// What was seen of it from outside.
    pub(crate) seen: Seen,
}

/// What the lab saw of a process, whatever that says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// From its start to its end.
    pub(crate) elapsed: Duration,
    /// The phases at which it stopped, in order.
    pub(crate) phases: Vec<Phase>,
    /// Threads of the process with all units alive, if it could be looked at.
    pub(crate) threads: Option<u64>,
    /// Its memory, if it could be looked at.
    pub(crate) memory: Option<Memory>,
    /// What became of a server under its load.
    pub(crate) served: Option<Served>,
}

/// Why a sample was not taken.
#[derive(Debug)]
pub(crate) enum Missed {
    /// The lab is to end.
    Interrupted,
    /// The process could not be started, was lost, took too long or did something else.
    Failed {
        failure: Failure,
        /// The last lines of what it had said on standard error.
        stderr: String,
        /// It would fail the same way again.
        hopeless: bool,
    },
}

impl Missed {
    /// A failure that comes again if it is tried again.
    pub(crate) fn hopeless(failure: Failure) -> Missed {
        Missed::Failed { failure, stderr: String::new(), hopeless: true }
    }
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Missed {
        Missed::Failed { failure, stderr: String::new(), hopeless: false }
    }
}

/// The phases at which a program stops to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Before the first unit.
    Base,
    /// With all units alive.
    Alive,
    /// After the first round.
    Done,
    /// A server listens, and is to end when the lab answers.
    Serving,
}

impl Phase {
    /// The name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Base => "base",
            Phase::Alive => "alive",
            Phase::Done => "done",
            Phase::Serving => "serving",
        }
    }
}

/// The line in which it says so.
#[derive(Deserialize)]
struct Stop {
    phase: Phase,
    /// The process to look at, if it is not the one the lab started.
    pid: Option<u32>,
    /// Of a server, its port.
    port: Option<u16>,
}

/// Of standard error this much is kept, from the end.
const COMPLAINT: usize = 4096;
/// No line of the protocol is longer: a program that prints without end is not kept in memory.
const LINE: u64 = 1 << 20;
/// How long output may stay open when its process and the group of it have ended: what was printed
/// last may still be on its way, on a machine that has other things to do.
const HELD_OPEN: Duration = Duration::from_secs(10);
/// How long a server may take to end.
const ENDING: Duration = Duration::from_secs(10);
/// Seldom enough not to disturb what is measured, often enough for a person at Ctrl-C.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Starts a process, waits for its end, and returns what it left behind. A server is put under
/// `load`.
pub(crate) fn run(
    mut launch: Launch,
    (pin, load): (Option<usize>, Option<&Load>),
    group: Option<&Group>,
    interrupted: &AtomicBool,
    patience: Duration,
) -> Result<Remains, Missed> {
    // A path from the mount table has no NUL in it.
    let door = group.and_then(|group| CString::new(group.door().as_os_str().as_bytes()).ok());
    let prepare = move || sys::prepare_child(pin, door.as_deref());
    launch
        .command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C at the terminal is for the lab, which decides what becomes of the sample; and what
        // the sample leaves behind can be ended as one.
        .process_group(0);
    leftovers::sign(&mut launch.command);
    let folder = launch.is_apart.then(Folder::new).transpose().map_err(|error| Failure {
        message: format!("the sample's folder could not be made: {error}"),
        advice: Some("TMPDIR names a folder for temporary files that can be written".into()),
    })?;
    if let Some(folder) = &folder {
        folder.hold(&mut launch.command);
    }
    // SAFETY: between fork and exec `prepare_child` makes system calls alone: it allocates nothing
    // and takes no lock. Building an error from errno allocates nothing either.
    unsafe { launch.command.pre_exec(prepare) };
    let started = Instant::now();
    let mut child = launch.command.spawn().map_err(|error| {
        Failure::new(format!("the sample's process could not be started: {error}"))
    })?;
    let mut watch = Watch {
        process: child.id(),
        started,
        patience,
        interrupted,
        said: collect(child.stderr.take(), COMPLAINT),
        meter: None,
        phases: Vec::new(),
        load,
        served: None,
        told: None,
    };
    let is_local = launch.container.is_none();
    let heard = watch.listen(&mut child, launch.container.as_deref(), group);
    let ended = heard.and_then(|last| watch.await_end(&mut child).map(|end| (last, end)));
    let (last, (status, usage)) = match ended {
        Ok(end) => end,
        Err(mut missed) => {
            if let Some(container) = &launch.container {
                container.end();
            }
            sys::end_group(watch.process);
            // Killed: it ends at once, and must be waited for so that its number is free again.
            let _ = child.wait();
            if is_local {
                sys::end_orphans();
            }
            if let Missed::Failed { stderr, .. } = &mut missed {
                *stderr = last_lines(&watch.complaint());
            }
            return Err(missed);
        }
    };
    let elapsed = watch.started.elapsed();
    // An engine's helpers end by themselves, and have work to do until then.
    if is_local {
        sys::end_orphans();
    }
    Ok(Remains {
        process: watch.process,
        last,
        complaint: watch.complaint(),
        status,
        usage,
        seen: Seen {
            elapsed,
            threads: watch.meter.as_ref().and_then(Meter::threads),
            memory: watch.meter.as_ref().map(Meter::reading),
            phases: watch.phases,
            served: watch.served,
        },
    })
}

struct Watch<'a> {
    process: u32,
    started: Instant,
    patience: Duration,
    interrupted: &'a AtomicBool,
    said: Receiver<String>,
    meter: Option<Meter>,
    phases: Vec<Phase>,
    /// Of a server.
    load: Option<&'a Load>,
    /// What became of the server.
    served: Option<Served>,
    /// Since when it is to end.
    told: Option<Instant>,
}

impl Watch<'_> {
    /// Whether to go on waiting.
    fn patient(&self) -> Result<(), Missed> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Missed::Interrupted);
        }
        if self.told.is_some_and(|told| told.elapsed() > ENDING) {
            let late = ENDING.as_secs();
            let message = format!("the server had not ended {late} s after it was told to");
            return Err(astray(message).into());
        }
        if self.started.elapsed() <= self.patience {
            return Ok(());
        }
        let failure = Failure {
            message: format!("took more than {} s and was ended", self.patience.as_secs()),
            advice: Some("run fewer units with --units, or use --quick".into()),
        };
        Err(Missed::hopeless(failure))
    }

    /// Reads what the process prints until it closes its output or ends, and looks at its memory
    /// where it stops for that. Returns the last line.
    fn listen(
        &mut self,
        child: &mut Child,
        container: Option<&dyn Container>,
        group: Option<&Group>,
    ) -> Result<String, Missed> {
        let lines = lines(child.stdout.take());
        let mut input = child.stdin.take();
        let mut last = String::new();
        let mut ended = None;
        loop {
            let line = match lines.recv_timeout(LOOK_UP) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => return Ok(last),
                Err(RecvTimeoutError::Timeout) => {
                    self.patient()?;
                    // A process that it has left behind may hold its output open, for ever.
                    if ended.is_none() && sys::has_ended(self.process) {
                        // With its group ended, what it has printed comes to its end.
                        sys::end_group(self.process);
                        ended = Some(Instant::now());
                    }
                    match ended {
                        Some(_) if is_answer(&last) => return Ok(last),
                        Some(ended) if ended.elapsed() >= HELD_OPEN => return Ok(last),
                        _ => continue,
                    }
                }
            };
            match serde_json::from_str::<Stop>(&line) {
                Ok(stop) => {
                    self.look(&stop, container, group)?;
                    go_on(&mut input);
                }
                Err(_) if line.trim().is_empty() => {}
                Err(_) => {
                    // An answer is the last word, whatever a runtime prints on its way out.
                    if !is_answer(&last) {
                        last = line;
                    }
                }
            }
            // A program that never stops printing is out of time as one that says nothing.
            self.patient()?;
        }
    }

    fn look(
        &mut self,
        stop: &Stop,
        container: Option<&dyn Container>,
        group: Option<&Group>,
    ) -> Result<(), Missed> {
        self.phases.push(stop.phase);
        let subject = || {
            let group = group.map(|group| group.path().to_owned());
            match container {
                // Of one that cannot be seen into, the engine's process is not the one.
                Some(container) => container.process(),
                None => Some((stop.pid.unwrap_or(self.process), group)),
            }
        };
        match (stop.phase, &mut self.meter) {
            (Phase::Base, _) => {
                let start = |(process, group): Subject| Meter::start(process, group.as_deref());
                self.meter = subject().map(start);
            }
            (Phase::Alive, Some(meter)) => meter.all_alive(),
            (Phase::Done, Some(meter)) => meter.finish(),
            (Phase::Alive | Phase::Done, None) => {}
            (Phase::Serving, _) => {
                let subject = subject();
                self.serve(stop.port, subject)?;
            }
        }
        Ok(())
    }

    /// Has a server loaded, and looks at it meanwhile.
    fn serve(&mut self, port: Option<u16>, subject: Option<Subject>) -> Result<(), Missed> {
        let Some(load) = self.load else { return Ok(()) };
        let port = port.ok_or_else(|| astray("the server names no port".into()))?;
        let (process, interrupted) = (self.process, self.interrupted);
        let (started, patience) = (self.started, self.patience);
        let go_on = move || {
            if sys::has_ended(process) {
                return Err(Failure::new("the server ended while it was to serve"));
            }
            match interrupted.load(Ordering::Relaxed) || started.elapsed() > patience {
                true => Err(Failure::new("the load was broken off")),
                false => Ok(()),
            }
        };
        let mut looking = Looking { subject, meter: None };
        // On a thread of its own, whose settings it changes.
        let served = thread::scope(|scope| {
            let thread = scope.spawn(|| serving::load(load, port, &mut looking, &go_on));
            thread.join().unwrap_or_else(|_| Err(Failure::new("the load panicked")))
        });
        self.meter = looking.meter;
        match served {
            Ok(served) => self.served = Some(served),
            Err(failure) => {
                self.patient()?;
                // What a connection tells of a server that crashes is not what went wrong.
                return Err(match self.crashed() {
                    Some(ending) => Failure { message: ending, ..failure }.into(),
                    None => failure.into(),
                });
            }
        }
        self.told = Some(Instant::now());
        Ok(())
    }

    /// How a server ended that was to go on, if it did.
    fn crashed(&self) -> Option<String> {
        // Its connections are closed before it has ended.
        for _ in 0..100 {
            if sys::has_ended(self.process) {
                return Some("the server ended while it was to serve".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// Waits for the end of a process that has closed its output.
    fn await_end(&self, child: &mut Child) -> Result<(ExitStatus, Usage), Missed> {
        let lost = |error| Failure::new(format!("the sample's process was lost: {error}"));
        await_end(LOOK_UP, || match sys::has_ended(self.process) {
            true => Ok(Some(())),
            false => self.patient().map(|()| None),
        })?;
        // Whatever it has left running would disturb the next sample. It is not waited for yet, so
        // the number of the group is still its own.
        sys::end_group(self.process);
        await_end(LOOK_UP, || match sys::reap(child).map_err(lost)? {
            Some(end) => Ok(Some(end)),
            None => self.patient().map(|()| None),
        })
    }

    /// What it said on standard error. A process it left behind may hold that open, and is not
    /// waited for long.
    fn complaint(&self) -> String {
        printable::lines(&self.said.recv_timeout(LOOK_UP * 5).unwrap_or_default())
    }
}

/// A process to look at, and the control group that it has for itself.
type Subject = (u32, Option<std::path::PathBuf>);

/// Looks at a server while it is loaded.
struct Looking {
    /// Nothing where it cannot be seen.
    subject: Option<Subject>,
    meter: Option<Meter>,
}

impl Look for Looking {
    fn without_connections(&mut self) {
        let start = |(process, group): &Subject| Meter::start(*process, group.as_deref());
        self.meter = self.subject.as_ref().map(start);
    }

    fn with_connections(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.all_alive();
        }
    }

    fn processor_time(&self) -> Option<Duration> {
        sys::processor_time(self.subject.as_ref()?.0)
    }
}

/// Looks whether a process has ended, more and more seldom, until `look` tells its end or fails.
pub(crate) fn await_end<T, E>(
    most: Duration,
    mut look: impl FnMut() -> Result<Option<T>, E>,
) -> Result<T, E> {
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(end) = look()? {
            return Ok(end);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(most);
    }
}

fn is_answer(line: &str) -> bool {
    serde_json::from_str::<Answer>(line).is_ok()
}

/// Lets a stopped program go on. One that is gone is found out elsewhere.
fn go_on(input: &mut Option<ChildStdin>) {
    if let Some(input) = input {
        let _ = input.write_all(b"\n").and_then(|()| input.flush());
    }
}

/// Sends each line of a pipe as it comes, read on a thread of its own.
fn lines(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    // A program that prints faster than the lab reads has to wait.
    let (sender, receiver) = mpsc::sync_channel(64);
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe?);
        loop {
            let mut line = Vec::new();
            let count = reader.by_ref().take(LINE).read_until(b'\n', &mut line).ok()?;
            if count == 0 {
                return None::<()>;
            }
            // The receiver is gone if the sample was given up.
            let line = printable::lines(&String::from_utf8_lossy(&line));
            sender.send(line.trim_end().to_owned()).ok()?;
        }
    });
    receiver
}

/// Reads a pipe to its end on a thread of its own, and sends the last `most` bytes of it.
pub(crate) fn collect(pipe: Option<impl Read + Send + 'static>, most: usize) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    // Where there is no room for a thread, nothing is received.
    let _ = thread::Builder::new().spawn(move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 4096];
        if let Some(mut pipe) = pipe {
            // What was read before an error is all there is to tell.
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                kept.extend_from_slice(&buffer[..count]);
                let surplus = kept.len().saturating_sub(most);
                kept.drain(..surplus);
            }
        }
        // The receiver is gone if it did not wait.
        let _ = sender.send(String::from_utf8_lossy(&kept).into_owned());
    });
    receiver
}

/// Lines of standard error that the report shows.
const LINES: usize = 12;

pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// The signal that ended a process, if one did.
pub(crate) fn signal(status: ExitStatus) -> Option<Signal> {
    Signal::try_from(status.signal()?).ok()
}

/// How a process ended, in words.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("the sample's process was ended by {}", signal_name(signal)),
        (None, Some(0)) => "the sample's process ended without an answer".to_owned(),
        (None, code) => {
            format!("the sample's process ended with exit code {}", code.unwrap_or_default())
        }
    }
}

fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned())
}
