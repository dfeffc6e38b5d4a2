//! The program to run: where it is, and whether its threads can be fibers.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use carefree_settings::denied;
use carefree_settings::headers::{self, Kind};

use super::elf;
use super::rights;

/// A program that there is.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
}

/// What would become of its threads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fibers,
    /// They stay threads, because of this.
    Threads(String),
}

/// Programs that run other programs in the place of their own: what they run is looked at when it starts.
const DEPTH: usize = 4;

impl Program {
    /// Finds a program as a shell does.
    ///
    /// # Errors
    /// When there is none of that name, or it may not be executed.
    pub(crate) fn find(name: &OsStr) -> io::Result<Program> {
        if name.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the name of a program cannot be empty",
            ));
        }
        if name.as_bytes().contains(&b'/') {
            return Program::at(Path::new(name));
        }
        let folders = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
        let mut error = io::Error::new(io::ErrorKind::NotFound, "no such program in PATH");
        for folder in std::env::split_paths(&folders) {
            match Program::at(&folder.join(name)) {
                Ok(program) => return Ok(program),
                Err(other) if other.kind() == io::ErrorKind::NotFound => {}
                Err(other) => error = other,
            }
        }
        Err(error)
    }

    fn at(path: &Path) -> io::Result<Program> {
        let about = fs::metadata(path)?;
        if !about.is_file() || about.permissions().mode() & 0o111 == 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not executable"));
        }
        Ok(Program { path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that the kernel starts: an interpreter's, if this is a script.
    pub(crate) fn binary(&self) -> Option<PathBuf> {
        let mut path = self.path.clone();
        for _ in 0..DEPTH {
            match script(&start(&path.canonicalize().ok()?).ok()?) {
                Some(interpreter) => path = interpreter,
                None => return Some(path),
            }
        }
        None
    }

    /// What would become of its threads.
    pub(crate) fn verdict(&self) -> Verdict {
        match look(&self.path, DEPTH) {
            Ok(()) => Verdict::Fibers,
            Err(why) => Verdict::Threads(why),
        }
    }
}

/// # Errors
/// Why the threads of the program stay threads.
fn look(path: &Path, depth: usize) -> Result<(), String> {
    let told = |error: io::Error| format!("{} cannot be read: {error}", path.display());
    // (In a folder that was removed, no path is absolute.)
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(why) = denied::why(&name) {
        return Err(why.to_owned());
    }
    let about = fs::metadata(&real).map_err(told)?;
    if let Some(why) = rights::raised(&real, &about) {
        return Err(format!("{why}, and the loader ignores what users preload"));
    }
    if let Some(interpreter) = script(&start(&real).map_err(told)?) {
        if depth == 0 {
            return Err(format!("its interpreters are scripts, more than {DEPTH} in a row"));
        }
        // (If it is not there, the kernel refuses to start the script, and that is said.)
        return if interpreter.exists() { look(&interpreter, depth - 1) } else { Ok(()) };
    }
    match elf::kind(&real).map_err(told)? {
        Kind::Dynamic if elf::is_go(&real) => Err(denied::GO.to_owned()),
        Kind::Dynamic if elf::is_sanitized(&real) => Err(denied::SANITIZED.to_owned()),
        Kind::Dynamic if elf::needs_executable_stacks(&real) => Err(denied::EXECUTABLE.to_owned()),
        Kind::Dynamic => Ok(()),
        Kind::Sanitized => Err(denied::SANITIZED.to_owned()),
        Kind::Script | Kind::Unknown => {
            Err("it is no program that this machine's loader starts".to_owned())
        }
        Kind::OtherMachine => Err("it is for another kind of processor".to_owned()),
        // The loader itself, which starts a program that it is given.
        Kind::Static if name.starts_with("ld-linux") => Ok(()),
        Kind::Static => Err("it is linked statically, so nothing can be preloaded".to_owned()),
        Kind::OtherLibc => {
            let loader = elf::loader(&real).unwrap_or_default();
            Err(format!("its libc is not glibc (its loader is {})", loader.display()))
        }
    }
}

/// The first bytes of a file.
fn start(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(headers::START);
    File::open(path)?.take(headers::START as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// The interpreter of a script, by its first line.
fn script(start: &[u8]) -> Option<PathBuf> {
    headers::interpreter(start).map(|path| PathBuf::from(OsString::from_vec(path.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_this_machine() {
        let shell = Program::find(OsStr::new("sh")).unwrap();
        assert_eq!(shell.verdict(), Verdict::Fibers);
        assert!(Program::find(OsStr::new("no-such-program-here")).is_err());
        assert!(Program::find(OsStr::new("/etc/passwd")).is_err());
    }
}
