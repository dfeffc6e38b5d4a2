//! What takes part in a run: our own units, and those of the runtimes that were asked for or found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Context, Error, Result, anyhow, bail};
use carefree_workloads::feed::How;
use carefree_workloads::fetch::SEQUENTIAL;
use carefree_workloads::named::{Unknown, list};
use carefree_workloads::role::Role;
use carefree_workloads::serve::Kind;
use carefree_workloads::unit::Unit;
use carefree_workloads::workload::{Size, Workload};

use super::image::Engine;
use super::spec::{MostIdle, UnitSpec};
use super::{Facts, Finding, Folders, NotReady, Ready, Runtime, Target};
use crate::course::Course;
use crate::hosted;
use crate::noise::{Warning, WarningKind};
use crate::number::whole;
use crate::plan::place;
use crate::process::Launch;
use crate::record::Failed;
use crate::serving::Serving;
use crate::sweep::Sweep;
use crate::trial::Trial;

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Runtimes by name, with `@` and a version where not the first one found is meant, or `@all`; and with
    /// `/` and a variant of it, `ruby@3.4/yjit`.
    /// With nothing here, in `with` and in `images`, it is everything that is found.
    pub runtimes: Vec<String>,
    /// Units by name, or roles; all where there are none.
    pub units: Vec<String>,
    /// Programs by their paths, `ruby=/path/to/ruby`; two of the same version have names,
    /// `ruby@patch=/path/to/ruby`; a variant of one, `ruby/yjit=/path/to/ruby`.
    pub with: Vec<String>,
    /// Container images, `ruby:3.4`; of a name that tells no runtime, `ruby=own:dev`, and with a name
    /// to tell it from others of its version, `ruby@fork=own:dev`; with variants as in `with`.
    pub images: Vec<String>,
}

impl Wishes {
    /// Whether everything that is found takes part.
    pub fn takes_all(&self) -> bool {
        self.runtimes.is_empty() && self.with.is_empty() && self.images.is_empty()
    }
}

/// What takes part.
#[derive(Debug)]
pub struct Lineup {
    ours: Vec<Unit>,
    runtimes: Vec<Runtime>,
    units: Vec<String>,
    /// Containers of labs that were killed.
    removed: usize,
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
    /// What is asked of servers.
    pub serve: Serving,
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
    /// What a reader of the figures should know of what took part.
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
    /// Finds what takes part.
    ///
    /// # Errors
    /// One line: a name that leads nowhere, an image that cannot be run.
    pub fn find(wishes: &Wishes, targets: &[Target]) -> Result<Lineup> {
        known_units(&wishes.units, targets)?;
        let mut lineup = Lineup {
            ours: Vec::new(),
            runtimes: Vec::new(),
            units: wishes.units.clone(),
            removed: 0,
        };
        let with: Vec<Runtime> =
            wishes.with.iter().map(|wish| named(wish, targets)).collect::<Result<_>>()?;
        for wish in &wishes.runtimes {
            lineup.add(wish, targets, &with)?;
        }
        if wishes.takes_all() {
            lineup.ours = Unit::ALL.to_vec();
            // The doctor tells of those that are not here.
            let usual: Vec<_> = targets.iter().flat_map(|t| lineup.usual(t)).collect();
            lineup.runtimes.extend(usual);
        }
        lineup.runtimes.extend(with);
        let engine = (!wishes.images.is_empty()).then(Engine::find).transpose()?;
        if let Some(engine) = &engine {
            lineup.removed = engine.remove_leftovers();
        }
        for (engine, image) in engine.iter().flat_map(|e| wishes.images.iter().map(move |i| (e, i)))
        {
            lineup.runtimes.push(in_image(image, engine, targets)?);
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
            let (name, version) = (runtime.target().name(), runtime.version());
            let same =
                |other: &&Runtime| other.target().name() == name && other.version() == version;
            match kept.iter().find(same) {
                None => kept.push(runtime),
                Some(other) if other.is_same_program(&runtime) => {}
                Some(other) => {
                    let ([option, one], [_, two]) = (other.place(), runtime.place());
                    bail!(
                        "{one} and {two} are both {name} {version}: give each a name, as in {option} \
                         {name}@base={one} {option} {name}@patch={two}"
                    );
                }
            }
        }
        self.runtimes = kept;
        Ok(())
    }

