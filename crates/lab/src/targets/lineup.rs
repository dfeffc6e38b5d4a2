//! Who takes part in a run: our own units, and those of the runtimes that were asked for or found.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::image::Engine;
use super::spec::UnitSpec;
use super::{Facts, Finding, Folders, NotReady, Ready, Runtime, Target};
use crate::feed::{How, Sweep};
use crate::fetch::Course;
use crate::fetch::connections::SEQUENTIAL;
use crate::named::{Unknown, list};
use crate::noise::{Warning, WarningKind};
use crate::plan::place;
use crate::process::Launch;
use crate::record::Failed;
use crate::role::Role;
use crate::trial::Trial;
use crate::unit::Unit;
use crate::workload::{Size, Workload};

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Runtimes by name, with `@` and a version where not the first one found is meant, or `@all`.
    /// With nothing here, in `with` and in `images`, it is everything that is found.
    pub runtimes: Vec<String>,
    /// Units by name, or roles; all where there are none.
    pub units: Vec<String>,
    /// Programs that are found nowhere, `ruby=/path/to/ruby`, or that are told from others of the
    /// same version by a name, `ruby@patch=/path/to/ruby`.
    pub with: Vec<String>,
    /// Container images.
    pub images: Vec<String>,
}

/// Who takes part.
#[derive(Debug)]
pub struct Lineup {
    ours: Vec<Unit>,
    runtimes: Vec<Runtime>,
    units: Vec<String>,
}

/// How large the samples are, and of what.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// How large they are.
    pub size: Size,
    /// How many units each sample has alive, in place of the workload's own number.
    pub crowd: Option<u64>,
    /// Which points of `feed` are measured.
    pub feed: Sweep,
    /// What `fetch` fetches.
    pub fetch: Course,
    /// Whether every workload stays on one core, and not `switch` alone.
    pub pin: bool,
    /// A fingerprint of our own program.
    pub program: String,
}

/// The kinds of samples of a run, and how to start each.
#[derive(Debug, Default)]
pub struct Field {
    /// The kinds.
    pub kinds: Vec<Trial>,
    /// Those that cannot be measured, because their program could not be built.
    pub failed: Vec<Failed>,
    /// What a reader of the figures should know of who took part.
    pub notes: Vec<Warning>,
    /// What is to be said of the runtimes that take part.
    pub facts: Vec<Facts>,
    ready: BTreeMap<Key, Ready>,
}

/// What decides which program takes a sample: runtime, version, unit, workload.
type Key = (String, String, String, Workload);

fn key(trial: &Trial) -> Key {
    let unit = trial.asked_unit().to_owned();
    (trial.runtime.clone(), trial.version.clone(), unit, trial.workload)
}

impl Lineup {
    /// Finds those who take part.
    ///
    /// # Errors
    /// One line: a name that leads nowhere, an image that cannot be run.
    pub fn find(wishes: &Wishes, targets: &[Target]) -> Result<Lineup> {
        known_units(&wishes.units, targets)?;
        let mut lineup =
            Lineup { ours: Vec::new(), runtimes: Vec::new(), units: wishes.units.clone() };
        let with = wishes.with.iter().map(|wish| named(wish, targets));
        let with: Vec<Runtime> = with.collect::<Result<_>>()?;
        let nothing_named =
            wishes.runtimes.is_empty() && wishes.with.is_empty() && wishes.images.is_empty();
        for wish in &wishes.runtimes {
            lineup.add(wish, targets)?;
        }
        if nothing_named {
            lineup.ours = Unit::ALL.to_vec();
            // One that is not here is for the doctor to tell of.
            lineup.runtimes.extend(targets.iter().flat_map(Target::usual));
        }
        lineup.runtimes.extend(with);
        if !wishes.images.is_empty() {
            let engine = Engine::find()?;
            for image in &wishes.images {
                let target =
                    targets.iter().find(|target| target.is_in(image)).with_context(|| {
                        format!(
                            "no target says that it is in an image '{image}'; see docs/targets.md"
                        )
                    })?;
                lineup.runtimes.push(target.in_image(&engine, image)?);
            }
        }
        lineup.settle()?;
        Ok(lineup)
    }

