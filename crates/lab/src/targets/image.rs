//! Runtimes in container images, through docker or podman, whichever answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};

use super::ask::{Reply, ask};
use super::place::in_path;
use crate::leftovers;
use crate::memory;
use crate::process::{Container, Launch};

/// A container engine that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    program: PathBuf,
    /// What it needs said before every order.
    options: Vec<String>,
}

/// An image, and the engine that runs it.
#[derive(Clone, Debug)]
pub(super) struct InImage {
    engine: Engine,
    image: String,
}

/// Parameters of one container: what is mounted, its environment, its core and network.
#[derive(Clone, Debug, Default)]
pub(super) struct Inside {
    /// Mounted read-only under the same path, where it is not empty.
    pub(super) folder: PathBuf,
    /// Mounted for writing under the same path, where it is not empty.
    pub(super) cache: PathBuf,
    pub(super) env: BTreeMap<String, String>,
    pub(super) pin: Option<usize>,
    pub(super) network: bool,
}

/// An engine's answer takes no longer; an image may have to be fetched first.
const PATIENCE: Duration = Duration::from_secs(30);
const FETCHING: Duration = Duration::from_secs(900);

impl Engine {
    /// The first engine that answers.
    ///
    /// # Errors
    /// One line that says what was tried.
    pub fn find() -> Result<Engine> {
        let mut tried = Vec::new();
        for (name, question) in [("docker", "{{.Server.Version}}"), ("podman", "{{.Version}}")] {
            let Some(program) = in_path(name) else {
                tried.push(format!("{name} is not installed"));
                continue;
            };
            let mut command = Command::new(&program);
            match ask(command.args(["version", "--format", question]), PATIENCE) {
                Ok(reply) if reply.status.success() => {
                    return Ok(Engine { program, options: Vec::new() });
                }
                Ok(reply) => {
                    let said = reply.stderr.lines().last().unwrap_or("nothing").to_owned();
                    tried.push(format!("{name} says: {said}"));
                }
                Err(error) => tried.push(format!("{error:#}")),
            }
        }
        bail!("--image needs docker or podman, and neither answers: {}", tried.join("; "))
    }

    /// Removes the containers of labs on this machine that were killed, which run on without them;
    /// returns how many there were.
    pub fn remove_leftovers(&self) -> usize {
        let mut list = self.command();
        list.args(["ps", "--all", "--filter", "name=carefree-", "--format", "{{.Names}}"]);
        let reply = ask(&mut list, PATIENCE).ok().filter(|reply| reply.status.success());
        let names = reply.map(|reply| reply.stdout).unwrap_or_default();
        let left = names.lines().map(str::trim).filter(|name| {
            let marked = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('-'));
            marked.is_some_and(|(mark, _)| leftovers::is_of_dead_lab(mark))
        });
        let remove = |name: &str| ask(self.command().args(["rm", "--force", name]), PATIENCE);
        left.filter(|name| remove(name).is_ok_and(|reply| reply.status.success())).count()
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options);
        command
    }

    /// Starts a container of an image, and asks the program in it for its version by `words`.
    ///
    /// # Errors
    /// One line: what the engine or the program said.
    pub(super) fn enter(&self, image: &str, words: &[String]) -> Result<(InImage, Reply)> {
        let mut failed: Vec<String> = Vec::new();
        // podman's own choice, crun, does not run on every machine that has runc.
        let runc = self.program.ends_with("podman").then_some(&["--runtime", "runc"][..]);
        for options in [Some(&[][..]), runc].into_iter().flatten() {
            let options = options.iter().map(|&option: &&str| option.to_owned()).collect();
            let engine = Engine { options, ..self.clone() };
            let image = InImage { engine, image: image.to_owned() };
            let said = match ask(&mut image.command(words, &Inside::default()), FETCHING) {
                Ok(reply) if reply.status.success() => return Ok((image, reply)),
                Ok(reply) => reply.stderr.lines().last().unwrap_or("it said nothing").to_owned(),
                Err(error) => format!("{error:#}"),
            };
            failed.push(said);
        }
        // The first failure says most, unless it is the runtime's that does not run here.
        failed.dedup();
        bail!("image {image} could not be run: {}", failed.join("; with runc: "))
    }
}

impl InImage {
    pub(super) fn name(&self) -> &str {
        &self.image
    }

    /// The engine's number of the image, which is another one when its name has come to stand for
    /// another image.
    pub(super) fn number(&self) -> Option<String> {
        let mut command = self.engine.command();
        command.args(["image", "inspect", "--format", "{{.Id}}", &self.image]);
        let reply = ask(&mut command, PATIENCE).ok().filter(|reply| reply.status.success())?;
        Some(reply.stdout.trim().to_owned())
    }

    /// The folder in the image that a program is in, links followed.
    pub(super) fn folder_of(&self, program: &str) -> Option<String> {
        const WHERE: &str = "readlink -f \"$(command -v \"$0\")\"";
        let words = ["sh", "-c", WHERE, program].map(str::to_owned);
        let reply = ask(&mut self.command(&words, &Inside::default()), FETCHING).ok()?;
        let folder = Path::new(reply.stdout.trim()).parent()?.to_str()?;
        (reply.status.success() && folder.starts_with('/')).then(|| folder.to_owned())
    }

    /// Runs `words` in a container of its own.
    pub(super) fn command(&self, words: &[String], inside: &Inside) -> Command {
        self.named(&name(), words, inside)
    }

    fn named(&self, name: &str, words: &[String], inside: &Inside) -> Command {
        let mut command = self.engine.command();
        command.args(["run", "--rm", "-i", "--name", name]);
        command.args(["--network", if inside.network { "host" } else { "none" }]);
        // Engines allow 2,048 processes or so unless told otherwise, and 10,000 threads are more.
        command.args(["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=32768:32768"]);
        command.args(["--pids-limit=-1", "--security-opt", "label=disable"]);
        if let Some(core) = inside.pin {
            command.arg(format!("--cpuset-cpus={core}"));
        }
        for (path, access) in [(&inside.folder, "ro"), (&inside.cache, "rw")] {
            if !path.as_os_str().is_empty() {
                let path = path.display();
                command.arg("--volume").arg(format!("{path}:{path}:{access}"));
            }
        }
        for (key, value) in &inside.env {
            command.arg("--env").arg(format!("{key}={value}"));
        }
        command.arg(&self.image).args(words);
        command
    }

    pub(super) fn launch(&self, words: &[String], inside: &Inside) -> Launch {
        let name = name();
        let command = self.named(&name, words, inside);
        let container = Named { engine: self.engine.clone(), name };
        Launch { command, container: Some(Box::new(container)), is_apart: false }
    }
}

/// A container by its name.
#[derive(Debug)]
struct Named {
    engine: Engine,
    name: String,
}

impl Container for Named {
    fn process(&self) -> Option<(u32, Option<PathBuf>)> {
        let mut command = self.engine.command();
        command.args(["inspect", "--format", "{{.State.Pid}}", &self.name]);
        let reply = ask(&mut command, PATIENCE).ok()?;
        let process = reply.stdout.trim().parse().ok().filter(|&process| process > 0)?;
        Some((process, memory::group_of(process)))
    }

    fn end(&self) {
        let mut command = self.engine.command();
        // It may have ended by itself; then there is nothing to say.
        let _ = ask(command.args(["kill", &self.name]), PATIENCE);
    }
}

/// What the names of our containers begin with; the mark of their lab and a number follow.
const PREFIX: &str = "carefree-";

fn name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{PREFIX}{}-{}", leftovers::mark(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
