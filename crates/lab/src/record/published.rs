//! The figures of the documents this lab follows, and finding records by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use carefree_workloads::named::list;

use super::{Record, salvage, store};
use crate::version::version_key;

/// The name that stands for all published figures.
const PUBLISHED: &str = "published";
/// The name that stands for the user's own records.
const MINE: &str = "mine";

const FILES: [(&str, &str); 3] = [
    ("000-fiber-vs-thread", include_str!("../../../../record/published/000-fiber-vs-thread.jsonl")),
    ("002-fetch", include_str!("../../../../record/published/002-fetch.jsonl")),
    ("003-feed", include_str!("../../../../record/published/003-feed.jsonl")),
];

/// The published figures, a record for each document that has any.
///
/// # Panics
/// When the files this program was built with are no records, which a test rules out.
pub fn published() -> Vec<Record> {
    FILES
        .iter()
        .map(|(name, text)| {
            Record::from_lines(text).unwrap_or_else(|error| panic!("record {name}: {error}"))
        })
        .collect()
}

/// Records, and what of them is damaged.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// What was left out, a line for each file.
    pub damage: Vec<String>,
}

/// How much of records is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All there is.
    Whole,
    /// All but what each sample said of its work, and its figures: what reports show, but for those in
    /// JSON, in a fraction of the memory.
    Shown,
}

/// The records that `name` stands for, oldest first: `published`, `mine` (those in `folder`), a
/// file, or all records of a folder. Behind an `@` may stand a version, or the name of a build:
/// then it is what they have of that ([`Record::of_version`]). Lines and files that are damaged are
/// told of and left out.
///
/// # Errors
/// One line that says what is wrong.
pub fn find(name: &str, folder: Option<&Path>, extent: Extent) -> Result<Found> {
    let cut = |record: Record| match extent {
        Extent::Whole => record,
        Extent::Shown => record.without_proofs(),
    };
    let with_version = name.rsplit_once('@').filter(|(records, wanted)| {
        let is_there = [PUBLISHED, MINE].contains(records) || Path::new(records).exists();
        // A file may have an @ in its name.
        is_there && !wanted.is_empty() && !Path::new(name).exists()
    });
    let Some((records, wanted)) = with_version else {
        return all(name, folder, &mut |record| Some(cut(record)));
    };
    let mut versions = BTreeSet::new();
    // One by one, for all of a fleet's may not fit into memory.
    let all = all(records, folder, &mut |record| {
        versions.extend(
            record
                .results
                .iter()
                .map(|result| format!("{} {}", result.subject.runtime, result.subject.version)),
        );
        Some(cut(record.of_version(wanted)?))
    })?;
    if all.records.is_empty() {
        let mut versions: Vec<String> = versions.into_iter().collect();
        versions.sort_by_cached_key(|version| version_key(version));
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        bail!("{records} has no version and no build '{wanted}'; it has {}", list(&versions));
    }
    Ok(all)
}

/// All records of a name, of which `keep` says what is kept.
fn all(
    name: &str,
    folder: Option<&Path>,
    keep: &mut dyn FnMut(Record) -> Option<Record>,
) -> Result<Found> {
    if name == PUBLISHED && !Path::new(name).exists() {
        let records = published().into_iter().filter_map(keep).collect();
        return Ok(Found { records, damage: Vec::new() });
    }
    let files = files(name, folder)?;
    let is_one = !Path::new(name).is_dir() && name != MINE;
    let (mut found, mut first, mut is_any) = (Found::default(), None, false);
    for path in files {
        match salvage::read(&path) {
            Ok(salvaged) => {
                let complaint = salvaged.complaint();
                let complaint = complaint.map(|said| format!("{}: {said}", path.display()));
                found.damage.extend(complaint);
                is_any |= !salvaged.records.is_empty();
                found.records.extend(salvaged.records.into_iter().filter_map(&mut *keep));
            }
            Err(error) if is_one => return Err(error),
            // One file of a folder leaves the others as they are.
            Err(error) => {
                found.damage.push(format!("{error:#}; the file is left out"));
                first.get_or_insert(error);
            }
        }
    }
    if let Some(error) = first.filter(|_| !is_any) {
        return Err(error);
    }
    // File names in any other folder need not begin with the date.
    found.records.sort_by(|a, b| a.environment.started.cmp(&b.environment.started));
    Ok(found)
}

/// The files that `name` stands for: itself, those of a folder, or those of `folder` for `mine`.
///
/// # Errors
/// One line: there are none.
pub fn files(name: &str, folder: Option<&Path>) -> Result<Vec<PathBuf>> {
    let path = Path::new(name);
    // A file of that name is what a person sees; then "./mine" need not be written.
    if !path.exists() && name == MINE {
        let folder = folder.context(
            "there is no folder of records, for neither XDG_DATA_HOME nor HOME is set: name \
             one with --record DIR",
        )?;
        ensure!(
            folder.is_dir(),
            "there are no records of yours in {} yet: run carefree bench first",
            folder.display()
        );
        return of_folder(folder);
    }
    if path.is_dir() { of_folder(path) } else { Ok(vec![path.to_owned()]) }
}

