//! Finding the versions of a runtime on this machine.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use carefree_workloads::role::Role;
use carefree_workloads::workload::Workload;

use super::Target;
use super::ask::{Version, ask};
use super::image::{Engine, InImage};
use super::place::{self, Places};
use super::spec::{Part, UnitSpec};
use crate::version::{self, version_key};

/// A program may take so long to say which version it is, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(20);
/// A part may have to be fetched.
const FETCHING: Duration = Duration::from_secs(300);

/// A version of a runtime that was found.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(super) target: Target,
    /// The program as it was found, links not followed: some programs act by the name they are
    /// called by. Inside the image, where it is in one.
    pub(super) program: String,
    /// The folder it is in, links followed.
    pub(super) bin: String,
    pub(super) version: String,
    /// The name that `--with` gave to this build.
    pub(super) build: Option<String>,
    pub(super) image: Option<InImage>,
    /// Its variant, where that was asked for by its name.
    pub(super) variant: Option<String>,
    /// The optional parts and their versions, once they were asked for.
    pub(super) parts: OnceCell<BTreeMap<String, Option<String>>>,
}

/// The program at a path, links followed, if there is one.
pub(super) fn program(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    let is_program = fs::metadata(&real)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    is_program.then_some(real)
}

/// Whether a unit of a runtime is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is there.
    Here,
    /// Something it needs is missing: what, and what brings it.
    Missing {
        /// The part's name.
        part: String,
        /// What brings it.
        package: String,
    },
    /// The runtime is too old: it came with this version.
    TooOld {
        /// The first version that has it.
        since: String,
    },
}

impl Target {
    /// The versions on this machine, those in PATH first, one after the other as they are asked
    /// for. `also` are further programs, which come before all.
    pub fn installed<'a>(&'a self, also: &'a [PathBuf]) -> impl Iterator<Item = Runtime> + 'a {
        let (mut programs, mut versions) = (Vec::new(), Vec::new());
        also.iter().cloned().chain(self.places()).filter_map(move |path| {
            let runtime = self.at(&path, &mut programs)?;
            // The same version from another place would stand in the same line of every table.
            if versions.contains(&runtime.version) {
                return None;
            }
            versions.push(runtime.version.clone());
            Some(runtime)
        })
    }

    /// Where a program of it may be: those in PATH first. Folders in PATH, and patterns, may go by the
    /// folder that the lab was started in, and samples run elsewhere.
    pub(super) fn places(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let in_path = self.spec.find.path.iter().filter_map(|name| place::in_path(name));
        let all =
            in_path.chain(self.spec.find.globs.iter().flat_map(|pattern| place::files(pattern)));
        all.filter_map(|path| std::path::absolute(path).ok())
    }

    /// Why the first program that is there tells no version: it may be a version manager's shim for
    /// which no version was chosen.
    pub fn silent(&self) -> Option<String> {
        self.places().find_map(|path| {
            let why = self.version_at(&path).err()?;
            Some(format!("{} is there, but {why}", path.display()))
        })
    }

    /// The versions that are measured when none is named: the first, and where that lacks one of
    /// the units that `wants` tells, the first other that lacks none; that one alone where the
    /// first has none of them. A unit lacks where its version is too old, and with `probed` also
    /// where a part of it is missing, which takes a while to find out.
    pub fn usual(&self, wants: &dyn Fn(&str, Role) -> bool, probed: bool) -> Vec<Runtime> {
        let all = self.spec.units.iter();
        let wanted: Vec<&UnitSpec> =
            all.filter(|(name, unit)| wants(name, unit.role)).map(|(_, unit)| unit).collect();
        let mut installed = self.installed(&[]);
        let Some(first) = installed.next() else {
            return Vec::new();
        };
        let lacks = |runtime: &Runtime, unit: &UnitSpec| match probed {
            true => runtime.finding(unit) != Finding::Here,
            false => runtime.is_too_old_for(unit),
        };
        let any = |runtime: &Runtime| wanted.iter().any(|unit| lacks(runtime, unit));
        let other = if any(&first) { installed.find(|other| !any(other)) } else { None };
        let is_of_use = wanted.iter().any(|unit| !lacks(&first, unit));
        let first = Some(first).filter(|_| other.is_none() || is_of_use);
        [first, other].into_iter().flatten().collect()
    }