    /// Adds what a wish of `--runtime` stands for; `with` are the programs of `--with`, which take part
    /// anyway.
    fn add(&mut self, wish: &str, targets: &[Target], with: &[Runtime]) -> Result<()> {
        let (wish, variant) = slash(wish);
        let (name, wanted) = at_sign(wish);
        let ours: Vec<Unit> = Unit::ALL.into_iter().filter(|unit| unit.runtime() == name).collect();
        self.ours.extend(ours.iter().filter(|_| variant.is_none()));
        let Some(target) = targets.iter().find(|target| target.name() == name) else {
            if !ours.is_empty() {
                return Ok(());
            }
            let ours = Unit::ALL.iter().map(|unit| unit.runtime());
            return Err(unknown("runtime", name, targets.iter().map(Target::name).chain(ours)));
        };
        let with: Vec<&Runtime> = with.iter().filter(|own| own.target().name() == name).collect();
        if let Some(variant) = variant {
            self.runtimes.extend(in_variant(target, wanted, variant, &with)?);
            return Ok(());
        }
        let mut found: Vec<Runtime> = match wanted {
            None => self.usual(target),
            Some("all") => target.installed(&[]).collect(),
            Some(wanted) => target.installed(&[]).filter(|r| r.is(wanted)).take(1).collect(),
        };
        let is_meant = |own: &&Runtime| {
            wanted.is_none_or(|wanted| wanted == "all" || own.is(wanted) || own.is_called(wanted))
        };
        if found.is_empty() && ours.is_empty() && !with.iter().any(is_meant) {
            return Err(missing(target, wanted, &with));
        }
        self.runtimes.append(&mut found);
        Ok(())
    }

    /// How many containers of labs that were killed were removed.
    pub fn removed(&self) -> usize {
        self.removed
    }

