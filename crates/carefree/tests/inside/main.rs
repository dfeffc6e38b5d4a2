//! A library with fibers inside, loaded by programs that know nothing of them, and by one that has fibers itself:
//! the library's own waits park, its fibers have thread-local storage of their own, and the programs' calls and
//! threads stay what they are. All of it again under `carefree run`.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod with_fibers;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use carefree_testing::artifact::{build, preload};

/// Says that a process is a program that loads this library, and not the test.
const PROGRAM: &str = "CAREFREE_TEST_PROGRAM";

/// The library: the example of that name.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| build(&["carefree", "--example", "library"]).join("examples/liblibrary.so"))
}

fn host(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inside/hosts").join(name)
}

/// Runs a program that says `done` at its end if all was as it should be: as it is, and as `carefree run` does.
fn run(command: &[&OsStr]) {
    for carriers in [None, Some("1"), Some("2")] {
        let mut run = Command::new(command[0]);
        run.args(&command[1..]).env_remove("LD_PRELOAD").env(PROGRAM, library());
        if let Some(carriers) = carriers {
            run.env("LD_PRELOAD", preload()).env("CAREFREE_CARRIERS", carriers);
        }
        let output = run.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, errors) = (text(&output.stdout), text(&output.stderr));
        let told = format!("{carriers:?} {}\n{out}{errors}", output.status);
        assert!(output.status.success() && out.ends_with("done\n") && errors.is_empty(), "{told}");
    }
}

/// Whether a program is installed; if not, says so.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Compiles a source in C; `None` if there is no compiler.
fn compile(name: &str, program: PathBuf, flags: &[&str]) -> Option<PathBuf> {
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
    let Some(program) = compile("host.c", folder.path().join("host"), &["-ldl"]) else { return };
    run(&[program.as_os_str(), library().as_os_str()]);
    run(&[program.as_os_str(), OsStr::new("global"), library().as_os_str()]);
}

/// Two files with a copy of Carefree each.
#[test]
fn a_program_in_c_loads_two() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("host.c", folder.path().join("host"), &["-ldl"]) else { return };
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

#[test]
fn node_loads_one() {
    let folder = tempfile::tempdir().unwrap();
    let addon = folder.path().join("addon.node");
    let library = format!("-DLIBRARY=\"{}\"", library().display());
    let Some(addon) = compile("addon.c", addon, &["-shared", "-fPIC", &library]) else { return };
    if is_installed("node") {
        run(&[OsStr::new("node"), host("host.js").as_os_str(), addon.as_os_str()]);
    }
}
