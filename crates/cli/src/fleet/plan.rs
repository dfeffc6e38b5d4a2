//! The plan as a file: the tasks that a run is made of, for any engine to run. `docs/fleet.md`
//! describes the format.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use carefree_lab::env::Environment;
use carefree_lab::record::fingerprint;
use carefree_lab::targets::Target;
use carefree_lab::targets::lineup::{Lineup, Wishes};
use carefree_workloads::unit::Unit;
use clap::Parser;
use serde::{Deserialize, Serialize};

use super::options::{self, Given};
use crate::args::{Bench, Cli, Command};
use crate::bench::{command_line, read_targets};
use crate::out::Out;
use crate::{complain, exit, terminal};

/// The version of the format. It changes when a reader of the old one would misread the new one;
/// new keys alone do not change it.
const FORMAT: u32 = 1;

/// What a fleet is to measure. It says nothing of the machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// [`FORMAT`].
    carefree_plan: u32,
    /// When it was made, UTC.
    #[serde(default)]
    made: String,
    /// The command line that made it.
    #[serde(default)]
    pub(super) command: String,
    /// When `--force` asked for a measurement anew: tells this plan from the same one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anew: Option<String>,
    /// The parts, each of which one machine runs by itself.
    pub(super) tasks: Vec<Task>,
}

/// A part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Task {
    /// Its number, from 1.
    pub(super) task: u32,
    /// What it measures, for people.
    #[serde(default)]
    pub(super) name: String,
    /// What follows `carefree bench` to measure that.
    pub(super) arguments: Vec<String>,
}

/// Options that a task may not have: they belong to whatever runs it.
const NOT_OF_A_TASK: [&str; 13] = [
    "plan",
    "task",
    "machine",
    "on",
    "partition",
    "nodes",
    "exclusive",
    "node_patience",
    "sbatch",
    "record",
    "force",
    "format",
    "out",
];

/// Writes the plan of these orders.
pub(super) fn write(orders: &Bench, file: &Path) -> Result<ExitCode, (u8, Error)> {
    let usage = |error| (exit::USAGE, error);
    if let Some(option) = ["out", "format"]
        .into_iter()
        .zip([orders.out.is_some(), orders.format.is_some()])
        .find_map(|(name, given)| given.then_some(name))
    {
        return Err(usage(anyhow!("--plan measures nothing that --{option} could show")));
    }
    if Plan::read(file).is_ok() {
        return Err(usage(anyhow!(
            "--plan {0}: there is a plan of this name: run a task of it with --task N, or remove it",
            file.display()
        )));
    }
    let plan = Plan::of(orders)?;
    Out::check(file)
        .and_then(|out| out.write(&plan.text()))
        .map_err(|error| usage(anyhow!("{}", error.to_string().replacen("--out", "--plan", 1))))?;
    let tasks = plan.tasks.iter().map(|task| format!("{:>4}  {}\n", task.task, task.name));
    terminal::print(&tasks.collect::<String>()).map_err(usage)?;
    let count = plan.tasks.len();
    complain(format_args!(
        "{count} {} in {1}; each runs with: carefree bench --plan {1} --task N --record DIR",
        if count == 1 { "task" } else { "tasks" },
        file.display()
    ));
    Ok(ExitCode::SUCCESS)
}

