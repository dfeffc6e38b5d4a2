//! The folder that a sample runs in: one of its own, empty, which goes with all that the program has
//! left in it, such as the image of its memory after a crash.

use std::borrow::Cow;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::{Builder, TempDir};

use crate::leftovers;

/// Begins the folders' names; the mark of their lab and some letters follow.
const PREFIX: &str = "carefree-";

/// Variables whose value is a list of folders. What is in them goes by the folder that the lab was
/// started in.
const LISTS: [&str; 11] = [
    "CLASSPATH",
    "ERL_LIBS",
    "GEM_PATH",
    "JAVA_HOME",
    "LD_LIBRARY_PATH",
    "MONO_PATH",
    "NODE_PATH",
    "PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "RUBYLIB",
];

/// A folder for one process, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    /// Makes an empty one where the system keeps temporary files.
    ///
    /// # Errors
    /// It cannot be made there.
    pub(crate) fn new() -> io::Result<Folder> {
        let prefix = format!("{PREFIX}{}-", leftovers::mark());
        Ok(Folder(Builder::new().prefix(&prefix).tempdir_in(place()?)?))
    }

    /// Has a command run in it, and find what it would have found where the lab was started.
    pub(crate) fn hold(&self, command: &mut Command) {
        command.current_dir(self.0.path()).env("PWD", self.0.path());
        for name in LISTS {
            let own = command.get_envs().find(|(known, _)| *known == OsStr::new(name));
            let value = match own {
                Some((_, value)) => value.map(OsStr::to_owned),
                None => env::var_os(name),
            };
            if let Some(list) = value.as_deref().and_then(absolute_list) {
                command.env(name, list);
            }
        }
    }
}

/// Where the folders are made. `TMPDIR` may go by the folder that the lab was started in.
fn place() -> io::Result<PathBuf> {
    std::path::absolute(env::temp_dir())
}

/// A list of folders with the whole path of each; nothing where it has these already. An empty entry
/// is the folder that the lab was started in.
fn absolute_list(list: &OsStr) -> Option<OsString> {
    let is_relative = |folder: &PathBuf| folder.is_relative();
    if list.is_empty() || !env::split_paths(list).any(|folder| is_relative(&folder)) {
        return None;
    }
    let here = env::current_dir().ok()?;
    // Joined to it, a whole path stays what it is.
    env::join_paths(env::split_paths(list).map(|folder| here.join(folder))).ok()
}

/// A word of a command, with its whole path where it is a file by a path from the folder that the lab
/// was started in.
pub(crate) fn absolute_word(word: &str) -> Cow<'_, str> {
    let path = Path::new(word);
    // Without a slash it is a name, of a program in PATH, of a class.
    let is_ours = word.contains('/') && path.is_relative() && path.exists();
    let whole = || std::path::absolute(path).ok()?.into_os_string().into_string().ok();
    match is_ours.then(whole).flatten() {
        Some(whole) => Cow::Owned(whole),
        None => Cow::Borrowed(word),
    }
}

/// Whether a program in this command chooses what to run by the folder it is started in, as a version
/// manager's shim does: it has told its version there, and elsewhere would be another one.
pub(crate) fn is_chosen_by_folder(command: &Command) -> bool {
    command.get_args().chain([command.get_program()]).any(is_shim)
}

fn is_shim(program: &OsStr) -> bool {
    let path = Path::new(program);
    let real = fs::canonicalize(path);
    let name = real.as_deref().unwrap_or(path).file_name().unwrap_or_default().to_string_lossy();
    path.components().any(|part| part.as_os_str() == "shims")
        || name.contains("shim")
        || ["rustup", "mise"].contains(&&*name)
}

/// Begins the names of folders that are being filled; the mark of their lab and what they are follow.
const DRAFT: &str = "draft-";

/// Makes the folder in which this lab fills what is to be a folder of `parent`, under a name that no other lab has:
/// in containers, and on machines that share `parent`, processes may have the same number. Removes what labs on
/// this machine have left half filled that were killed.
///
/// # Errors
/// It cannot be made there.
pub(crate) fn draft(parent: &Path, what: &str) -> io::Result<PathBuf> {
    remove_marked(parent, DRAFT);
    let draft = parent.join(format!("{DRAFT}{}-{what}", leftovers::mark()));
    fs::create_dir_all(&draft)?;
    Ok(draft)
}

