//! Where `libcarefree.so` is.

use std::path::{Path, PathBuf};

const NAME: &str = "libcarefree.so";

/// Finds the library beside this program, or where it is installed.
///
/// # Errors
/// When it is nowhere: a text that says where it was looked for.
pub(crate) fn find() -> Result<PathBuf, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("{NAME} is not found: {error}"))?;
    let program = program.canonicalize().unwrap_or(program);
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join(NAME),
        folder.join("../lib").join(NAME),
        folder.join("../lib/carefree").join(NAME),
    ];
    let found = places.iter().find(|place| place.is_file());
    match found {
        Some(place) => Ok(place.canonicalize().unwrap_or_else(|_| place.clone())),
        None => Err(format!(
            "{NAME} is not beside this program, nor in ../lib ({}); `cargo build --release` makes both",
            folder.display()
        )),
    }
}