    /// The version at a path, if it is one, and none of those `known`.
    fn at(&self, path: &Path, known: &mut Vec<PathBuf>) -> Option<Runtime> {
        let real = program(path)?;
        if known.contains(&real) {
            return None;
        }
        known.push(real.clone());
        // A version manager's shim acts by the name it is called by.
        let (version, program) = self.version_at(path).ok()?;
        if let Some(program) = &program {
            let program = fs::canonicalize(program).ok()?;
            if program != real {
                if known.contains(&program) {
                    return None;
                }
                known.push(program);
            }
        }
        Some(self.runtime(program.as_deref().unwrap_or(path), version))
    }

    fn runtime(&self, program: &Path, version: String) -> Runtime {
        let real = fs::canonicalize(program);
        let bin = real.as_deref().unwrap_or(program).parent().unwrap_or(Path::new("/"));
        Runtime {
            target: Target { spec: self.spec.for_version(&version), ..self.clone() },
            program: program.to_string_lossy().into_owned(),
            bin: bin.to_string_lossy().into_owned(),
            version,
            build: None,
            image: None,
            variant: None,
            parts: OnceCell::new(),
        }
    }

    /// Asks a program that was named for its version; `build` tells it from others of the same
    /// version. This very program is measured, wherever it says that it is: one that is not installed
    /// yet names the path it will have, where an older one may be.
    ///
    /// # Errors
    /// One line that says why it has none.
    pub fn named(&self, path: &Path, build: Option<&str>) -> Result<Runtime> {
        let wrong = || format!("{} is no {}", path.display(), self.name());
        let path = std::path::absolute(path).with_context(wrong)?;
        let (version, _) = self.ask_version(&path).with_context(wrong)?;
        Ok(Runtime { build: build.map(str::to_owned), ..self.runtime(&path, version) })
    }

    /// The version in a container image; `build` tells it from others of the same version, else the
    /// image's name does.
    ///
    /// # Errors
    /// One line: what the engine or the program in the image said.
    pub fn in_image(&self, engine: &Engine, name: &str, build: Option<&str>) -> Result<Runtime> {
        let known = self.spec.image.as_ref().map(|known| &*known.runtime);
        let program = known.unwrap_or(self.name());
        let (image, reply) = engine.enter(name, &self.version_command(program))?;
        let version = self
            .version_in(&reply.stdout, &reply.stderr)
            .with_context(|| format!("image {name}"))?;
        // Asked for only where a command needs it: a container takes a while to start.
        let bin = if self.spec.uses_bin() { image.folder_of(program) } else { None };
        Ok(Runtime {
            bin: bin.unwrap_or_else(|| "/usr/local/bin".to_owned()),
            program: program.to_owned(),
            image: Some(image),
            build: build.map(str::to_owned),
            ..self.runtime(Path::new(program), version)
        })
    }

    /// The version at a path. A program is asked once, and then it is known what it has answered.
    pub(super) fn version_at(&self, path: &Path) -> Version {
        // A lock is held for a look alone: others may wait for other programs meanwhile.
        let known = || self.asked.lock().ok();
        if let Some(version) = known().and_then(|known| known.get(path).cloned()) {
            return version;
        }
        let version = self.ask_version(path).map_err(|why| format!("{why:#}"));
        if let Some(mut known) = known() {
            known.insert(path.to_owned(), version.clone());
        }
        version
    }

    fn ask_version(&self, program: &Path) -> Result<(String, Option<PathBuf>)> {
        let words = self.version_command(&program.to_string_lossy());
        let reply = ask(Command::new(&words[0]).args(&words[1..]), PATIENCE)?;
        // A shim with no version chosen says so, in words that are no version.
        if !reply.status.success() {
            let said = first_line(&reply.stdout, &reply.stderr);
            bail!("asked for its version, it failed{said}");
        }
        let version = self.version_in(&reply.stdout, &reply.stderr)?;
        let second = reply.stdout.lines().nth(1).map(str::trim).map(PathBuf::from);
        Ok((version, second.filter(|path| path.is_absolute() && path.exists())))
    }

    fn version_command(&self, program: &str) -> Vec<String> {
        let folder = &self.folder;
        let bin = Path::new(program).parent().unwrap_or(Path::new(""));
        let bin = &bin.to_string_lossy();
        Places { runtime: program, bin, folder, cache: None, version: "" }
            .fill_all(&self.spec.find.version)
    }

