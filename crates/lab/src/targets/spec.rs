//! What a `target.toml` says. `docs/targets.md` describes every key.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use carefree_workloads::feed::How;
use carefree_workloads::named::list;
use carefree_workloads::role::Role;
use carefree_workloads::serve::Kind;
use carefree_workloads::workload::Workload;
use serde::Deserialize;

use super::place;
use crate::hosted;

/// The version of the format.
const SCHEMA: u32 = 1;

/// A `target.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    schema: u32,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) package: String,
    pub(crate) gc: Option<String>,
    pub(crate) find: Find,
    pub(crate) image: Option<Image>,
    #[serde(default)]
    pub(crate) parts: BTreeMap<String, Part>,
    pub(crate) programs: BTreeMap<String, Program>,
    pub(crate) units: BTreeMap<String, UnitSpec>,
    #[serde(default)]
    pub(crate) variants: BTreeMap<String, Variant>,
    /// What it is, where it stands for one of them.
    #[serde(skip)]
    pub(crate) variant: Option<String>,
}

/// How to find the runtime.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Find {
    #[serde(default)]
    pub(crate) path: Vec<String>,
    #[serde(default)]
    pub(crate) globs: Vec<String>,
    pub(crate) version: Vec<String>,
    #[serde(default)]
    pub(crate) after: String,
}

/// How it stands in container images.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Image {
    pub(crate) names: Vec<String>,
    pub(crate) runtime: String,
}

/// Something a unit or a program needs that may be missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    pub(crate) probe: Vec<String>,
    #[serde(default)]
    pub(crate) after: String,
    pub(crate) package: String,
}

/// A program and what it can do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) workloads: Vec<Workload>,
    #[serde(default)]
    pub(crate) build: Vec<Vec<String>>,
    pub(crate) run: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) needs: Vec<String>,
}

/// A unit of the runtime.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnitSpec {
    pub(crate) role: Role,
    pub(crate) what: String,
    #[serde(default)]
    pub(crate) gate: String,
    #[serde(default, rename = "yield")]
    pub(crate) yields: String,
    #[serde(default)]
    pub(crate) kernel: bool,
    #[serde(default)]
    pub(crate) cores: Cores,
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    pub(crate) programs: Option<Vec<String>>,
    pub(crate) workloads: Option<Vec<Workload>>,
    /// Workloads that it cannot do, and why not.
    #[serde(default)]
    pub(crate) without: BTreeMap<Workload, String>,
    #[serde(default)]
    pub(crate) warmup: u64,
    pub(crate) max_units: Option<u64>,
    pub(crate) why: Option<String>,
    pub(crate) since: Option<String>,
    pub(crate) feed: Option<Vec<How>>,
    /// Kinds of servers that its program can be.
    #[serde(default = "plain")]
    pub(crate) serve: Vec<Kind>,
    /// Idle connections that its server can hold, where there is a limit.
    pub(crate) max_idle: Option<MostIdle>,
    /// Whether there is a unit of these threads on fibers as well.
    #[serde(default)]
    carefree_run: bool,
    /// Whether this is that unit.
    #[serde(skip)]
    pub(crate) hosted: bool,
}

/// A limit on idle connections.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MostIdle {
    pub(crate) most: u64,
    pub(crate) why: String,
}

/// A program need not know of backends.
fn plain() -> Vec<Kind> {
    vec![Kind::Plain]
}

impl UnitSpec {
    /// How many of it there can be at once.
    pub(super) fn most_units(&self) -> u64 {
        self.max_units.unwrap_or(u64::MAX)
    }

    /// The same threads on fibers.
    fn hosted(&self) -> UnitSpec {
        let what = format!("{} under carefree run", self.what);
        // Its program feeds people as threads do.
        let feed = Some(self.feed.clone().unwrap_or_else(|| vec![How::Units]));
        UnitSpec { role: Role::Fiber, what, kernel: false, feed, hosted: true, ..self.clone() }
    }
}

/// A variant, as a `target.toml` tells of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub(crate) what: String,
    /// Variables of the programs' environment, and arguments behind the runtime in their commands.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) arguments: Vec<String>,
    /// For builds that tell by the end of their version what they are, in place of settings.
    pub(super) ending: Option<String>,
    pub(super) since: Option<String>,
    /// With these settings it ends with exit code 0 where the variant is there.
    #[serde(default)]
    pub(super) probe: Vec<String>,
    pub(super) package: Option<String>,
    /// The units it has; all where none are named.
    pub(super) units: Option<Vec<String>>,
    /// In what its units differ.
    #[serde(default)]
    pub(super) changes: BTreeMap<String, Changes>,
}

/// What is to be said of a unit in place of what the target says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changes {
    pub(super) what: Option<String>,
    #[serde(rename = "yield")]
    pub(super) yields: Option<String>,
    pub(super) kernel: Option<bool>,
    pub(super) cores: Option<Cores>,
}

/// How many cores a unit can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cores {
    #[default]
    All,
    One,
}