impl Plan {
    /// The plan of these orders, which are those of this process's command line.
    pub(super) fn of(orders: &Bench) -> Result<Plan, (u8, Error)> {
        let usage = |error| (exit::USAGE, error);
        let given = options::given(env::args_os()).map_err(usage)?;
        let shared = shared_words(&given).map_err(usage)?;
        let (_, targets) = read_targets(orders)?;
        let groups = groups(orders, &targets).map_err(usage)?;
        let made = Environment::capture().started;
        let task = |(at, group): (usize, Group)| Task {
            task: u32::try_from(at + 1).unwrap_or(u32::MAX),
            name: group.name,
            arguments: shared.iter().cloned().chain(group.words).collect(),
        };
        let plan = Plan {
            carefree_plan: FORMAT,
            anew: orders.force.then(|| made.clone()),
            made,
            command: command_line(),
            tasks: groups.into_iter().enumerate().map(task).collect(),
        };
        plan.check().map_err(usage)?;
        Ok(plan)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// One line that names the file and says what is wrong with it.
    pub(super) fn read(path: &Path) -> Result<Plan> {
        let read = || -> Result<Plan> {
            let text = fs::read_to_string(path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => anyhow!("there is no such file"),
                _ => error.into(),
            })?;
            let plan: Plan = serde_json::from_str(&text).context("this is no plan")?;
            plan.check()?;
            Ok(plan)
        };
        read().with_context(|| format!("--plan {}", path.display()))
    }

    /// The plan as JSON.
    pub(super) fn text(&self) -> String {
        // Plain data with string keys always has a JSON form.
        serde_json::to_string_pretty(self).expect("a plan is plain data") + "\n"
    }

    /// Tells this plan from others: by its tasks, and not by when or where it was made.
    pub(super) fn id(&self) -> String {
        let Plan { anew, tasks, .. } = self;
        let text = serde_json::to_string(&(anew, tasks)).expect("a plan is plain data");
        fingerprint(text.as_bytes())[..8].to_owned()
    }

    /// The task of this number.
    ///
    /// # Errors
    /// One line that says which there are.
    pub(super) fn task(&self, number: u32) -> Result<&Task> {
        self.tasks.iter().find(|task| task.task == number).ok_or_else(|| {
            anyhow!(
                "there is no task {number} in this plan; its tasks are 1 to {}",
                self.tasks.len()
            )
        })
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.carefree_plan == FORMAT,
            "this is a plan of format {}, and this program reads format {FORMAT}",
            self.carefree_plan
        );
        ensure!(!self.tasks.is_empty(), "this plan has no tasks");
        for (number, task) in (1_u32..).zip(&self.tasks) {
            ensure!(
                task.task == number,
                "task {} stands where task {number} belongs: tasks are numbered from 1",
                task.task
            );
            task.orders().with_context(|| format!("task {number}"))?;
        }
        Ok(())
    }
}

impl Task {
    /// What it asks `carefree bench` to do.
    ///
    /// # Errors
    /// One line: an argument that `carefree bench` does not have, or that is not a task's.
    pub(super) fn orders(&self) -> Result<Box<Bench>> {
        let line =
            || ["carefree", "bench"].into_iter().map(str::to_owned).chain(self.arguments.clone());
        for option in options::given(line().map(OsString::from))? {
            ensure!(
                !NOT_OF_A_TASK.contains(&&*option.name),
                "--{} is not for a task to say, but for whatever runs it",
                option.name
            );
        }
        match Cli::try_parse_from(line()).map_err(|error| anyhow!(options::plain(&error)))?.command
        {
            Command::Bench(orders) => Ok(orders.0),
            _ => bail!("this is no task of carefree bench"),
        }
    }
}

/// The words that all tasks have.
fn shared_words(given: &[Given]) -> Result<Vec<String>> {
    let splits = ["runtimes", "with", "images"];
    let mut words = Vec::new();
    for Given { name, words: of } in given {
        if splits.contains(&&**name) || NOT_OF_A_TASK.contains(&&**name) {
            continue;
        }
        for word in of {
            words.push(match word.strip_prefix("--targets=") {
                // A task has a working directory of its own.
                Some(folder) => format!("--targets={}", absolute(folder)?),
                None => word.clone(),
            });
        }
    }
    Ok(words)
}

fn absolute(path: &str) -> Result<String> {
    let path = std::path::absolute(path).with_context(|| format!("{path} is no path"))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| anyhow!("{} is not UTF-8", path.to_string_lossy()))
}

