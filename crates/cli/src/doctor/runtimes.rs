//! The runtimes that `carefree bench` finds here, and the packages that bring the others.

use std::path::PathBuf;

use carefree_lab::targets::image::Engine;
use carefree_lab::targets::{self, Finding, Folders, Runtime, Target};

use super::checks::{Check, Verdict};
use crate::progress::Bar;
use crate::run::hosting;

/// A line for each runtime the lab knows how to measure, and one for container images.
pub(super) fn all(more: &[PathBuf]) -> Vec<Check> {
    let folders = match Folders::open(more) {
        Ok(folders) => folders,
        Err(why) => {
            return vec![
                Check::new("runtimes to measure", Verdict::Bad, "none")
                    .reason(&format!("{why:#}"))
                    .means("carefree bench cannot keep its targets and what it builds of them."),
            ];
        }
    };
    let (targets, mistakes) = targets::read_all(folders.targets());
    let hosting = hosting();
    let targets: Vec<Target> =
        targets.into_iter().map(|target| target.hosted_by(hosting.as_ref())).collect();
    let mut bar = Bar::new();
    targets::survey(&targets, &mut |waiting| bar.wait(waiting));
    // Parts of them are asked for as well, and an engine of containers.
    let mut looks: Vec<Option<&Target>> = targets.iter().map(Some).collect();
    looks.push(None);
    let name = |target: &Option<&Target>| {
        target.map_or_else(|| "container images".to_owned(), |target| target.title().to_owned())
    };
    let look = |target: &Option<&Target>| target.map_or_else(engine, runtime);
    let mut found = targets::each(&looks, &name, &look, &mut |waiting| bar.wait(waiting));
    bar.end();
    found.extend(mistakes.iter().map(|mistake| {
        Check::new("a target", Verdict::Bad, "cannot be read")
            .reason(mistake)
            .means("It is left out.")
    }));
    found
}

fn runtime(target: &Target) -> Check {
    let here: Vec<Runtime> = target.installed(&[]).collect();
    let Some(first) = here.first() else {
        let check = match target.silent() {
            Some(why) => Check::new(target.title(), Verdict::Note, "does not answer").reason(&why),
            None => Check::new(target.title(), Verdict::Note, "not found"),
        };
        return check.means("carefree bench leaves it out.").advice(target.package());
    };
    let versions: Vec<String> = here.iter().map(Runtime::version).collect();
    let (mut units, mut missing, mut bringing) = (Vec::new(), Vec::new(), Vec::new());
    for (unit, finding) in first.units() {
        match finding {
            Finding::Here => units.push(unit),
            Finding::Missing { part, package } => {
                missing.push(format!("{unit}, which needs {part}"));
                if !bringing.contains(&package) {
                    bringing.push(package);
                }
            }
            Finding::TooOld { since } => missing.push(format!("{unit}, which came with {since}")),
        }
    }
    let mut meaning = match units.is_empty() {
        true => format!("carefree bench has nothing to measure in {}.", first.program()),
        false => format!("carefree bench measures {} in {}.", listed(&units), first.program()),
    };
    let usual = target.usual(&|_, _| true, false);
    if let Some(other) = usual.get(1) {
        let young: Vec<String> = other
            .units()
            .into_iter()
            .filter(|(unit, finding)| *finding == Finding::Here && !units.contains(unit))
            .map(|(unit, _)| unit)
            .collect();
        missing.retain(|what| !young.iter().any(|unit| what.starts_with(&format!("{unit}, "))));
        meaning += &format!(" And {} in {}.", listed(&young), other.program());
    }
    if !missing.is_empty() {
        meaning += &format!(" Left out: {}.", missing.join("; "));
    }
    if here.len() > 1 {
        meaning += &format!(
            " The other versions: carefree bench --runtime {0}@{1}, or {0}@all.",
            target.name(),
            here[1].version()
        );
    }
    // The doctor names those that a version here has; the others are what other builds would bring.
    let variants = target.variants().filter(|name| here.iter().any(|r| r.in_variant(name).is_ok()));
    let variants: Vec<String> =
        variants.map(|name| format!("--runtime {}/{name}", target.name())).collect();
    if !variants.is_empty() {
        meaning += &format!(" Its variants: carefree bench {}.", listed(&variants));
    }
    let verdict = if missing.is_empty() { Verdict::Good } else { Verdict::Note };
    let check = Check::new(target.title(), verdict, versions.join(", ")).means(meaning);
    if bringing.is_empty() { check } else { check.advice(bringing.join("; ")) }
}

fn engine() -> Check {
    match Engine::find() {
        Ok(engine) => Check::new("container images", Verdict::Good, engine.name())
            .means("carefree bench --image measures runtimes in them."),
        Err(why) => Check::new("container images", Verdict::Note, "cannot be run")
            .reason(&format!("{why:#}"))
            .means("carefree bench --image has no engine to run them.")
            .advice("apt install podman, or docker"),
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}
