//! Folders of targets that were named.

use std::path::PathBuf;

/// Refuses a folder that is not there: what is in it would be missing without a word.
///
/// # Errors
/// One line that names it.
pub(crate) fn folders_are_there(folders: &[PathBuf]) -> Result<(), String> {
    match folders.iter().find(|folder| !folder.is_dir()) {
        Some(folder) => Err(format!("--targets {}: there is no such folder", folder.display())),
        None => Ok(()),
    }
}