/// Runtimes that are measured together.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    name: String,
    words: Vec<String>,
}

/// A group for each version of a runtime. Carefree's fibers and Rust's threads are compared with
/// each other, and builds that `--with` or `--image` names of one runtime are, too: these stay together.
fn groups(orders: &Bench, targets: &[Target]) -> Result<Vec<Group>> {
    let mut groups: Vec<(String, Group)> = Vec::new();
    let mut add =
        |key: String, name: &str, word: String| match groups.iter_mut().find(|g| g.0 == key) {
            Some((_, group)) => {
                if !group.words.contains(&word) {
                    group.name += &format!(", {name}");
                    group.words.push(word);
                }
            }
            None => groups.push((key, Group { name: name.to_owned(), words: vec![word] })),
        };
    let with = |runtime: &str| format!("with {runtime}");
    for wish in runtimes(orders, targets)? {
        let runtime = name_of(&wish);
        let is_ours = Unit::ALL.iter().any(|unit| unit.runtime() == runtime);
        let is_named = |wish: &String| name_of(wish) == runtime;
        let key = match is_ours {
            true => "ours".to_owned(),
            // It may be a program of --with that has the variant.
            false if wish.contains('/') && orders.with.iter().any(is_named) => with(runtime),
            false => wish.clone(),
        };
        add(key, &wish, format!("--runtime={wish}"));
    }
    for wish in &orders.with {
        let (name, path) = wish.split_once('=').with_context(|| {
            format!("--with takes a runtime and a program, as in ruby=/path/to/ruby, not '{wish}'")
        })?;
        let word = format!("--with={name}={}", absolute(path)?);
        add(with(name_of(name)), name, word);
    }
    for image in &orders.images {
        // `ruby@patch=myfork:dev`: one of several builds to be compared, as those of --with.
        let (name, key) = match image.split_once('=') {
            Some((name, _)) => (name, format!("image {}", name_of(name))),
            None => (&**image, format!("image {image}")),
        };
        add(key, name, format!("--image={image}"));
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

/// The runtime of a wish: `ruby` of `ruby@3.4`, `ruby/yjit` and `ruby@patch=/path/to/ruby`.
fn name_of(wish: &str) -> &str {
    wish.split(['@', '/', '=']).next().unwrap_or_default()
}

/// The runtimes to measure, by their names. Versions are told apart where they were named, or where
/// all of this machine were asked for.
fn runtimes(orders: &Bench, targets: &[Target]) -> Result<Vec<String>> {
    let ours: Vec<&str> = Unit::ALL.iter().map(|unit| unit.runtime()).collect();
    let mut found: Vec<String> = Vec::new();
    if orders.runtimes.is_empty() && orders.with.is_empty() && orders.images.is_empty() {
        let lineup = Lineup::find(&Wishes::default(), targets)?;
        found.extend(ours.iter().map(|&name| name.to_owned()));
        found.extend(lineup.runtimes().iter().map(|runtime| runtime.target().name().to_owned()));
    }
    for wish in &orders.runtimes {
        match wish.strip_suffix("@all") {
            Some(name) => {
                let wishes = Wishes { runtimes: vec![wish.clone()], ..Wishes::default() };
                let lineup = Lineup::find(&wishes, targets)?;
                let versions = lineup.runtimes().iter().map(|runtime| runtime.version());
                found.extend(versions.map(|version| format!("{name}@{version}")));
                found.extend(ours.contains(&name).then(|| name.to_owned()));
            }
            None => {
                let name = name_of(wish);
                // Whether a machine of the fleet has it is seen there; what it is, here.
                let is_known = ours.contains(&name) || targets.iter().any(|t| t.name() == name);
                if !is_known {
                    // Says which there are.
                    let wishes = Wishes { runtimes: vec![wish.clone()], ..Wishes::default() };
                    Lineup::find(&wishes, targets)?;
                }
                found.push(wish.clone());
            }
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|wish| seen.insert(wish.clone()));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(line: &str) -> Box<Bench> {
        let line = format!("carefree bench {line}");
        match Cli::try_parse_from(line.split(' ')).expect("a good line").command {
            Command::Bench(orders) => orders.0,
            _ => unreachable!("it says bench"),
        }
    }

    fn names(line: &str) -> Vec<String> {
        let groups = groups(&orders(line), &[]).expect("groups");
        groups.into_iter().map(|group| group.name).collect()
    }

    #[test]
    fn what_is_compared_with_each_other_is_one_task() {
        assert_eq!(names("--runtime carefree,rust"), ["carefree, rust"]);
        assert_eq!(names("--runtime carefree,carefree"), ["carefree"]);
        let builds = "--with ruby@base=/a --with ruby@patch=/b --with go=/c --image ruby:3.4";
        assert_eq!(names(builds), ["ruby@base, ruby@patch", "go", "ruby:3.4"]);
        let images =
            "--image ruby@base=x:1 --image ruby@patch=x:2 --image ruby:3.4 --image ruby:3.3";
        assert_eq!(names(images), ["ruby@base, ruby@patch", "ruby:3.4", "ruby:3.3"]);
        let error = groups(&orders("--runtime nonesuch@1"), &[]).expect_err("unknown").to_string();
        assert!(error.contains("nonesuch"), "{error}");
    }

    fn plan(arguments: &[&str]) -> Plan {
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        let task = Task { task: 1, name: "x".into(), arguments };
        Plan {
            carefree_plan: FORMAT,
            made: "2026-01-01T00:00:00Z".into(),
            command: String::new(),
            anew: None,
            tasks: vec![task],
        }
    }

    #[test]
    fn a_plan_reads_back_and_its_id_is_its_tasks_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("plan.json");
        let one = plan(&["alloc", "--samples=3"]);
        fs::write(&path, one.text()).expect("written");
        assert_eq!(Plan::read(&path).expect("a plan"), one);
        let later = Plan { made: "2027".into(), command: "x".into(), ..one.clone() };
        assert_eq!(later.id(), one.id());
        assert_ne!(Plan { anew: Some("2027".into()), ..one.clone() }.id(), one.id());
        assert_ne!(plan(&["alloc", "--samples=4"]).id(), one.id());
        // Keys of a later program are passed over.
        fs::write(&path, one.text().replacen('{', "{\"later\": 1,", 1)).expect("written");
        assert_eq!(Plan::read(&path).expect("a plan"), one);
    }

    #[test]
    fn a_damaged_plan_is_refused_in_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("plan.json");
        let refusal = |text: &str| {
            fs::write(&path, text).expect("written");
            let error = format!("{:#}", Plan::read(&path).expect_err("no plan"));
            assert_eq!(error.lines().count(), 1, "{error}");
            error
        };
        let good = plan(&["alloc"]).text();
        assert!(refusal(&good[..good.len() / 2]).contains("this is no plan"));
        assert!(refusal("{}").contains("this is no plan: missing field"));
        let newer = good.replacen("\"carefree_plan\": 1", "\"carefree_plan\": 2", 1);
        assert!(refusal(&newer).contains("a plan of format 2, and this program reads format 1"));
        assert!(refusal(&good.replacen("\"task\": 1", "\"task\": 7", 1)).contains("task 7 stands"));
        let error = refusal(&plan(&["alloc", "--samples=x"]).text());
        assert!(error.contains("task 1: invalid value 'x' for '--samples"), "{error}");
        let error = refusal(&plan(&["alloc", "--out=/etc/passwd"]).text());
        assert!(error.contains("task 1: --out is not for a task to say"), "{error}");
        fs::remove_file(&path).expect("there");
        let error = format!("{:#}", Plan::read(&path).expect_err("not there"));
        assert!(error.ends_with("plan.json: there is no such file"), "{error}");
    }
}