    fn version_in(&self, stdout: &str, stderr: &str) -> Result<String> {
        let after = &self.spec.find.after;
        let found = version::of_output(stdout, after).or_else(|| version::of_output(stderr, after));
        found
            .map(str::to_owned)
            .with_context(|| format!("it told no version{}", first_line(stdout, stderr)))
    }
}

/// `; it said: ..`, with the first line there is.
fn first_line(stdout: &str, stderr: &str) -> String {
    let said = stderr.lines().chain(stdout.lines()).find(|line| !line.trim().is_empty());
    said.map(|said| format!("; it said: {said}")).unwrap_or_default()
}

impl Runtime {
    /// The target it belongs to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Its version, and what tells it from others of that: the name that this build was given or the
    /// image it is in, and the variant.
    pub fn version(&self) -> String {
        let build = self.build.as_deref().or(self.image.as_ref().map(InImage::name));
        let names: Vec<&str> = build.into_iter().chain(self.variant.as_deref()).collect();
        match names[..] {
            [] => self.version.clone(),
            _ => format!("{} ({})", self.version, names.join(", ")),
        }
    }

    /// Whether both are one program of this machine, or in one image.
    pub(super) fn is_same_program(&self, other: &Runtime) -> bool {
        let image = |runtime: &Runtime| runtime.image.as_ref().map(|image| image.name().to_owned());
        let real = |runtime: &Runtime| fs::canonicalize(&runtime.program).ok();
        image(self) == image(other)
            && (self.program == other.program || self.image.is_none() && real(self) == real(other))
    }

    /// What changes when the program is built anew, whatever version it says it is: for a program
    /// of this machine its size and the time it was written, for an image the engine's number of
    /// it; and the versions of its parts.
    pub(super) fn build_of_it(&self) -> String {
        let program = match &self.image {
            Some(image) => image.number().unwrap_or_default(),
            None => fs::metadata(&self.program).map_or_else(
                |_| String::new(),
                |file| format!("{} {}.{:09}", file.len(), file.mtime(), file.mtime_nsec()),
            ),
        };
        let parts = self.target.spec.parts.keys();
        let parts: Vec<_> = parts.map(|part| (part, self.part_version(part))).collect();
        format!("{program} {parts:?}")
    }

    /// The option that names it, and what that names: a program of this machine or an image.
    pub(super) fn place(&self) -> [&str; 2] {
        match &self.image {
            Some(image) => ["--image", image.name()],
            None => ["--with", &self.program],
        }
    }

    /// Whether its version is `wanted` or begins with it. One that is built as a variant has to be named
    /// in full, or by its variant.
    pub fn is(&self, wanted: &str) -> bool {
        self.version == wanted || !self.is_variant_by_build() && self.is_among(wanted)
    }

    /// Whether its version is `wanted` or begins with it, however it is built.
    pub(super) fn is_among(&self, wanted: &str) -> bool {
        version::matches(&self.version, wanted)
    }

