//! `docs/calls.md` agrees with the code: its names, files and tests exist, and none is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use carefree_interpose as _;
use object::{Object, ObjectSymbol};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows of the tables, without their heads: a line's cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|line| line.starts_with("| `"));
    lines.map(|line| line.trim_matches('|').split(" | ").collect()).collect()
}

/// The functions that this program defines instead of libc.
fn stood_in_for() -> BTreeSet<String> {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    let program = object::File::parse(&*program).unwrap();
    let own = program.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let own = own.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    // The program defines other functions too. Only those count for which libc has one of the same name.
    let of_libc = |name: &String| {
        let name = std::ffi::CString::new(name.as_str()).unwrap();
        // SAFETY: a name that is a string.
        !unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.is_null()
    };
    own.filter(of_libc).collect()
}

#[test]
fn every_call_is_in_it_and_no_other() {
    let document = text(&root().join("docs/calls.md"));
    let rows = rows(&document);
    assert!(rows.iter().all(|row| row.len() == 5), "a row has five cells");
    let named: Vec<_> = rows.iter().flat_map(|row| quoted(row[0])).collect();
    let once: BTreeSet<_> = named.iter().map(ToString::to_string).collect();
    assert_eq!(named.len(), once.len(), "a name stands in two rows");
    let mut here = stood_in_for();
    assert!(here.contains("read"), "no stand-ins were found: {here:?}");
    // Defined by `context`, and does not wait: it tells where a fiber's stack is.
    here.remove("pthread_getattr_np");
    // No new program is linked to it, so this one does not export it, unlike `libcarefree.so`.
    here.insert("pthread_yield".to_owned());
    let missing: Vec<_> = here.difference(&once).collect();
    assert!(missing.is_empty(), "not in docs/calls.md: {missing:?}");
    let invented: Vec<_> = once.difference(&here).collect();
    assert!(invented.is_empty(), "in docs/calls.md, but libc's own is called: {invented:?}");
}

#[test]
fn every_number_is_in_it_and_no_other() {
    let is_number = |word: &&str| word.starts_with("SYS_");
    let document = text(&root().join("docs/calls.md"));
    let named: BTreeSet<_> = quoted(&document).filter(is_number).collect();
    let source = text(&root().join("crates/interpose/src/syscall.rs"));
    let words = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let here: BTreeSet<_> = words.filter(is_number).collect();
    assert_eq!(named, here);
}

#[test]
fn its_sources_and_tests_are_there() {
    let document = text(&root().join("docs/calls.md"));
    let crates: Vec<_> =
        fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for row in rows(&document) {
        let sources: Vec<_> = quoted(row[3])
            .map(|file| text(&root().join(format!("crates/interpose/src/{file}.rs"))))
            .collect();
        for name in quoted(row[0]) {
            let named = |source: &String| {
                source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == name)
            };
            assert!(sources.iter().any(named), "{name} is not in {}", row[3]);
        }
        assert!(quoted(row[4]).next().is_some(), "no test for {}", row[0]);
        for test in quoted(row[4]) {
            let (file, function) = test.split_once("::").expect("FILE::TEST");
            let mut files = crates.iter().map(|one| one.join(format!("tests/{file}.rs")));
            let file = files.find(|file| file.exists());
            let file = file.unwrap_or_else(|| panic!("there is no file for {test}"));
            let is_test = format!("#[test]\nfn {function}() {{");
            assert!(text(&file).contains(&is_test), "there is no test {test}");
        }
    }
}
