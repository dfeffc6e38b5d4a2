//! Where `libcarefree.so` is.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carefree_settings::headers::Kind;

use super::elf;

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
        Some(place) => usable(place.canonicalize().unwrap_or_else(|_| place.clone())),
        None => Err(format!(
            "{NAME} is not beside this program, nor in ../lib ({}); `cargo build --release` makes both",
            folder.display()
        )),
    }
}

/// # Errors
/// Why the loader would leave it out, with a line of its own, and start the program.
fn usable(place: PathBuf) -> Result<PathBuf, String> {
    let shown = place.display();
    if place.as_os_str().as_bytes().iter().any(|byte| b" :$".contains(byte)) {
        return Err(format!(
            "{shown} cannot be preloaded: to the loader a space or a colon ends a path, and a dollar sign begins \
             a name; move it to a folder without them"
        ));
    }
    match elf::kind(&place) {
        Ok(Kind::Static | Kind::Dynamic) => Ok(place),
        Ok(_) => Err(format!(
            "{shown} is no library for this machine; `cargo build --release` makes one"
        )),
        Err(error) => Err(format!("{shown} cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_would_leave_out() {
        let folder = std::env::temp_dir().join(format!("carefree library {}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let place = folder.join(NAME);
        std::fs::copy(std::env::current_exe().unwrap(), &place).unwrap();
        assert!(usable(place).unwrap_err().contains("a space or a colon ends a path"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(
            usable("/etc/passwd".into()).unwrap_err().contains("is no library for this machine")
        );
        assert!(usable("/no-such-library".into()).unwrap_err().contains("cannot be read"));
        assert!(usable(std::env::current_exe().unwrap()).is_ok());
    }
}