    /// Whether `--with` or `--image` gave it this name.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.build.as_deref() == Some(name)
    }

    /// This version in one of its target's variants.
    ///
    /// # Errors
    /// What it lacks for that.
    pub fn in_variant(&self, name: &str) -> Result<Runtime, Finding> {
        let spec = &self.target.spec;
        let missing = |package: &str| Finding::Missing {
            part: format!("the variant {name}"),
            package: package.to_owned(),
        };
        let Some(variant) = spec.variants.get(name) else {
            return Err(missing(&spec.package));
        };
        match &self.variant {
            Some(own) if own == name => return Ok(self.clone()),
            // It stands for that one alone.
            Some(_) => return Err(missing(variant.package.as_ref().unwrap_or(&spec.package))),
            None => {}
        }
        let since = variant.since.as_ref();
        if let Some(since) = since.filter(|since| version_key(&self.version) < version_key(since)) {
            return Err(Finding::TooOld { since: since.clone() });
        }
        let is = match variant.ending {
            Some(_) => variant.is_of(&self.version),
            None if variant.probe.is_empty() => true,
            None => self.succeeds(&variant.within(&variant.probe), &variant.env),
        };
        if !is {
            return Err(missing(variant.package.as_ref().unwrap_or(&spec.package)));
        }
        // What it is by its build, its version says.
        if variant.ending.is_some() {
            return Ok(self.clone());
        }
        let mut varied = self.clone();
        varied.target.spec = variant.applied(spec);
        varied.variant = Some(name.to_owned());
        Ok(varied)
    }

    /// Whether its build makes it a variant, whose name needs the whole version.
    pub(super) fn is_variant_by_build(&self) -> bool {
        self.target.spec.variants.values().any(|variant| variant.is_of(&self.version))
    }

    /// Whether a command ends well.
    pub(super) fn succeeds(&self, words: &[String], env: &BTreeMap<String, String>) -> bool {
        let reply = self.ask(words, None, env, FETCHING);
        reply.is_ok_and(|reply| reply.status.success())
    }

    /// The program that was found.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Its units, and whether each is there.
    pub fn units(&self) -> Vec<(String, Finding)> {
        let units = self.target.spec.units.iter();
        // `carefree` is not in the image.
        let units = units.filter(|(_, unit)| !unit.hosted || self.image.is_none());
        units.map(|(name, unit)| (name.clone(), self.finding(unit))).collect()
    }

    fn finding(&self, unit: &UnitSpec) -> Finding {
        match &unit.since {
            Some(since) if self.is_too_old_for(unit) => Finding::TooOld { since: since.clone() },
            _ if unit.hosted && self.target.hosting.is_none() => Finding::Missing {
                part: "carefree run".to_owned(),
                package: "cargo build --release".to_owned(),
            },
            _ => self
                .missing(&unit.needs)
                .or_else(|| self.unprogrammed(unit))
                .unwrap_or(Finding::Here),
        }
    }

    /// What is missing, where the unit has programs and none of them can be had without it.
    fn unprogrammed(&self, unit: &UnitSpec) -> Option<Finding> {
        let programs = self.target.spec.programs.iter();
        let own = programs
            .filter(|(name, _)| unit.programs.as_ref().is_none_or(|own| own.contains(name)));
        let lacks: Vec<_> = own.map(|(_, program)| self.missing(&program.needs)).collect();
        lacks.into_iter().collect::<Option<Vec<_>>>()?.into_iter().next()
    }

    /// What is missing for the program that has `unit` do `workload`.
    pub(super) fn lacks(&self, unit: &str, workload: Workload) -> Option<Finding> {
        let name = self.program_for(unit, workload)?;
        self.missing(&self.target.spec.programs[name].needs)
    }

    fn is_too_old_for(&self, unit: &UnitSpec) -> bool {
        let since = unit.since.as_ref();
        since.is_some_and(|since| version_key(&self.version) < version_key(since))
    }

    /// The first of these parts that is not there.
    pub(super) fn missing(&self, parts: &[String]) -> Option<Finding> {
        let gone = parts.iter().find(|part| self.part_version(part).is_none())?;
        let package = self.target.spec.parts[gone].package.clone();
        Some(Finding::Missing { part: gone.clone(), package })
    }

    /// The version of an optional part, if it is there.
    pub fn part_version(&self, part: &str) -> Option<String> {
        let parts = self.parts.get_or_init(|| {
            let parts = &self.target.spec.parts;
            parts.iter().map(|(name, part)| (name.clone(), self.probe(part))).collect()
        });
        parts.get(part)?.clone()
    }

    fn probe(&self, part: &Part) -> Option<String> {
        let reply = self.ask(&part.probe, None, &BTreeMap::new(), FETCHING);
        let reply = reply.ok().filter(|reply| reply.status.success())?;
        let version = version::of_output(&reply.stdout, &part.after);
        // Some tell it on standard error, where others warn of something else.
        let version = version.or_else(|| {
            let says = !part.after.is_empty();
            says.then(|| version::of_output(&reply.stderr, &part.after)).flatten()
        });
        Some(version.unwrap_or("unknown").to_owned())
    }

    pub(super) fn unit(&self, name: &str) -> Option<&UnitSpec> {
        self.target.spec.units.get(name)
    }

    /// The program of the target that has `unit` do `workload`, by its name.
    pub(super) fn program_for(&self, unit: &str, workload: Workload) -> Option<&str> {
        let spec = self.unit(unit)?;
        let does = |list: &[Workload]| list.contains(&workload);
        if !spec.workloads.as_deref().is_none_or(does) || spec.without.contains_key(&workload) {
            return None;
        }
        let mut programs = self.target.spec.programs.iter();
        let (name, _) = programs.find(|(name, program)| {
            does(&program.workloads) && spec.programs.as_ref().is_none_or(|own| own.contains(name))
        })?;
        Some(name)
    }
}