/// Removes the folders of labs on this machine that were killed.
pub fn remove_leftovers() {
    if let Ok(place) = place() {
        remove_marked(&place, PREFIX);
    }
}

/// Removes the folders in `parent` whose names are `prefix`, the mark of a lab that was killed, and anything.
fn remove_marked(parent: &Path, prefix: &str) {
    for folder in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = folder.file_name();
        let marked = name.to_str().and_then(|name| name.strip_prefix(prefix)?.rsplit_once('-'));
        if marked.is_some_and(|(mark, _)| leftovers::is_of_dead_lab(mark)) {
            // Another user's cannot be removed, and is none of ours.
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_by_a_path_from_here_is_found_from_elsewhere() {
        let here = env::current_dir().expect("a folder");
        let list = |list: &str| absolute_list(OsStr::new(list));
        let expected = format!("{0}/lib:/usr/lib:{0}/", here.display());
        assert_eq!(list("lib:/usr/lib:"), Some(expected.into()));
        assert_eq!(list("/usr/lib:/lib"), None);
        assert_eq!(list(""), None, "no list is not a list of this folder");

        let whole = here.join("src/lib.rs").display().to_string();
        assert_eq!(absolute_word("src/lib.rs"), whole);
        for same in ["src", "Units", "src/none.rs", "/etc/passwd", "-I./src", "{folder}/x"] {
            assert_eq!(absolute_word(same), same);
        }
    }

    #[test]
    fn a_command_runs_in_its_folder_and_finds_what_it_did() {
        let folder = Folder::new().expect("writable");
        let mut command = Command::new("sh");
        command.env("RUBYLIB", "lib").args(["-c", "pwd; echo $PWD $RUBYLIB; echo x > left"]);
        folder.hold(&mut command);
        let said = String::from_utf8(command.output().expect("it runs").stdout).expect("text");
        let (path, here) = (folder.0.path().to_owned(), env::current_dir().expect("a folder"));
        let at = path.display();
        assert_eq!(said, format!("{at}\n{at} {}/lib\n", here.display()));
        assert!(path.join("left").exists());
        drop(folder);
        assert!(!path.exists(), "all that was left is gone");
    }

    #[test]
    fn version_managers_shims_are_known() {
        for shim in ["/home/me/.asdf/shims/java", "/x/shims/node", "/x/bin/volta-shim"] {
            assert!(is_shim(OsStr::new(shim)), "{shim}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (cargo, rustup) = (folder.path().join("cargo"), folder.path().join("rustup"));
        fs::write(&rustup, "").expect("written");
        std::os::unix::fs::symlink(&rustup, &cargo).expect("a link");
        let mut command = Command::new("sh");
        assert!(!is_chosen_by_folder(command.arg("-c")));
        assert!(is_chosen_by_folder(command.arg(cargo)));
        for other in ["/usr/bin/ruby", "sh", "/opt/shimmer/bin/java"] {
            assert!(!is_shim(OsStr::new(other)), "{other}");
        }
    }

    #[test]
    fn a_killed_labs_folder_is_removed_and_a_living_ones_is_not() {
        let ours = Folder::new().expect("writable");
        // The boot and the namespace of process numbers; no process has this number.
        let here = leftovers::mark().rsplitn(3, '-').last().expect("a mark");
        let dead = |prefix: &str, parent: &Path| {
            let dead = parent.join(format!("{prefix}{here}-4194305-1-x"));
            fs::create_dir(&dead).expect("writable");
            fs::write(dead.join("image"), "").expect("writable");
            dead
        };
        let samples = dead(PREFIX, ours.0.path().parent().expect("it has one"));
        remove_leftovers();
        assert!(!samples.exists() && ours.0.path().exists());

        let cache = tempfile::tempdir().expect("a folder");
        let half = dead(DRAFT, cache.path());
        let first = draft(cache.path(), "one").expect("writable");
        let second = draft(cache.path(), "another").expect("writable");
        assert!(!half.exists() && first.exists() && second.exists());
    }
}
