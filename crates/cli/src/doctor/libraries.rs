//! What `carefree run` finds out only when a program creates its first thread: what the libraries have that it
//! begins with.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use carefree_settings::denied;

use crate::run::elf::{self, Storage};
use crate::run::library;
use crate::run::program::Program;

/// Why the program's threads stay threads because of its libraries, if they do.
pub(super) fn why_not(program: &Program) -> Option<String> {
    let binary = program.binary()?;
    // The program's may be anything: to look at a program must not run what came with it.
    let own = elf::loader(&std::env::current_exe().ok()?)?;
    let loader = elf::loader(&binary).filter(|loader| *loader == own)?;
    let libraries = libraries(&loader, &binary);
    for path in &libraries {
        if elf::is_go(path) {
            let why = denied::GO;
            return Some(format!("{} is Go's, and {why}", path.display()));
        }
        if elf::needs_executable_stacks(path) {
            return Some(format!("{} is in it, and {}", path.display(), denied::EXECUTABLE));
        }
    }
    // That of `carefree run` is one of them then.
    let all = libraries.iter().chain([&binary]).cloned().chain(library::find().ok());
    let bytes: u64 = all.filter_map(|path| elf::storage(&path)).map(Storage::most).sum();
    (bytes > denied::MOST_STORAGE).then(|| {
        let kib = bytes >> 10;
        format!(
            "the program and its libraries have {kib} KiB of thread-local storage: more than 1 MiB"
        )
    })
}

/// The libraries that the loader would load for a program, as far as they are found.
fn libraries(loader: &Path, binary: &Path) -> Vec<PathBuf> {
    // It only lists them, and runs no code of theirs.
    let mut list = Command::new(loader);
    list.arg("--list").arg(binary).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(listed) = list.output() else { return Vec::new() };
    let listed = String::from_utf8_lossy(&listed.stdout);
    // `name => path (address)`, or `path (address)`.
    let path = |line: &str| {
        let (place, _) = line.trim().rsplit_once(" (")?;
        let path = place.rsplit_once("=> ").map_or(place, |(_, path)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    listed.lines().filter_map(path).collect()
}
