//! Threads of a runtime that `carefree run` makes fibers: units of their own, beside those on the kernel's
//! threads.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::record::fingerprint;

/// Appended to a unit's name.
const HOSTED: &str = " (carefree)";

/// `carefree`, which runs a program so that its threads are fibers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosting {
    program: PathBuf,
    /// What changes when one of them is built anew.
    built: String,
}

impl Hosting {
    /// By the program at this path, with its library.
    ///
    /// # Errors
    /// When one of them is not there.
    pub fn by(program: &Path, library: &Path) -> io::Result<Hosting> {
        let mut built = String::new();
        for file in [program, library] {
            // Not what is in them: that may be hundreds of megabytes.
            let file = fs::metadata(file)?;
            built += &format!("{} {}.{:09} ", file.len(), file.mtime(), file.mtime_nsec());
        }
        Ok(Hosting { program: program.to_owned(), built })
    }

    /// What a sample depends on that depended on `other` without it.
    pub(crate) fn fingerprint(&self, other: &str) -> String {
        fingerprint(format!("{}{other}", self.built).as_bytes())
    }

    /// What is to be run in place of `words`.
    pub(crate) fn around(&self, words: &[String]) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        // Were the threads to stay threads, the figures would be theirs under a wrong name.
        let run = ["run", "--strict", "--only", "--"].map(str::to_owned);
        [program].into_iter().chain(run).chain(words.iter().cloned()).collect()
    }
}

/// The name of the unit whose threads those of `unit` are on fibers.
pub(crate) fn name_of(unit: &str) -> String {
    format!("{unit}{HOSTED}")
}

/// Whether the unit's threads are fibers.
pub(crate) fn is_hosted(unit: &str) -> bool {
    unit.ends_with(HOSTED)
}

/// What a program calls the unit, on fibers or not.
pub(crate) fn asked_unit(unit: &str) -> &str {
    unit.strip_suffix(HOSTED).unwrap_or(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_knows_its_unit_by_the_name_it_has_on_threads() {
        assert_eq!(asked_unit(&name_of("thread")), "thread");
        assert_eq!(asked_unit("thread"), "thread");
    }

    #[test]
    fn a_program_runs_behind_ours() {
        let (program, library) = (Path::new("/bin/sh"), Path::new("/etc/passwd"));
        let hosting = Hosting::by(program, library).expect("both are there");
        let words = hosting.around(&["ruby".into(), "a.rb".into()]);
        assert_eq!(words.join(" "), "/bin/sh run --strict --only -- ruby a.rb");
        assert_ne!(hosting.fingerprint("other"), hosting.fingerprint("another"));
    }
}