    /// Leaves out what was named twice, and refuses two programs that records could not tell apart.
    fn settle(&mut self) -> Result<()> {
        self.ours.sort_unstable();
        self.ours.dedup();
        let mut kept: Vec<Runtime> = Vec::new();
        for runtime in std::mem::take(&mut self.runtimes) {
            let name = runtime.target().name().to_owned();
            let same = |other: &&Runtime| {
                other.target().name() == name && other.version() == runtime.version()
            };
            match kept.iter().find(same) {
                None => kept.push(runtime),
                Some(other) if other.is_same_program(&runtime) => {}
                Some(other) => {
                    let (one, two) = (other.program(), runtime.program());
                    bail!(
                        "{one} and {two} are both {name} {}: give each a name, as in --with \
                         {name}@base={one} --with {name}@patch={two}",
                        runtime.version()
                    );
                }
            }
        }
        self.runtimes = kept;
        Ok(())
    }

    fn add(&mut self, wish: &str, targets: &[Target]) -> Result<()> {
        let (name, wanted) = match wish.split_once('@') {
            Some((name, wanted)) => (name, Some(wanted)),
            None => (wish, None),
        };
        let ours: Vec<Unit> = Unit::ALL.into_iter().filter(|unit| unit.runtime() == name).collect();
        let target = targets.iter().find(|target| target.name() == name);
        self.ours.extend(&ours);
        let Some(target) = target else {
            if ours.is_empty() {
                let mut names: Vec<&str> = targets.iter().map(Target::name).collect();
                names.extend(Unit::ALL.map(Unit::runtime));
                names.sort_unstable();
                names.dedup();
                return Err(Unknown::new("runtime", name, &names).into());
            }
            return Ok(());
        };
        let mut found: Vec<Runtime> = match wanted {
            None => target.installed(&[]).take(1).collect(),
            Some("all") => target.installed(&[]).collect(),
            Some(wanted) => target.installed(&[]).filter(|r| r.is(wanted)).take(1).collect(),
        };
        if found.is_empty() && ours.is_empty() {
            let all: Vec<String> = target.installed(&[]).map(|runtime| runtime.version()).collect();
            match (wanted, all.is_empty()) {
                (Some(wanted), false) => {
                    let all: Vec<&str> = all.iter().map(String::as_str).collect();
                    bail!("there is no {name} {wanted} here; there is {}", list(&all));
                }
                _ => bail!("{name} is not installed; {} brings it", target.package()),
            }
        }
        self.runtimes.append(&mut found);
        Ok(())
    }

    /// The runtimes that were found.
    pub fn runtimes(&self) -> &[Runtime] {
        &self.runtimes
    }

    /// Whether a unit is asked for: by its name, or by its role where the runtime has no unit of
    /// that name (`has`).
    fn wants(&self, unit: &str, role: Role, has: &dyn Fn(&str) -> bool) -> bool {
        let wanted = |name: &String| name == unit || name == role.name() && !has(name);
        self.units.is_empty() || self.units.iter().any(wanted)
    }

    /// Makes the kinds of samples, and has their programs built. `building` is told of each runtime
    /// before that, and may say that it is enough.
    pub fn field(
        &self,
        sizes: &Sizes,
        folders: &Folders,
        building: &mut dyn FnMut(&Runtime) -> bool,
    ) -> Field {
        let mut field = Field::default();
        for &unit in self.ours.iter().filter(|unit| self.wants_ours(**unit)) {
            for &workload in &sizes.workloads {
                let kernel = unit.role() == Role::Thread;
                let trial = Trial {
                    runtime: unit.runtime().to_owned(),
                    version: unit.version().to_owned(),
                    unit: unit.name().to_owned(),
                    role: unit.role(),
                    program: sizes.program.clone(),
                    ..sizes.trial(workload, kernel)
                };
                match (workload, unit) {
                    (Workload::Fetch, Unit::Coroutine) => field.notes.push(without(
                        &trial,
                        "coroutines are resumed by hand and have nobody to wait for a socket with",
                    )),
                    (Workload::Fetch, Unit::Thread) => {
                        field.kinds.extend(sizes.fetch.sequential(&trial));
                        field.kinds.extend(sizes.fetch.of_unit(&trial));
                    }
                    _ => field.kinds.extend(sizes.trials(&trial, None)),
                }
            }
        }
        for runtime in &self.runtimes {
            if !building(runtime) {
                break;
            }
            self.add_kinds(runtime, sizes, folders, &mut field);
        }
        field
    }

    fn wants_ours(&self, unit: Unit) -> bool {
        let has = |name: &str| {
            Unit::ALL.iter().any(|own| own.runtime() == unit.runtime() && own.name() == name)
        };
        self.wants(unit.name(), unit.role(), &has)
    }

