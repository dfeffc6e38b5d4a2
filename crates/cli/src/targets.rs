//! Folders of targets that were named.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Refuses a folder that does not exist or has no target in it, which would otherwise be left out
/// without a word.
///
/// # Errors
/// One line that names it.
pub(crate) fn folders_are_there(folders: &[PathBuf]) -> Result<()> {
    folders.iter().try_for_each(|folder| {
        let wrong = match folder {
            _ if !folder.is_dir() => "there is no such folder",
            _ if holds_targets(folder) => return Ok(()),
            _ if is_target(folder) => "this is a target; name the folder that it is in",
            _ => "no folder in it has a target.toml; see docs/targets.md",
        };
        bail!("--targets {}: {wrong}", folder.display())
    })
}

fn is_target(folder: &Path) -> bool {
    folder.join("target.toml").is_file()
}

fn holds_targets(folder: &Path) -> bool {
    let inside = fs::read_dir(folder).into_iter().flatten();
    inside.filter_map(Result::ok).any(|entry| is_target(&entry.path()))
}
