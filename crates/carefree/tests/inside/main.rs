//! A library with fibers inside, loaded by programs that know nothing of them: the library's own waits park, its
//! fibers have thread-local storage of their own, and the programs' calls and threads stay what they are.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library: the example of that name. Cargo does not build it for these tests, which do not link it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        // target/PROFILE/deps/test
        let folder = test.parent().and_then(Path::parent).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "carefree", "--example", "library"]);
        build.arg("--target-dir").arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
        folder.join("examples/liblibrary.so")
    })
}

fn host(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inside/hosts").join(name)
}

/// Runs a program that says `done` at its end if all was as it should be.
fn run(command: &[&OsStr]) {
    let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out == "done\n", "{}\n{out}{errors}", output.status);
    assert_eq!(errors, "");
}

/// Whether a program is installed; if not, says so.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Compiles a program in C; `None` if there is no compiler.
fn compile(name: &str, into: &Path, flags: &[&str]) -> Option<PathBuf> {
    let program = into.join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).args([&program, &host(name)]).args(flags);
    let Ok(compiled) = compiler.status() else {
        eprintln!("skipped: cc is not installed");
        return None;
    };
    assert!(compiled.success());
    Some(program)
}

#[test]
fn a_program_in_c_loads_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("host.c", folder.path(), &["-ldl"]) else { return };
    run(&[program.as_os_str(), library().as_os_str()]);
    run(&[program.as_os_str(), OsStr::new("global"), library().as_os_str()]);
}

/// Two files with a copy of Carefree each.
#[test]
fn a_program_in_c_loads_two() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("host.c", folder.path(), &["-ldl"]) else { return };
    let other = folder.path().join("other.so");
    std::fs::copy(library(), &other).unwrap();
    run(&[program.as_os_str(), library().as_os_str(), other.as_os_str()]);
}

#[test]
fn python_loads_one() {
    if is_installed("python3") {
        run(&[OsStr::new("python3"), host("host.py").as_os_str(), library().as_os_str()]);
    }
}

#[test]
fn ruby_loads_one() {
    if is_installed("ruby") {
        run(&[OsStr::new("ruby"), host("host.rb").as_os_str(), library().as_os_str()]);
    }
}