    /// Whether another version of this runtime takes part that is not too old for this unit.
    fn has_newer(&self, runtime: &Runtime, unit: &str) -> bool {
        let is_newer = |other: &&Runtime| {
            other.target().name() == runtime.target().name()
                && other.units().iter().any(|(name, finding)| {
                    name == unit && !matches!(finding, Finding::TooOld { .. })
                })
        };
        self.runtimes.iter().any(|other| is_newer(&other))
    }

    fn add_kinds(&self, runtime: &Runtime, sizes: &Sizes, folders: &Folders, field: &mut Field) {
        let mut here = false;
        for (name, finding) in runtime.units() {
            let has = |name: &str| runtime.target().has_unit(name);
            let wanted = |unit: &&UnitSpec| self.wants(&name, unit.role, &has);
            let Some(unit) = runtime.unit(&name).filter(wanted) else {
                continue;
            };
            let who = format!("{} {} {name}", runtime.target().name(), runtime.version());
            match finding {
                Finding::Here => {}
                Finding::Missing { part, package } => {
                    field.notes.push(Warning {
                        kind: WarningKind::LeftOut,
                        message: format!("{who} is left out: it needs {part}"),
                        advice: package,
                    });
                    continue;
                }
                // Another version in this run has it.
                Finding::TooOld { .. } if self.has_newer(runtime, &name) => continue,
                Finding::TooOld { since } => {
                    let name = runtime.target().name();
                    field.notes.push(Warning {
                        kind: WarningKind::LeftOut,
                        message: format!("{who} is left out: it came with {since}"),
                        advice: format!(
                            "install {since} or newer, and name it: --runtime {name}@{since}"
                        ),
                    });
                    continue;
                }
            }
            here = true;
            for &workload in &sizes.workloads {
                if let Some(Finding::Missing { part, package }) = runtime.lacks(&name, workload) {
                    field.notes.push(Warning {
                        kind: WarningKind::LeftOut,
                        message: format!("{who} is left out of {workload}: it needs {part}"),
                        advice: package,
                    });
                    continue;
                }
                let Some(ready) = runtime.ready(&name, workload, folders) else {
                    if let Some(why) = unit.without.get(workload.name()) {
                        let trial = Trial {
                            runtime: runtime.target().name().to_owned(),
                            version: runtime.version(),
                            unit: name.clone(),
                            ..sizes.trial(workload, unit.kernel)
                        };
                        field.notes.push(without(&trial, why));
                    }
                    continue;
                };
                let mut trial = Trial {
                    runtime: runtime.target().name().to_owned(),
                    version: runtime.version(),
                    unit: name.clone(),
                    role: unit.role,
                    warmup: if workload.warms_up() { unit.warmup } else { 0 },
                    ..sizes.trial(workload, unit.kernel)
                };
                let most = unit.max_units.unwrap_or(u64::MAX);
                if trial.parameters.units() > most {
                    trial.parameters.set("units", most);
                    let why = unit.why.as_deref().unwrap_or_default();
                    let note = Warning {
                        kind: WarningKind::FewerUnits,
                        message: format!("{who} runs with {most} units at most: {why}"),
                        advice: format!("compare it with others of as few: --units {most}"),
                    };
                    if !field.notes.contains(&note) {
                        field.notes.push(note);
                    }
                }
                match ready {
                    Ok(ready) => {
                        trial.program = ready.fingerprint().to_owned();
                        if workload == Workload::Fetch
                            && self.wants(SEQUENTIAL, Role::Thread, &|_| false)
                        {
                            // Once for each runtime, whichever of its units comes first; Rust's
                            // may be ours.
                            let sequential = sizes.fetch.sequential(&trial);
                            let key = key(&sequential[0]);
                            if !field.kinds.iter().any(|known| self::key(known) == key) {
                                field.ready.insert(key, ready.clone());
                                field.kinds.extend(sequential);
                            }
                        }
                        field.ready.insert(key(&trial), ready);
                        let trials = sizes.trials(&trial, unit.feed.as_deref()).into_iter();
                        field.kinds.extend(trials.filter(|t| t.parameters.units() <= most));
                    }
                    Err(NotReady { failure, stderr }) => {
                        // A build that fails does so for every workload, and is reported once.
                        let failed = Failed::new(&trial, failure, stderr);
                        let same = |known: &Failed| {
                            known.message == failed.message
                                && (&known.subject.runtime, &known.subject.version)
                                    == (&failed.subject.runtime, &failed.subject.version)
                        };
                        if !field.failed.iter().any(same) {
                            field.failed.push(failed);
                        }
                    }
                }
            }
        }
        if here {
            let mut facts = runtime.facts();
            // Of units that have none of these workloads there is nothing to say.
            facts.units.retain(|unit, _| {
                let of_it = |runtime: &str, version: &str| {
                    (runtime, version) == (&*facts.runtime, &*facts.version)
                };
                let is = |trial: &Trial| {
                    of_it(&trial.runtime, &trial.version) && trial.asked_unit() == unit
                };
                let failed = |failed: &Failed| {
                    let subject = &failed.subject;
                    of_it(&subject.runtime, &subject.version) && subject.unit == *unit
                };
                field.kinds.iter().any(is) || field.failed.iter().any(failed)
            });
            field.facts.push(facts);
        }
    }
}