impl Spec {
    /// Reads a file.
    ///
    /// # Errors
    /// One line that says where the mistake is and what would be right.
    pub(crate) fn read(path: &Path) -> Result<Spec> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Spec::parse(&text).map_err(|mistake| match mistake.line {
            Some(line) => anyhow!("{}, line {line}: {mistake}", path.display()),
            None => anyhow!("{}: {mistake}", path.display()),
        })
    }

    pub(super) fn parse(text: &str) -> std::result::Result<Spec, Mistake> {
        let mut spec: Spec = toml::from_str(text).map_err(|error| Mistake {
            line: error.span().map(|span| {
                text[..span.start.min(text.len())].bytes().filter(|&b| b == b'\n').count() + 1
            }),
            // Some of the parser's messages have more than one line.
            what: error.message().replace('\n', ", "),
        })?;
        spec.check().map_err(|what| Mistake { line: None, what: format!("{what:#}") })?;
        spec.add_hosted();
        Ok(spec)
    }

    /// What the format alone does not tell.
    fn check(&self) -> Result<()> {
        ensure!(
            self.schema == SCHEMA,
            "schema {} is unknown; this lab reads {SCHEMA}",
            self.schema
        );
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '+';
        ensure!(
            !self.name.is_empty() && self.name.chars().all(plain),
            "the name '{}' has something else in it than letters, digits, - and +",
            self.name
        );
        ensure!(
            !self.find.version.is_empty(),
            "[find] version is empty; it asks the runtime for its version"
        );
        for (name, program) in &self.programs {
            let place = format!("[programs.{name}]");
            let mut commands = program.build.iter().chain([&program.run]);
            ensure!(!commands.any(Vec::is_empty), "{place} has an empty command");
            self.known_parts(&place, &program.needs)?;
            for words in &program.build {
                places(&format!("{place} build"), words, &PLACES)?;
            }
            places(&format!("{place} run"), &program.run, &PLACES)?;
            places(&format!("{place} env"), program.env.values(), &PLACES)?;
        }
        // Before a version is known, and with nothing built.
        places("[find] version", &self.find.version, &PLACES[..3])?;
        places("[find] path", &self.find.path, &[])?;
        places("[find] globs", &self.find.globs, &[])?;
        places("[image] runtime", self.image.iter().map(|image| &image.runtime), &[])?;
        for (name, part) in &self.parts {
            ensure!(!part.probe.is_empty(), "[parts.{name}] probe is empty");
            places(&format!("[parts.{name}] probe"), &part.probe, &PLACES[..4])?;
        }
        for (name, unit) in &self.units {
            let place = format!("[units.{name}]");
            self.known_parts(&place, &unit.needs)?;
            for program in unit.programs.iter().flatten() {
                known(&place, "program", program, &self.programs)?;
            }
            ensure!(
                unit.max_units.is_some() == unit.why.is_some(),
                "{place}: max_units and why go together"
            );
            ensure!(
                unit.kernel || !unit.carefree_run,
                "{place}: carefree_run is for threads of the kernel (kernel = true)"
            );
        }
        Ok(())
    }

    fn add_hosted(&mut self) {
        let threads = self.units.iter().filter(|(_, unit)| unit.carefree_run);
        let hosted: Vec<_> =
            threads.map(|(name, unit)| (hosted::name_of(name), unit.hosted())).collect();
        self.units.extend(hosted);
    }

    /// Whether one of its commands asks for the folder the runtime is in.
    pub(crate) fn uses_bin(&self) -> bool {
        let programs = self.programs.values();
        let words = programs.flat_map(|program| program.build.iter().flatten().chain(&program.run));
        let mut words = words.chain(self.parts.values().flat_map(|part| &part.probe));
        words.any(|word| word.contains("{bin}"))
    }

    fn known_parts(&self, place: &str, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| known(place, "part", name, &self.parts))
    }
}

/// A mistake in a file.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(super) struct Mistake {
    line: Option<usize>,
    what: String,
}

/// What commands may have filled in.
pub(super) const PLACES: [&str; 5] = ["runtime", "bin", "folder", "version", "cache"];

/// The place of the runtime's program.
pub(super) const RUNTIME: &str = "{runtime}";

/// Refuses a place in braces that has no value in these words of the file's.
pub(super) fn places<'a>(
    what: &str,
    words: impl IntoIterator<Item = &'a String>,
    known: &[&str],
) -> Result<()> {
    let wrong = words.into_iter().find_map(|word| place::unknown(word, known));
    let right: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
    let right: Vec<&str> = right.iter().map(String::as_str).collect();
    let right = if right.is_empty() { "there are none".into() } else { list(&right) };
    match wrong {
        None => Ok(()),
        Some(wrong) => bail!("{what}: there is no place {{{wrong}}} here; the places are: {right}"),
    }
}

