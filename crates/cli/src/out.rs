//! The file of `--out`: checked before the measuring starts, and never left half written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

/// A file that can be written.
#[derive(Debug)]
pub(crate) enum Out {
    /// A regular file, or one yet to be: written beside it first, then renamed over it, so that
    /// what was there stays whole until the new one is.
    Replaced { target: PathBuf, beside: Beside },
    /// Something that is there and is not a regular file, such as a pipe or `/dev/stdout`.
    Opened { file: File, name: PathBuf },
}

/// A file beside the target, gone with this unless it took the target's place.
#[derive(Debug)]
pub(crate) struct Beside {
    path: PathBuf,
    file: File,
}

impl Out {
    /// Makes sure that `path` can be written, without touching what is there.
    ///
    /// # Errors
    /// One line that says what is in the way.
    pub(crate) fn check(path: &Path) -> Result<Out> {
        let refused = |what: &str| anyhow!("--out {}: {what}", path.display());
        // A link stays what it is; what it points to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let there = match fs::metadata(&target) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(refused(&plain(&error))),
        };
        if there.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(refused("this is a folder; name a file in it"));
        }
        if there.is_some() {
            // Replacing a file takes permission for its folder alone; check the file's, too.
            let file = OpenOptions::new()
                .append(true)
                .open(&target)
                .map_err(|error| refused(&plain(&error)))?;
            if there.is_some_and(|there| !there.is_file()) {
                return Ok(Out::Opened { file, name: path.to_owned() });
            }
        }
        let folder = match target.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => return Err(refused("this is no name for a file")),
        };
        if !folder.is_dir() {
            return Err(refused(&format!("there is no folder {}", folder.display())));
        }
        let Some(name) = target.file_name() else {
            return Err(refused("this is no name for a file"));
        };
        let beside = folder.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&beside)
            .map_err(|error| refused(&plain(&error)))?;
        Ok(Out::Replaced { target, beside: Beside { path: beside, file } })
    }

    /// Writes `text`, all of it or nothing.
    ///
    /// # Errors
    /// One line that says what went wrong.
    pub(crate) fn write(self, text: &str) -> Result<()> {
        let (name, outcome) = match self {
            Out::Replaced { target, beside } => {
                let outcome = beside.replace(&target, text);
                (target, outcome)
            }
            Out::Opened { mut file, name } => {
                let outcome = file.write_all(text.as_bytes());
                (name, outcome)
            }
        };
        outcome.map_err(|error| anyhow!("--out {}: {}", name.display(), plain(&error)))
    }
}

impl Beside {
    fn replace(mut self, target: &Path, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()?;
        if let Ok(there) = fs::metadata(target) {
            self.file.set_permissions(there.permissions())?;
        }
        fs::rename(&self.path, target)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // After the rename it does not exist any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// An error without its number: `permission denied`.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_leaves_everything_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = folder.path().join("old.json");
        fs::write(&old, "kept").expect("written");
        for name in ["old.json", "new.json"] {
            drop(Out::check(&folder.path().join(name)).expect("writable"));
        }
        assert_eq!(fs::read_to_string(&old).expect("there"), "kept");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
    }

    #[test]
    fn what_was_there_is_replaced_at_once_and_its_rights_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record.json");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let out = Out::check(&link).expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("there"), "old");
        out.write("new").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("there"), "new");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2, "nothing is left over");
    }

    #[test]
    fn what_is_in_the_way_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let refusal = |path: &Path| Out::check(path).expect_err("not writable").to_string();
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        assert!(refusal(folder.path()).ends_with("this is a folder; name a file in it"));
        assert!(refusal(&folder.path().join("no/such.json")).contains("there is no folder"));
        assert!(refusal(&file.join("x.json")).contains("not a directory"));
        assert!(refusal(Path::new("/proc/carefree.json")).starts_with("--out /proc/carefree.json"));
        assert!(Out::check(Path::new("/dev/null")).expect("writable").write("x").is_ok());
    }
}
