//! Building a target's program, and starting it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use carefree_workloads::answer::Failure;
use carefree_workloads::workload::Workload;

use super::ask::{Reply, ask_until};
use super::image::Inside;
use super::place::Places;
use super::spec::Program;
use super::{Folders, Runtime};
use crate::folder::{self, Folder};
use crate::hosted::Hosting;
use crate::process::Launch;
use crate::record::fingerprint;
use crate::trial::Trial;

/// Variables of a program's environment.
type Variables = BTreeMap<String, String>;

/// A compiler may take so long, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(900);

/// A program of a runtime that is ready to take samples.
#[derive(Clone, Debug)]
pub struct Ready {
    runtime: Runtime,
    program: Program,
    cache: PathBuf,
    fingerprint: String,
    source: String,
    /// What makes its threads fibers, if they are to be.
    hosting: Option<Hosting>,
}

/// Why a program is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// What went wrong, and what would help.
    pub failure: Failure,
    /// What the compiler said.
    pub stderr: String,
}

impl Runtime {
    /// Has the program that lets `unit` do `workload` built, if need be; nothing where there is
    /// none.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn ready(
        &self,
        unit: &str,
        workload: Workload,
        folders: &Folders,
    ) -> Option<Result<Ready, NotReady>> {
        let name = self.program_for(unit, workload)?;
        let is_hosted = self.unit(unit).is_some_and(|unit| unit.hosted);
        let hosting = self.target.hosting.clone().filter(|_| is_hosted);
        Some(self.prepare(name, folders).map(|ready| match hosting {
            None => ready,
            Some(hosting) => {
                let fingerprint = hosting.fingerprint(&ready.fingerprint);
                Ready { fingerprint, hosting: Some(hosting), ..ready }
            }
        }))
    }

    fn prepare(&self, name: &str, folders: &Folders) -> Result<Ready, NotReady> {
        let program = &self.target.spec.programs[name];
        let source = self.source(program);
        let fingerprint = self.fingerprint(&source);
        // A place in PATH has no slash in its version, an image's name may.
        let label = format!("{}-{}-{name}-{fingerprint}", self.target.name(), self.version);
        let cache = folders.build(&label.replace('/', "_"));
        let ready = Ready {
            runtime: self.clone(),
            program: program.clone(),
            cache: cache.clone(),
            fingerprint,
            source,
            hosting: None,
        };
        if cache.is_dir() {
            return Ok(ready);
        }
        // What is half built must not be taken for the whole: it gets its name when it is done.
        let io = |error: std::io::Error| NotReady {
            failure: Failure::new(format!("the build's folder could not be made: {error}")),
            stderr: String::new(),
        };
        let parent = cache.parent().unwrap_or(&cache);
        let draft = folder::draft(parent, &ready.fingerprint).map_err(io)?;
        if let Err(error) = self.build(program, &draft, folders.interrupted()) {
            // Nothing of it is of use; what cannot be removed is in the cache folder.
            let _ = fs::remove_dir_all(&draft);
            return Err(error);
        }
        match fs::rename(&draft, &cache) {
            Ok(()) => Ok(ready),
            // Another lab was faster.
            Err(_) if cache.is_dir() => {
                let _ = fs::remove_dir_all(&draft);
                Ok(ready)
            }
            Err(error) => Err(io(error)),
        }
    }

    fn build(
        &self,
        program: &Program,
        cache: &Path,
        interrupted: &AtomicBool,
    ) -> Result<(), NotReady> {
        let broken = |message, stderr: &str| NotReady {
            failure: Failure { message, advice: Some("see what the compiler said".into()) },
            stderr: stderr.to_owned(),
        };
        for words in &program.build {
            let reply = self.ask_until(words, Some(cache), &program.env, PATIENCE, interrupted);
            let reply = reply.map_err(|error| broken(format!("{error:#}"), ""))?;
            if !reply.status.success() {
                let said = if reply.stderr.trim().is_empty() { reply.stdout } else { reply.stderr };
                let end = said.len().saturating_sub(4096);
                let end = (end..said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(0);
                let what = format!("{} could not build its program", self.target.name());
                return Err(broken(what, &said[end..]));
            }
        }
        Ok(())
    }

    /// What a sample of this program depends on: the program, and the runtime as it was built.
    fn fingerprint(&self, source: &str) -> String {
        let (version, of_runtime) = (self.version(), self.build_of_it());
        fingerprint(format!("{} {version} {of_runtime} {source}", self.program).as_bytes())
    }

    /// The program as it is written: its files and its commands.
    fn source(&self, program: &Program) -> String {
        let Program { build, run, env, .. } = program;
        let mut all = format!("{build:?} {run:?} {env:?}").into_bytes();
        let mut files = Vec::new();
        files_of(&self.target.folder, &mut files);
        for file in files {
            // Not where the folder is: ours moves when another target of ours changes.
            let name = file.strip_prefix(&self.target.folder).unwrap_or(&file);
            all.extend_from_slice(name.as_os_str().as_encoded_bytes());
            // A file that cannot be read is none that can be built from.
            all.extend(fs::read(&file).unwrap_or_default());
        }
        fingerprint(&all)
    }

    /// A command of the target's, with its places filled and further arguments.
    pub(super) fn command(
        &self,
        words: &[String],
        cache: Option<&Path>,
        env: &Variables,
    ) -> Command {
        let (words, env) = self.filled(words, cache, env);
        match &self.image {
            Some(image) => {
                let folder = self.target.folder.clone();
                let cache = cache.unwrap_or(Path::new("")).to_owned();
                image.command(&words, &Inside { folder, cache, env, ..Inside::default() })
            }
            None => {
                let words: Vec<_> = words.iter().map(|word| folder::absolute_word(word)).collect();
                let mut command = Command::new(&*words[0]);
                command.args(words[1..].iter().map(|word| &**word)).envs(env);
                command
            }
        }
    }

    /// Runs a command of the target's to its end, in a folder of its own if that makes no difference.
    ///
    /// # Errors
    /// One line: it could not be started, or did not end in time.
    pub(super) fn ask(
        &self,
        words: &[String],
        cache: Option<&Path>,
        env: &Variables,
        patience: Duration,
    ) -> anyhow::Result<Reply> {
        self.ask_until(words, cache, env, patience, &AtomicBool::new(false))
    }

    /// The same, until the flag is set.
    fn ask_until(
        &self,
        words: &[String],
        cache: Option<&Path>,
        env: &Variables,
        patience: Duration,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<Reply> {
        let mut command = self.command(words, cache, env);
        let is_apart = self.image.is_none() && !folder::is_chosen_by_folder(&command);
        let folder = is_apart.then(Folder::new).transpose()?;
        if let Some(folder) = &folder {
            folder.hold(&mut command);
        }
        ask_until(&mut command, patience, interrupted)
    }

    fn filled(
        &self,
        words: &[String],
        cache: Option<&Path>,
        env: &Variables,
    ) -> (Vec<String>, Variables) {
        let places = Places {
            runtime: &self.program,
            bin: &self.bin,
            folder: &self.target.folder,
            cache,
            version: &self.version,
        };
        let env = env.iter().map(|(name, value)| (name.clone(), places.fill(value))).collect();
        (places.fill_all(words), env)
    }
}

impl Ready {
    /// How to start it with these orders.
    pub fn launch(&self, trial: &Trial) -> Launch {
        let Ready { runtime, program, cache, hosting, .. } = self;
        match &runtime.image {
            None => {
                let words = match hosting {
                    Some(hosting) => hosting.around(&program.run),
                    None => program.run.clone(),
                };
                let mut command = runtime.command(&words, Some(cache), &program.env);
                let is_apart = !folder::is_chosen_by_folder(&command);
                command.args(trial.arguments());
                Launch { is_apart, ..Launch::plain(command) }
            }
            Some(image) => {
                let (mut words, env) = runtime.filled(&program.run, Some(cache), &program.env);
                words.extend(trial.arguments());
                let (folder, cache) = (runtime.target.folder.clone(), cache.clone());
                let network = trial.workload.needs_network();
                image.launch(&words, &Inside { folder, cache, env, pin: trial.pin, network })
            }
        }
    }

    /// What its samples depend on, beside the machine.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// A fingerprint of the program as it is written, whatever builds or runs it.
    pub fn source(&self) -> &str {
        &self.source
    }
}

fn files_of(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { files_of(&path, found) } else { found.push(path) }
    }
}
