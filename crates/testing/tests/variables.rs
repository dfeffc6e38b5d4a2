//! The table of environment variables in docs/settings.md is complete: it has each variable that the crates'
//! sources name, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use carefree_settings::names::{ALL, OF_TESTS};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names `CAREFREE_..` in a text; `boundary` must come right before each.
fn names(text: &str, boundary: &str) -> BTreeSet<String> {
    let start = format!("{boundary}CAREFREE_");
    let rests = text.match_indices(&start).map(|(at, _)| &text[at + boundary.len()..]);
    let name = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(rest.len());
        rest[..end].to_owned()
    };
    rests.map(name).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn every_file(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true if path.ends_with("target") => {}
            true => every_file(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn the_page_lists_every_variable_once() {
    let page = fs::read_to_string(top().join("docs/settings.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| `CAREFREE_"));
    let rows: Vec<String> = rows.flat_map(|row| names(row, "| `")).collect();
    let listed: BTreeSet<String> = rows.iter().cloned().collect();
    assert_eq!(rows.len(), listed.len() + 1, "`CAREFREE_TLS` alone has two rows: {rows:?}");

    let mut files = Vec::new();
    for room in ["context", "reactor", "runtime", "interpose", "insight", "carefree", "lab", "cli"]
    {
        sources(&top().join("crates").join(room).join("src"), &mut files);
    }
    assert!(files.len() > 100);
    let mut read = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        // A string that begins with the name, as for a call that reads the variable.
        read.extend(names(&text, "\""));
    }
    // The lab keeps all that begin so. Those for tests are in CONTRIBUTING.md.
    let for_tests =
        |name: &str| name.starts_with("CAREFREE_TEST_") || name == "CAREFREE_DAMAGE_TIMES";
    read.retain(|name| name != "CAREFREE_" && !for_tests(name));
    assert_eq!(listed, read);

    let known: BTreeSet<String> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(known, listed, "crates/settings/src/names.rs has another list");
}

/// So that `carefree run` does not tell of them as mistyped.
#[test]
fn variables_of_tests_and_scripts_begin_as_those_do() {
    let mut files = Vec::new();
    for folder in ["crates", "fuzz", "benches", "examples", ".ci"] {
        every_file(&top().join(folder), &mut files);
    }
    assert!(files.len() > 500);
    let mut named = BTreeSet::new();
    for file in &files {
        // (The names there are examples of mistyped ones.)
        if file.ends_with("cli/tests/run/starting.rs") {
            continue;
        }
        let Ok(text) = fs::read_to_string(file) else { continue };
        named.extend(names(&text, ""));
    }
    let is_known = |name: &str| {
        ALL.iter().any(|(known, _)| *known == name)
            || OF_TESTS.iter().any(|start| name.starts_with(start))
    };
    // Asked for where there is none, and the names of folders.
    let no_variables = ["CAREFREE_", "CAREFREE_NO_SUCH_SETTING", "CAREFREE_LAB"];
    named.retain(|name| !is_known(name) && !no_variables.contains(&name.as_str()));
    assert_eq!(named, BTreeSet::new());
}
