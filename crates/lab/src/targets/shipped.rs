//! The targets that come with the program, and where targets and what is built of them are kept.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use carefree_workloads::SOURCES;

use super::spec::Spec;
use crate::folder;
use crate::record::fingerprint;

include!(concat!(env!("OUT_DIR"), "/targets.rs"));

/// The files of one of our targets: their names, and what is in them. Our own units, and Rust's threads,
/// are the lab's.
pub fn sources(target: &str) -> Vec<(&'static str, &'static str)> {
    let of = |(path, content): &(&'static str, &'static [u8])| {
        let name = path.strip_prefix(target)?.strip_prefix('/')?;
        let is_program = !name.ends_with(".lock");
        let text = std::str::from_utf8(content).ok().filter(|_| is_program)?;
        Some((name, text))
    };
    let own = if ["carefree", "rust"].contains(&target) { &SOURCES[..] } else { &[] };
    own.iter().copied().chain(SHIPPED.iter().filter_map(of)).collect()
}

/// Whether this is the name of a target of ours, or of the lab's own units.
pub(crate) fn is_ours(target: &str) -> bool {
    !sources(target).is_empty()
}

/// Whether one of our targets has a unit whose threads are fibers; nothing of targets that are not ours.
pub(crate) fn has_hosted(target: &str) -> Option<bool> {
    let files = sources(target);
    let (_, text) = files.iter().find(|(name, _)| *name == "target.toml")?;
    let spec = Spec::parse(text).ok()?;
    Some(spec.units.values().any(|unit| unit.hosted))
}

/// The folders of targets, and the cache folder for what is built of them.
#[derive(Clone, Debug)]
pub struct Folders {
    cache: PathBuf,
    targets: Vec<PathBuf>,
    interrupted: Arc<AtomicBool>,
}

impl Folders {
    /// Our own targets, unpacked into the user's cache folder, and `more` folders of targets after
    /// them.
    ///
    /// # Errors
    /// One line: the cache folder cannot be written.
    pub fn open(more: &[PathBuf]) -> Result<Folders> {
        Folders::open_in(&cache_folder(), more)
    }

    /// The same, with another cache folder.
    ///
    /// # Errors
    /// One line: that folder cannot be written.
    pub fn open_in(cache: &Path, more: &[PathBuf]) -> Result<Folders> {
        let failed = |error| {
            anyhow!(
                "{} cannot be written ({error}); XDG_CACHE_HOME names another place",
                cache.display()
            )
        };
        fs::create_dir_all(cache).map_err(failed)?;
        // Compilers and engines run elsewhere: the path has to be whole.
        let cache = fs::canonicalize(cache).map_err(failed)?;
        let own = unpack(&cache).map_err(failed)?;
        let mut targets = vec![own];
        for folder in more {
            let whole = fs::canonicalize(folder).with_context(|| {
                format!("the folder of targets {} cannot be read", folder.display())
            })?;
            targets.push(whole);
        }
        Ok(Folders { cache, targets, interrupted: Arc::default() })
    }

    /// Has builds end when this flag is set.
    #[must_use]
    pub fn until(self, interrupted: Arc<AtomicBool>) -> Folders {
        Folders { interrupted, ..self }
    }

    pub(super) fn interrupted(&self) -> &AtomicBool {
        &self.interrupted
    }

    /// The folders of targets.
    pub fn targets(&self) -> &[PathBuf] {
        &self.targets
    }

    /// A folder for what is built, by a name that tells it from all others.
    pub(super) fn build(&self, name: &str) -> PathBuf {
        self.cache.join("build").join(name)
    }
}

/// `carefree` in the user's cache folder, or in the system's folder for temporary files where the
/// user has none.
fn cache_folder() -> PathBuf {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("carefree")
}

/// Writes our targets into the cache folder, once for each version of them.
fn unpack(cache: &Path) -> io::Result<PathBuf> {
    let mut all = Vec::new();
    for (path, content) in SHIPPED {
        all.extend_from_slice(path.as_bytes());
        all.extend_from_slice(content);
    }
    let folder = cache.join("targets").join(fingerprint(&all));
    if folder.is_dir() {
        return Ok(folder);
    }
    // Another lab may do the same at this moment: the second rename fails, and finds the folder there.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let draft = folder::draft(&cache.join("targets"), &number.to_string())?;
    for (path, content) in SHIPPED {
        let path = draft.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&draft))?;
        fs::write(path, content)?;
    }
    if let Err(error) = fs::rename(&draft, &folder) {
        fs::remove_dir_all(&draft)?;
        if !folder.is_dir() {
            return Err(error);
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::read_all;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn labs_that_begin_at_one_moment_share_what_one_of_them_unpacks() {
        let cache = tempfile::tempdir().expect("a folder");
        let all = Barrier::new(8);
        let open = || {
            all.wait();
            Folders::open_in(cache.path(), &[]).expect("writable").targets().to_vec()
        };
        let found: Vec<_> = thread::scope(|scope| {
            let labs: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            labs.into_iter().map(|lab| lab.join().expect("no panic")).collect()
        });
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
        let left = fs::read_dir(cache.path().join("targets")).expect("there").count();
        assert_eq!(left, 1, "no draft is left behind");
    }

    #[test]
    fn our_own_targets_are_unpacked_once_and_have_no_mistakes() {
        let cache = tempfile::tempdir().expect("a folder");
        let folders = Folders::open_in(cache.path(), &[]).expect("writable");
        let again = Folders::open_in(cache.path(), &[]).expect("writable");
        assert_eq!(folders.targets(), again.targets());
        let (targets, mistakes) = read_all(folders.targets());
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let files: Vec<&str> = sources("ruby").iter().map(|(name, _)| *name).collect();
        assert!(files.contains(&"target.toml") && files.contains(&"units.rb"), "{files:?}");
        assert!(sources("rub").is_empty());
        let names: Vec<&str> = targets.iter().map(super::super::Target::name).collect();
        assert!(names.contains(&"python"), "{names:?}");
    }
}
