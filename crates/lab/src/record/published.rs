//! The figures of the documents this lab follows, and finding records by name.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use carefree_workloads::named::list;

use super::{Record, store};
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

/// The records that `name` stands for, oldest first: `published`, `mine` (those in `folder`), a
/// file, or all records of a folder. Behind an `@` may stand a version, or the name of a build:
/// then it is what they have of that ([`Record::of_version`]).
///
/// # Errors
/// One line that says what is wrong.
pub fn find(name: &str, folder: Option<&Path>) -> Result<Vec<Record>> {
    let with_version = name.rsplit_once('@').filter(|(records, wanted)| {
        let is_there = [PUBLISHED, MINE].contains(records) || Path::new(records).exists();
        // A file may have an @ in its name.
        is_there && !wanted.is_empty() && !Path::new(name).exists()
    });
    let Some((records, wanted)) = with_version else {
        return all(name, folder);
    };
    let all = all(records, folder)?;
    let mut versions: Vec<String> = all
        .iter()
        .flat_map(|record| &record.results)
        .map(|result| format!("{} {}", result.subject.runtime, result.subject.version))
        .collect();
    versions.sort_by_cached_key(|version| version_key(version));
    versions.dedup();
    let found: Vec<Record> = all.into_iter().filter_map(|r| r.of_version(wanted)).collect();
    if found.is_empty() {
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        bail!("{records} has no version and no build '{wanted}'; it has {}", list(&versions));
    }
    Ok(found)
}

fn all(name: &str, folder: Option<&Path>) -> Result<Vec<Record>> {
    let path = Path::new(name);
    // A file of that name is what a person sees; then "./mine" need not be written.
    if !path.exists() {
        if name == PUBLISHED {
            return Ok(published());
        }
        if name == MINE {
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
    }
    if path.is_dir() { of_folder(path) } else { Record::read(path) }
}

fn of_folder(folder: &Path) -> Result<Vec<Record>> {
    let paths = store::records(folder).with_context(|| folder.display().to_string())?;
    let read: Result<Vec<Vec<Record>>> = paths.iter().map(|path| Record::read(path)).collect();
    let mut found: Vec<Record> = read?.into_iter().flatten().collect();
    ensure!(
        !found.is_empty(),
        "{}: there are no records in this folder (files named *.jsonl)",
        folder.display()
    );
    // File names in any other folder need not begin with the date.
    found.sort_by(|a, b| a.environment.started.cmp(&b.environment.started));
    Ok(found)
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
        let of = |name: &str| find(name, Some(folder.path()));
        assert_eq!(of("published").expect("built in").len(), FILES.len());
        assert!(of("mine").expect_err("none yet").to_string().contains("no records"));
        let missing = folder.path().join("x.jsonl").display().to_string();
        let error = of(&missing).expect_err("not there");
        assert_eq!(format!("{error:#}"), format!("{missing}: there is no such file"));
        std::fs::write(&missing, FILES[2].1).expect("written");
        assert_eq!(of("mine").expect("one").len(), 1);
        assert_eq!(of(&missing).expect("one"), of("mine").expect("one"));
        std::fs::write(&missing, FILES.map(|(_, text)| text).concat()).expect("written");
        assert_eq!(of(&missing).expect("all three"), published());
        std::fs::write(&missing, "{}\n").expect("written");
        let error = format!("{:#}", of(&missing).expect_err("no record"));
        assert!(error.contains("this is no record"), "{error}");
        assert!(find("mine", None).expect_err("nowhere").to_string().contains("--record"));
    }

    #[test]
    fn a_version_behind_a_name_leaves_what_is_of_that_version() {
        let of = |name: &str| find(name, None);
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
