//! Compiling the programs of this folder, and comparing what they do on fibers with what they do on threads.

use std::ffi::OsStr;
use std::ops::Deref;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use carefree_testing::artifact::preload;
use tempfile::TempDir;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Runs a command natively, or as `carefree run` does, with so many carriers over a reactor (over the one of the
/// environment, or the default, where that is `None`).
pub(crate) fn run(command: &[&OsStr], fibers: Option<(u32, Option<&str>)>) -> Output {
    let mut run = Command::new(command[0]);
    run.args(&command[1..]).env_remove("LD_PRELOAD");
    if let Some((carriers, reactor)) = fibers {
        run.env("LD_PRELOAD", preload()).env("CAREFREE_CARRIERS", carriers.to_string());
        run.envs(reactor.map(|reactor| ("CAREFREE_REACTOR", reactor)));
    }
    run.output().unwrap()
}

/// Whether a command does on fibers what it does on threads.
pub(crate) fn compare(command: &[&OsStr]) {
    compare_over(command, &[(1, None), (2, None), (2, Some("epoll"))]);
}

/// Whether it does so with these carriers and reactors.
pub(crate) fn compare_over(command: &[&OsStr], hows: &[(u32, Option<&str>)]) {
    let native = run(command, None);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for &how in hows {
        let fibers = run(command, Some(how));
        let errors = text(&fibers.stderr);
        assert_eq!(text(&fibers.stdout), text(&native.stdout), "{how:?}: {errors}");
        let ends = |output: &Output| (output.status.code(), output.status.signal());
        assert_eq!(ends(&fibers), ends(&native), "{how:?}: {errors}");
        assert_eq!(errors, text(&native.stderr), "{how:?}");
    }
}

/// Compares a program in C.
pub(crate) fn compare_c(name: &str) {
    compare_compiled("cc", name);
}

/// Compares a program that `compiler` compiles.
pub(crate) fn compare_compiled(compiler: &str, name: &str) {
    if let Some(program) = compile(compiler, &[], name) {
        compare(&[program.as_os_str()]);
    }
}

/// Compares a program of an interpreter's.
pub(crate) fn compare_script(interpreter: &str, name: &str) {
    if Command::new(interpreter).arg("--version").output().is_err() {
        return eprintln!("skipped: {interpreter} is not installed");
    }
    compare(&[OsStr::new(interpreter), source(name).as_os_str()]);
}

/// A program that was compiled for one test.
pub(crate) struct Program {
    path: PathBuf,
    _folder: TempDir,
}

impl Deref for Program {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Compiles a program, if there is such a compiler.
pub(crate) fn compile(compiler: &str, options: &[&str], name: &str) -> Option<Program> {
    let folder = tempfile::tempdir().unwrap();
    let path = compile_into(&folder, compiler, "program", options, name)?;
    Some(Program { path, _folder: folder })
}

/// Compiles a program in C and its libraries, all from one file, in the order given: the name of each, and the options
/// that make it, in which `FOLDER` stands for the folder in which all of them lie. `None` if there is no compiler.
pub(crate) fn compile_parts<const N: usize>(
    name: &str,
    parts: [(&str, &[&str]); N],
) -> Option<(TempDir, [PathBuf; N])> {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = std::array::from_fn(|_| PathBuf::new());
    for (path, (part, options)) in paths.iter_mut().zip(parts) {
        *path = compile_into(&folder, "cc", part, options, name)?;
    }
    Some((folder, paths))
}

/// The options for a library that is [one of the parts](compile_parts).
pub(crate) const LIBRARY: &[&str] = &["-shared", "-fPIC", "-DLIBRARY"];

fn compile_into(
    folder: &TempDir,
    compiler: &str,
    part: &str,
    options: &[&str],
    name: &str,
) -> Option<PathBuf> {
    let path = folder.path().join(part);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut command = Command::new(compiler);
    command.args(["-O1", "-w", "-pthread", "-o"]).arg(&path).arg(source(name));
    // (After the source: what it refers to comes later on the linker's line.)
    let folder = folder.path().to_str().unwrap();
    command.args(options.iter().map(|option| option.replace("FOLDER", folder)));
    let Ok(compiled) = command.args(["-lrt", "-lutil", "-lm"]).status() else {
        eprintln!("skipped: {compiler} is not installed");
        return None;
    };
    assert!(compiled.success());
    Some(path)
}