impl Sizes {
    /// The kinds of samples that a unit's trial stands for.
    fn trials(&self, trial: &Trial, ways: Option<&[How]>) -> Vec<Trial> {
        match trial.workload {
            Workload::Feed => self.feed.of_unit(trial, ways),
            Workload::Fetch => self.fetch.of_unit(trial),
            _ => vec![trial.clone()],
        }
    }

    /// A trial that nobody's unit runs yet; `kernel`: for units whose switches are the kernel's.
    fn trial(&self, workload: Workload, kernel: bool) -> Trial {
        let (pin, cores) = place(workload, self.pin);
        let mut parameters = workload.parameters(self.size, cores);
        if kernel {
            parameters.set("units", parameters.units().min(workload.most_threads()));
        }
        if let Some(crowd) = self.crowd.filter(|_| workload.is_gated()) {
            parameters.set("units", crowd);
        }
        Trial {
            runtime: String::new(),
            version: String::new(),
            unit: String::new(),
            role: Role::Fiber,
            kernel,
            program: String::new(),
            workload,
            parameters,
            warmup: 0,
            pin,
        }
    }
}

impl Field {
    /// How to start a sample; nothing for our own units, which whoever calls this knows how to
    /// start.
    pub fn launch(&self, trial: &Trial) -> Option<Launch> {
        self.ready.get(&key(trial)).map(|ready| ready.launch(trial))
    }
}

/// What is said of a workload that a unit has no part in.
fn without(trial: &Trial, why: &str) -> Warning {
    let Trial { runtime, version, unit, workload, .. } = trial;
    Warning {
        kind: WarningKind::LeftOut,
        message: format!("{runtime} {version} {unit} has no {workload}: {why}"),
        advice: format!("compare its other workloads, or units that have {workload}"),
    }
}

/// A program that was named, `ruby=/path/to/ruby`, with a name of its own where another of its
/// version takes part, `ruby@patch=/path/to/ruby`.
fn named(wish: &str, targets: &[Target]) -> Result<Runtime> {
    let (name, path) = wish.split_once('=').with_context(|| {
        format!("--with takes a runtime and a program, as in ruby=/path/to/ruby, not '{wish}'")
    })?;
    let (name, build) = match name.split_once('@') {
        Some((name, build)) => (name, Some(build)),
        None => (name, None),
    };
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_.+".contains(letter);
    if let Some(build) = build.filter(|b| b.is_empty() || !b.chars().all(is_plain)) {
        bail!(
            "--with {name}@{build}: a name has letters, digits, '-', '_', '.' and '+', as in \
             {name}@patch"
        );
    }
    let target = targets.iter().find(|target| target.name() == name).ok_or_else(|| {
        let names: Vec<&str> = targets.iter().map(Target::name).collect();
        Unknown::new("runtime", name, &names)
    })?;
    target.named(Path::new(path), build)
}

/// Refuses a unit that nobody has.
fn known_units(units: &[String], targets: &[Target]) -> Result<()> {
    let known = |name: &&String| {
        name.parse::<Role>().is_ok()
            || name.parse::<Unit>().is_ok()
            || name.as_str() == SEQUENTIAL
            || targets.iter().any(|target| target.has_unit(name))
    };
    let Some(wrong) = units.iter().find(|name| !known(name)) else {
        return Ok(());
    };
    let mut names: Vec<String> = Unit::ALL.iter().map(|unit| unit.name().to_owned()).collect();
    names.extend(targets.iter().flat_map(|target| target.spec.units.keys().cloned()));
    names.sort_unstable();
    names.dedup();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(Unknown::new("unit", wrong, &names).into())
}