fn of_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = store::records(folder).with_context(|| folder.display().to_string())?;
    if paths.is_empty() {
        // A fleet's folder, which has a folder for each task that is not done.
        let begun = fs::read_dir(folder.join("work")).into_iter().flatten().flatten();
        let mut begun: Vec<PathBuf> = begun.map(|entry| entry.path()).collect();
        begun.sort();
        match begun.first() {
            Some(first) => bail!(
                "{}: no task is done; what those measured that were begun is in their own folders, as \
                 {}, and the command that began them goes on from there",
                folder.display(),
                first.display()
            ),
            None => bail!(
                "{}: there are no records in this folder (files named *.jsonl)",
                folder.display()
            ),
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures themselves are in the snapshots of the report's tests.
    #[test]
    fn the_published_tables_are_there() {
        let [ruby, fetch, feed] = &published()[..] else { panic!("three documents have figures") };
        // Nine versions: 4 and 2 figures of the first two tables, 2 of memory, 4 and 4 of the rest.
        assert_eq!(ruby.results.len(), 9 * 16);
        let cpu = ruby.environment.cpu.as_deref().expect("it is told");
        assert!(cpu.contains("9950X3D"), "{cpu}");
        // Sixteen ways to fetch in four experiments, with six figures each.
        assert_eq!(fetch.results.len(), 16 * 6);
        let slowest = feed.results.iter().map(|m| m.median).fold(0.0, f64::max);
        assert_eq!(slowest, 23_982.26);
        for record in published() {
            assert!(record.source.is_some_and(|source| !source.notes.is_empty()));
        }
    }

    #[test]
    fn names_stand_for_files_folders_and_what_is_built_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let of =
            |name: &str| find(name, Some(folder.path()), Extent::Whole).map(|found| found.records);
        assert_eq!(of("published").expect("built in").len(), FILES.len());
        assert!(of("mine").expect_err("none yet").to_string().contains("no records"));
        let missing = folder.path().join("x.jsonl").display().to_string();
        let error = of(&missing).expect_err("not there");
        assert_eq!(format!("{error:#}"), format!("{missing}: there is no such file"));
        std::fs::write(&missing, FILES[2].1).expect("written");
        assert_eq!(of("mine").expect("one").len(), 1);
        assert_eq!(of(&missing).expect("one"), of("mine").expect("one"));
        std::fs::write(&missing, FILES.map(|(_, text)| text).concat()).expect("written");
        let mut all = published();
        all.sort_by(|a, b| a.environment.started.cmp(&b.environment.started));
        assert_eq!(of(&missing).expect("all three"), all);
        std::fs::write(&missing, "{}\n").expect("written");
        let error = format!("{:#}", of(&missing).expect_err("no record"));
        assert!(error.contains("this is no record"), "{error}");
        assert!(
            find("mine", None, Extent::Whole)
                .expect_err("nowhere")
                .to_string()
                .contains("--record")
        );
    }

    #[test]
    fn a_damaged_file_leaves_the_others_of_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a.jsonl"), FILES[0].1).expect("written");
        std::fs::write(at("b.jsonl"), "garbage\n").expect("written");
        let damaged = FILES[2].1.replacen("\"median\":", "\"median\":x", 1);
        std::fs::write(at("c.jsonl"), damaged).expect("written");
        let found = find("mine", Some(folder.path()), Extent::Whole).expect("two");
        assert_eq!(found.records.len(), 2);
        let [no_record, line] = &found.damage[..] else { panic!("{:?}", found.damage) };
        assert!(no_record.contains("b.jsonl: this is no record"), "{no_record}");
        assert!(line.contains("c.jsonl: line 2 is damaged and left out"), "{line}");
        // Named by itself, what is no record at all is a mistake.
        assert!(find(&at("b.jsonl").display().to_string(), None, Extent::Whole).is_err());
        std::fs::remove_file(at("a.jsonl")).expect("there");
        std::fs::remove_file(at("c.jsonl")).expect("there");
        assert!(find("mine", Some(folder.path()), Extent::Whole).is_err(), "nothing is left");
    }

    #[test]
    fn a_version_behind_a_name_leaves_what_is_of_that_version() {
        let of = |name: &str| find(name, None, Extent::Whole).map(|found| found.records);
        let versions = |name: &str| {
            let records = of(name).expect("built in");
            let results = records.into_iter().flat_map(|record| record.results);
            let mut found: Vec<String> = results.map(|m| m.subject.version).collect();
            found.dedup();
            found
        };
        let mut found = versions("published@3.2");
        found.sort();
        found.dedup();
        assert_eq!(found, ["3.2"]);
        assert!(versions("published@3").len() > 5);
        let error = of("published@4.0").expect_err("not yet").to_string();
        assert!(
            error.starts_with("published has no version and no build '4.0'; it has "),
            "{error}"
        );
        assert!(error.contains("ruby 2.5") && error.contains("ruby 3.5-rc"), "{error}");
        // A name with an @ of which nothing is there is a file that is not there.
        let error = of("/no/such@file.jsonl").expect_err("not there");
        assert_eq!(format!("{error:#}"), "/no/such@file.jsonl: there is no such file");
    }

    #[test]
    fn builds_go_by_their_names() {
        let record = |versions: &[&str]| {
            let mut record = published().swap_remove(0);
            let first = record.results.swap_remove(0);
            record.results = versions
                .iter()
                .map(|version| {
                    let mut result = first.clone();
                    result.subject.version = (*version).to_owned();
                    result
                })
                .collect();
            record
        };
        let both = record(&["3.5.0 (base)", "3.5.0 (patch)", "3.4.1"]);
        let versions = |wanted: &str| {
            let found = both.clone().of_version(wanted);
            let results = found.map(|record| record.results).unwrap_or_default();
            results.into_iter().map(|m| m.subject.version).collect::<Vec<_>>()
        };
        assert_eq!(versions("patch"), ["3.5.0 (patch)"]);
        assert_eq!(versions("3.5"), ["3.5.0 (base)", "3.5.0 (patch)"]);
        assert_eq!(versions("3.5.0 (base)"), ["3.5.0 (base)"]);
        assert!(versions("pat").is_empty());
    }
}