    /// The versions of a target that take part when none is named: those that have the units.
    fn usual(&self, target: &Target) -> Vec<Runtime> {
        let has = |name: &str| target.has_unit(name);
        // Units that were named are worth the time to find the version that has all they need.
        target.usual(&|name, role| self.wants(name, role, &has), !self.units.is_empty())
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

    /// Makes the kinds of samples, and has their programs built. `building` is called
    /// with each runtime before that, and returns whether to go on.
    pub fn field(
        &self,
        sizes: &Sizes,
        folders: &Folders,
        building: &mut dyn FnMut(&Runtime) -> bool,
    ) -> Field {
        let mut field = Field::default();
        for &unit in self.ours.iter().filter(|unit| self.wants_ours(**unit)) {
            let names = (unit.runtime(), unit.version(), unit.name());
            for &workload in &sizes.workloads {
                let kernel = unit.role() == Role::Thread;
                let mut trial = sizes.trial(workload, names, unit.role(), kernel);
                trial.program.clone_from(&sizes.program);
                match (workload, unit) {
                    (Workload::Fetch | Workload::Serve, Unit::Coroutine) => field.without(
                        &trial,
                        "coroutines are resumed by hand and cannot wait for a socket",
                    ),
                    (Workload::Fetch, Unit::Thread) => {
                        field.kinds.extend(sizes.fetch.sequential(&trial));
                        field.kinds.extend(sizes.fetch.of_unit(&trial));
                    }
                    _ => field.kinds.extend(sizes.trials(&trial, None, &Kind::ALL)),
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

    /// Whether a unit of ours takes part, whose samples depend on our own program.
    pub fn has_ours(&self) -> bool {
        self.ours.iter().any(|unit| self.wants_ours(*unit))
    }

    fn wants_ours(&self, unit: Unit) -> bool {
        let has = |name: &str| {
            Unit::ALL.iter().any(|own| own.runtime() == unit.runtime() && own.name() == name)
        };
        self.wants(unit.name(), unit.role(), &has)
    }

    /// Whether another version of this runtime takes part that is not too old for this unit.
    fn has_newer(&self, runtime: &Runtime, unit: &str) -> bool {
        let has = |other: &Runtime| {
            let units = other.units();
            let mut units = units.iter().filter(|(name, _)| name == unit);
            units.any(|(_, finding)| !matches!(finding, Finding::TooOld { .. }))
        };
        let mut others = self.runtimes.iter();
        others.any(|other| other.target().name() == runtime.target().name() && has(other))
    }

    fn add_kinds(&self, runtime: &Runtime, sizes: &Sizes, folders: &Folders, field: &mut Field) {
        let mut here = false;
        let target = runtime.target();
        for (name, finding) in runtime.units() {
            let has = |name: &str| target.has_unit(name);
            let wanted = |unit: &&UnitSpec| self.wants(&name, unit.role, &has);
            let Some(spec) = runtime.unit(&name).filter(wanted) else {
                continue;
            };
            let unit = RuntimeUnit { runtime, name: &name, spec };
            match finding {
                Finding::Here => {
                    here = true;
                    for &workload in &sizes.workloads {
                        self.add_workload(&unit, workload, sizes, folders, field);
                    }
                }
                Finding::Missing { part, package } => {
                    field.leave_out(format!("{unit} is left out: it needs {part}"), package);
                }
                // Another version in this run has it.
                Finding::TooOld { .. } if self.has_newer(runtime, &name) => {}
                Finding::TooOld { since } => {
                    let advice = format!(
                        "install {since} or newer, and name it: --runtime {}@{since}",
                        target.name()
                    );
                    field.leave_out(format!("{unit} is left out: it came with {since}"), advice);
                }
            }
        }
        if here {
            let mut facts = runtime.facts();
            // Of units that have none of these workloads there is nothing to say.
            facts.units.retain(|unit, _| field.has(&facts.runtime, &facts.version, unit));
            field.facts.push(facts);
        }
    }

    /// Adds the kinds of samples of one workload, and has their program built.
    fn add_workload(
        &self,
        unit: &RuntimeUnit<'_>,
        workload: Workload,
        sizes: &Sizes,
        folders: &Folders,
        field: &mut Field,
    ) {
        let &RuntimeUnit { runtime, name, spec } = unit;
        if let Some(Finding::Missing { part, package }) = runtime.lacks(name, workload) {
            let message = format!("{unit} is left out of {workload}: it needs {part}");
            return field.leave_out(message, package);
        }
        let version = runtime.version();
        let names = (runtime.target().name(), &*version, name);
        let mut trial = sizes.trial(workload, names, spec.role, spec.kernel);
        let Some(ready) = runtime.ready(name, workload, folders) else {
            if let Some(why) = spec.without.get(&workload) {
                field.without(&trial, why);
            }
            return;
        };
        trial.warmup = if workload.warms_up() { spec.warmup } else { 0 };
        field.limit_units(&mut trial, unit);
        if workload == Workload::Serve {
            for kind in sizes.serve.missing(&spec.serve) {
                field.leave_out(
                    format!(
                        "{unit} is left out of serve with --kind {kind}: its program is no such \
                         server"
                    ),
                    "docs/targets.md says what such a server does".into(),
                );
            }
        }
        let ready = match ready {
            Ok(ready) => ready,
            Err(NotReady { failure, stderr }) => {
                return field.fail(Failed::new(&trial, failure, stderr));
            }
        };
        trial.program = ready.fingerprint().to_owned();
        trial.source = ready.source().to_owned();
        if workload == Workload::Fetch && self.wants(SEQUENTIAL, Role::Thread, &|_| false) {
            // Once for each runtime, whichever of its units comes first; Rust's may be ours.
            let sequential = sizes.fetch.sequential(&trial);
            let key = key(&sequential[0]);
            if !field.kinds.iter().any(|known| self::key(known) == key) {
                field.ready.insert(key, ready.clone());
                field.kinds.extend(sequential);
            }
        }
        field.ready.insert(key(&trial), ready);
        let mut trials = sizes.trials(&trial, spec.feed.as_deref(), &spec.serve);
        trials.retain(|trial| trial.parameters.units() <= spec.most_units());
        if let Some(limit) = &spec.max_idle {
            field.limit_idle(&mut trials, limit, &unit.to_string());
        }
        field.kinds.extend(trials);
    }
}

/// A unit of a runtime.
struct RuntimeUnit<'a> {
    runtime: &'a Runtime,
    name: &'a str,
    spec: &'a UnitSpec,
}

impl fmt::Display for RuntimeUnit<'_> {
    /// `ruby 3.4.1 thread`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuntimeUnit { runtime, name, .. } = self;
        write!(f, "{} {} {name}", runtime.target().name(), runtime.version())
    }
}

impl Sizes {
    /// The kinds of samples that a unit's trial stands for.
    fn trials(&self, trial: &Trial, ways: Option<&[How]>, kinds: &[Kind]) -> Vec<Trial> {
        match trial.workload {
            Workload::Feed => self.feed.of_unit(trial, ways),
            Workload::Fetch => self.fetch.of_unit(trial),
            Workload::Serve => self.serve.of_unit(trial, kinds),
            _ => vec![trial.clone()],
        }
    }

    /// A trial of the unit that runtime, version and its own name tell; `kernel`: whether its
    /// switches are the kernel's.
    fn trial(
        &self,
        workload: Workload,
        (runtime, version, unit): (&str, &str, &str),
        role: Role,
        kernel: bool,
    ) -> Trial {
        let (pin, cores) = place(workload, self.pin);
        let mut parameters = workload.parameters(self.size, cores);
        // Threads on fibers, or by a scheduler of the runtime's, are compared with those of the kernel, and
        // what a thread costs depends on how many there are.
        if role == Role::Thread || hosted::is_hosted(unit) {
            parameters.set("units", parameters.units().min(workload.most_threads()));
        }
        if let Some(crowd) = self.crowd.filter(|_| workload.is_gated()) {
            parameters.set("units", crowd);
        }
        let (runtime, version, unit) = (runtime.into(), version.into(), unit.into());
        Trial {
            runtime,
            version,
            unit,
            role,
            kernel,
            program: String::new(),
            source: String::new(),
            workload,
            parameters,
            warmup: 0,
            pin,
        }
    }
}

impl Field {
    /// How to start a sample; nothing for our own units, which the caller knows how to start.
    pub fn launch(&self, trial: &Trial) -> Option<Launch> {
        self.ready.get(&key(trial)).map(|ready| ready.launch(trial))
    }

    fn leave_out(&mut self, message: String, advice: String) {
        self.notes.push(Warning::new(WarningKind::LeftOut, message, advice));
    }

    /// Lowers the number of units to what this one can have.
    fn limit_units(&mut self, trial: &mut Trial, unit: &RuntimeUnit<'_>) {
        let most = unit.spec.most_units();
        if trial.parameters.units() <= most {
            return;
        }
        trial.parameters.set("units", most);
        let why = unit.spec.why.as_deref().unwrap_or_default();
        let note = Warning::new(
            WarningKind::FewerUnits,
            format!("{unit} runs with {} units at most: {why}", whole(most)),
            format!("compare it with others of as few: --units {most}"),
        );
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Lowers the idle connections of servers to what this one can hold.
    fn limit_idle(
        &mut self,
        trials: &mut Vec<Trial>,
        MostIdle { most, why }: &MostIdle,
        who: &str,
    ) {
        let count = |trial: &Trial| trial.parameters.number("idle").unwrap_or(0);
        if !trials.iter().any(|trial| count(trial) > *most) {
            return;
        }
        for trial in trials.iter_mut().filter(|trial| count(trial) > *most) {
            trial.parameters.set("idle", *most);
        }
        // Several numbers may have come to be one.
        let mut known = BTreeSet::new();
        trials.retain(|trial| known.insert(trial.parameters.clone()));
        self.notes.push(Warning::new(
            WarningKind::FewerUnits,
            format!("{who} holds {most} idle connections at most: {why}"),
            format!("compare it with others of as few: --idle {most}"),
        ));
    }

    /// Notes that a unit has no part in a workload.
    fn without(&mut self, trial: &Trial, why: &str) {
        let Trial { runtime, version, unit, workload, .. } = trial;
        self.leave_out(
            format!("{runtime} {version} {unit} has no {workload}: {why}"),
            format!("compare its other workloads, or units that have {workload}"),
        );
    }

    /// Notes a build that failed: once, though it fails for every workload.
    fn fail(&mut self, failed: Failed) {
        let of = |failed: &Failed| {
            let subject = &failed.subject;
            (failed.message.clone(), subject.runtime.clone(), subject.version.clone())
        };
        if !self.failed.iter().any(|known| of(known) == of(&failed)) {
            self.failed.push(failed);
        }
    }

    /// Whether this unit takes part, or failed to.
    fn has(&self, runtime: &str, version: &str, unit: &str) -> bool {
        let wanted = (runtime, version, unit);
        let failed = self.failed.iter().map(|failed| &failed.subject);
        self.kinds.iter().any(|t| (&*t.runtime, &*t.version, t.asked_unit()) == wanted)
            || failed.into_iter().any(|s| (&*s.runtime, &*s.version, &*s.unit) == wanted)
    }
}

/// A name, and what stands behind its `@`.
fn at_sign(name: &str) -> (&str, Option<&str>) {
    name.split_once('@').map_or((name, None), |(name, rest)| (name, Some(rest)))
}

/// A name, and the variant behind its `/`.
fn slash(name: &str) -> (&str, Option<&str>) {
    name.split_once('/').map_or((name, None), |(name, variant)| (name, Some(variant)))
}

/// The first version here, of those `wanted`, that has this variant; all of them for `all`. The
/// programs of `--with` come after those that are installed.
fn in_variant(
    target: &Target,
    wanted: Option<&str>,
    variant: &str,
    with: &[&Runtime],
) -> Result<Vec<Runtime>> {
    known_variant(target, variant)?;
    let is_meant = |runtime: &Runtime| {
        wanted.is_none_or(|wanted| {
            wanted == "all" || runtime.is_among(wanted) || runtime.is_called(wanted)
        })
    };
    let (mut found, mut lacks) = (Vec::new(), None);
    let installed = target.installed(&[]).map(|runtime| (runtime, false));
    let named = with.iter().map(|&own| (own.clone(), true));
    for (runtime, is_named) in installed.chain(named).filter(|(runtime, _)| is_meant(runtime)) {
        match runtime.in_variant(variant) {
            Ok(runtime) => found.push(runtime),
            // Of one that was named on the command line the reader wants to know rather than of what is installed.
            Err(finding) if is_named || lacks.is_none() => {
                lacks = Some(why_not(&runtime, variant, finding));
            }
            Err(_) => {}
        }
        if !found.is_empty() && wanted != Some("all") {
            break;
        }
    }
    let name = target.name();
    match (found.is_empty(), lacks) {
        (false, _) => Ok(found),
        (true, Some(lacks)) => bail!("no {name} here has the variant {variant}: {lacks}"),
        (true, None) => Err(missing(target, wanted, with)),
    }
}

/// Why nothing is here of a target, or not the version that was asked for.
fn missing(target: &Target, wanted: Option<&str>, with: &[&Runtime]) -> anyhow::Error {
    let name = target.name();
    let all = target.installed(&[]).map(|runtime| runtime.version());
    let all: Vec<String> = all.chain(with.iter().map(|own| own.version())).collect();
    match (wanted.filter(|_| !all.is_empty()), target.silent()) {
        (Some(wanted), _) => {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            anyhow!("there is no {name} {wanted} here; there is {}", list(&all))
        }
        (None, Some(silent)) => anyhow!("no {name} here tells its version: {silent}"),
        (None, None) => anyhow!("{name} is not installed; {} brings it", target.package()),
    }
}

/// This runtime in a variant, where one was named.
fn varied(runtime: Runtime, variant: Option<&str>) -> Result<Runtime> {
    let Some(variant) = variant else { return Ok(runtime) };
    known_variant(runtime.target(), variant)?;
    let found = runtime.in_variant(variant);
    let name = runtime.target().name();
    found.map_err(|finding| anyhow!("{name}/{variant}: {}", why_not(&runtime, variant, finding)))
}

fn known_variant(target: &Target, variant: &str) -> Result<()> {
    let right: Vec<&str> = target.variants().collect();
    match right.is_empty() {
        _ if right.contains(&variant) => Ok(()),
        true => bail!("{} has no variants, and so no '{variant}'", target.name()),
        false => Err(unknown("variant", variant, right.into_iter())),
    }
}

/// Why a version has not a variant: `3.1.2 is too old, it came with 3.3`.
fn why_not(runtime: &Runtime, variant: &str, finding: Finding) -> String {
    let version = runtime.version();
    match finding {
        Finding::TooOld { since } => format!("{version} is too old, it came with {since}"),
        Finding::Missing { package, .. } => format!("{version} lacks it; {package} has it"),
        Finding::Here => format!("{version} has {variant}"),
    }
}

/// A program that was named, `ruby=/path/to/ruby`, with a name of its own where another of its
/// version takes part, `ruby@patch=/path/to/ruby`.
fn named(wish: &str, targets: &[Target]) -> Result<Runtime> {
    let (name, path) = wish.split_once('=').with_context(|| {
        format!("--with takes a runtime and a program, as in ruby=/path/to/ruby, not '{wish}'")
    })?;
    let (name, variant) = slash(name);
    let (target, build) = runtime_and_build("--with", name, targets)?;
    varied(target.named(Path::new(path), build)?, variant)
}

/// A container image by its own name, `ruby:3.4`, or of a runtime that is told, where the image's
/// name does not tell it, with a name to tell it from others: `ruby@fork=registry/own:dev`.
fn in_image(wish: &str, engine: &Engine, targets: &[Target]) -> Result<Runtime> {
    match wish.split_once('=') {
        Some((_, "")) => bail!("--image {wish}: behind the = stands the image, as in ruby=own:dev"),
        Some((name, image)) => {
            let (name, variant) = slash(name);
            let (target, build) = runtime_and_build("--image", name, targets)?;
            varied(target.in_image(engine, image, build)?, variant)
        }
        None => {
            let target = targets.iter().find(|target| target.is_in(wish)).with_context(|| {
                format!(
                    "no target says that it is in an image '{wish}': say which runtime it has, as \
                     in --image ruby={wish}"
                )
            })?;
            target.in_image(engine, wish, None)
        }
    }
}

/// The target of a runtime that was named for `option`, and the name of its build: `ruby@patch`.
fn runtime_and_build<'t, 'n>(
    option: &str,
    name: &'n str,
    targets: &'t [Target],
) -> Result<(&'t Target, Option<&'n str>)> {
    let (name, build) = at_sign(name);
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_.+".contains(letter);
    if let Some(build) = build.filter(|b| b.is_empty() || !b.chars().all(is_plain)) {
        bail!(
            "{option} {name}@{build}: a name has letters, digits, '-', '_', '.' and '+', as in \
             {name}@patch"
        );
    }
    let target = targets.iter().find(|target| target.name() == name);
    let target =
        target.ok_or_else(|| unknown("runtime", name, targets.iter().map(Target::name)))?;
    Ok((target, build))
}

/// Refuses the name of a unit that no runtime has.
fn known_units(units: &[String], targets: &[Target]) -> Result<()> {
    let ours = Unit::ALL.iter().map(|unit| unit.name()).chain([SEQUENTIAL]);
    let theirs = targets.iter().flat_map(|target| target.spec.units.keys().map(String::as_str));
    // A role has the name of one of our units.
    let right: BTreeSet<&str> = ours.chain(theirs).collect();
    match units.iter().find(|name| !right.contains(name.as_str())) {
        Some(wrong) => Err(unknown("unit", wrong, right.into_iter())),
        None => Ok(()),
    }
}

fn unknown<'a>(kind: &'static str, name: &str, right: impl Iterator<Item = &'a str>) -> Error {
    let right: BTreeSet<&str> = right.collect();
    Unknown::new(kind, name, &right.into_iter().collect::<Vec<_>>()).into()
}
