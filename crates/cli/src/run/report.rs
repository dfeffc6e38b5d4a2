//! Whether the file of `--report` can be written, seen before the program starts: the library writes it at the
//! program's end, which may be hours away.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is in the way of a report, in a line. Nothing is opened or made: the file may be one that the program reads, or
/// a pipe.
pub(super) fn obstacle(path: &Path) -> Option<String> {
    let refused = |what: String| Some(format!("--report {}: {what}", path.display()));
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => refused("this is a folder; name a file in it".into()),
        Ok(_) => writable(path).err().and_then(|error| refused(error.to_string())),
        // A link to a file that is yet to be is followed when that is written.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            match folder.is_dir() {
                false => refused(format!("there is no folder {}", folder.display())),
                true => writable(folder).err().and_then(|error| {
                    refused(format!("no file can be made in {}: {error}", folder.display()))
                }),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => refused(error.to_string()),
    }
}

fn writable(path: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a NUL.
    match unsafe { libc::access(path.as_ptr(), libc::W_OK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