pub(super) fn known<T>(
    place: &str,
    kind: &str,
    name: &str,
    all: &BTreeMap<String, T>,
) -> Result<()> {
    let right: Vec<&str> = all.keys().map(String::as_str).collect();
    let right = if right.is_empty() { "there are none".into() } else { list(&right) };
    ensure!(
        all.contains_key(name),
        "{place}: there is no {kind} '{name}'; the {kind}s are: {right}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"schema = 1
name = "x"
title = "X"
package = "apt install x"
[find]
path = ["x"]
version = ["{runtime}", "--version"]
[programs.units]
workloads = ["alloc"]
run = ["{runtime}", "{folder}/x"]
[units.thread]
role = "thread"
what = "a thread"
"#;

    fn mistake(from: &str, to: &str) -> (Option<usize>, String) {
        assert!(GOOD.contains(from), "{from}");
        let mistake = Spec::parse(&GOOD.replacen(from, to, 1)).expect_err("a mistake");
        assert!(!mistake.what.contains('\n'), "{mistake:?}");
        (mistake.line, mistake.what)
    }

    #[test]
    fn a_small_file_will_do() {
        let spec = Spec::parse(GOOD).expect("no mistake");
        assert_eq!(spec.units["thread"].cores, Cores::All);
        assert_eq!(spec.units["thread"].warmup, 0);
    }

    #[test]
    fn threads_have_a_unit_of_their_own_on_fibers() {
        let asked = "role = \"thread\"\nkernel = true\ncarefree_run = true";
        let spec = Spec::parse(&GOOD.replace("role = \"thread\"", asked)).expect("no mistake");
        let unit = &spec.units["thread (carefree)"];
        assert_eq!((unit.role, unit.kernel, unit.hosted), (Role::Fiber, false, true));
        assert_eq!(unit.what, "a thread under carefree run");
        let (_, what) = mistake("role = \"thread\"", "role = \"thread\"\ncarefree_run = true");
        assert!(what.contains("kernel = true"), "{what}");
    }

    #[test]
    fn a_wrong_key_is_named_with_its_line_and_the_right_ones() {
        let (line, what) = mistake("path = ", "paht = ");
        assert_eq!(line, Some(6));
        assert!(what.contains("`paht`") && what.contains("`globs`"), "{what}");
    }

    #[test]
    fn a_place_that_has_no_value_is_named_with_those_that_have() {
        let (_, what) = mistake("{folder}/x", "{foldr}/x");
        assert_eq!(
            what,
            "[programs.units] run: there is no place {foldr} here; the places are: {runtime}, \
             {bin}, {folder}, {version} and {cache}"
        );
        let (_, what) = mistake("--version\"", "{cache}\"");
        assert!(what.starts_with("[find] version: there is no place {cache} here"), "{what}");
        let (_, what) = mistake("path = [\"x\"]", "globs = [\"{bin}/x\"]");
        assert!(what.ends_with("{bin} here; the places are: there are none"), "{what}");
        let env = "run = [\"{runtime}\"]\nenv = { A = \"{verion}\" }\nneeds = []";
        let (_, what) = mistake("run = [\"{runtime}\", \"{folder}/x\"]", env);
        assert!(what.starts_with("[programs.units] env: there is no place {verion}"), "{what}");
        let part = "[parts.kit]\nprobe = [\"{cache}/kit\"]\npackage = \"x\"\n[units.thread]";
        let (_, what) = mistake("[units.thread]", part);
        assert!(what.starts_with("[parts.kit] probe: there is no place {cache}"), "{what}");
    }

    #[test]
    fn a_missing_key_is_named() {
        let (_, what) = mistake("title = \"X\"\n", "");
        assert!(what.contains("missing field `title`"), "{what}");
    }

    #[test]
    fn what_is_no_toml_is_said_with_its_line() {
        let (line, _) = mistake("[find]", "[find");
        assert_eq!(line, Some(5));
    }

    #[test]
    fn names_that_lead_nowhere_are_named() {
        let (line, what) = mistake("\"alloc\"", "\"aloc\"");
        assert!(line == Some(9) && what.contains("`aloc`") && what.contains("`fetch`"), "{what}");
        let (_, what) = mistake("role = \"thread\"", "role = \"thread\"\nneeds = [\"gem\"]");
        assert!(what.starts_with("[units.thread]: there is no part 'gem'"), "{what}");
        let (_, what) = mistake("role = \"thread\"", "role = \"thread\"\nprograms = [\"feed\"]");
        assert!(what.contains("there is no program 'feed'; the programs are: units"), "{what}");
        let without = "role = \"thread\"\nwithout = { fetsch = \"no client\" }";
        let (_, what) = mistake("role = \"thread\"", without);
        assert!(what.contains("`fetsch`") && what.contains("`fetch`"), "{what}");
        let (_, what) = mistake("role = \"thread\"", "role = \"tread\"");
        assert!(what.contains("`tread`") && what.contains("`thread`"), "{what}");
        let (_, what) = mistake("schema = 1", "schema = 2");
        assert_eq!(what, "schema 2 is unknown; this lab reads 1");
    }
}
