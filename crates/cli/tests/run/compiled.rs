//! Small programs in C, for tests of what becomes of their threads.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Where a program is to be: in a folder that is removed when it is dropped.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    (folder, program)
}

/// Has `compiler` make `out` of the C source `text`, whose file lies beside it.
///
/// # Errors
/// When `compiler` is not installed.
pub(crate) fn compile_by(
    compiler: &str,
    text: &str,
    arguments: &[impl AsRef<OsStr>],
    out: &Path,
) -> io::Result<Output> {
    let source = out.with_extension("c");
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    command.arg("-pthread").arg("-o").arg(out).arg(&source).args(arguments);
    command.output()
}

/// [`compile_by`] `cc`, for a test that is skipped where that is not installed: then it is false, and a line says so.
pub(crate) fn compile(text: &str, arguments: &[impl AsRef<OsStr>], out: &Path) -> bool {
    let Ok(output) = compile_by("cc", text, arguments, out) else {
        eprintln!("skipped: cc is not installed");
        return false;
    };
    assert!(output.status.success(), "{output:?}");
    true
}

/// [`compile`] without further arguments.
pub(crate) fn compile_plainly(text: &str, out: &Path) -> bool {
    compile(text, &[""; 0], out)
}
