//! `targets/verify`, with a lab, a compiler and programs that say what the test has them say.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// The interpreter itself: a version manager's shim would need programs that the test hides.
fn python() -> Option<PathBuf> {
    let said =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    Some(PathBuf::from(String::from_utf8(said.stdout).ok()?.trim()))
}

/// Runs it for Rust, PHP and Lua, of which only Rust is installed: the lab measures `lab` nanoseconds for everything,
/// and the program by hand `by_hand`.
fn verify(lab: u32, by_hand: u32) -> Option<Output> {
    let Some(python) = python() else {
        println!("skipped: python3 is not installed");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let carefree = folder.path().join("carefree");
    let row = |metric| format!("echo thread,{metric},{lab}");
    let rows = ["time_per_unit", "time_per_switch"].map(row).join("\n");
    script(&carefree, &format!("echo unit,metric,min\n{rows}"));
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).expect("a folder");
    // Its words are -O -o PROGRAM SOURCE.
    let compile = format!("printf '#!/bin/sh\\necho {by_hand}\\n' > \"$3\"\n/bin/chmod +x \"$3\"");
    script(&bin.join("rustc"), &compile);
    let verify = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../targets/verify");
    let mut command = Command::new(python);
    command.arg(verify).args(["--samples", "2", "--carefree"]).arg(&carefree);
    Some(command.args(["rust", "php", "lua"]).env("PATH", &bin).output().expect("started"))
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn figures_that_agree_are_counted_and_what_is_skipped_is_named_last() {
    let Some(output) = verify(140, 100) else { return };
    assert_eq!(
        last_line(&output),
        "2 figures compared, 0 off; 2 of 3 units skipped, as not installed: php fiber, lua coroutine",
        "{output:?}"
    );
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn figures_further_apart_than_half_are_off_whichever_is_larger() {
    for (lab, by_hand) in [(160, 100), (100, 160)] {
        let Some(output) = verify(lab, by_hand) else { return };
        let last = last_line(&output);
        assert!(last.starts_with("2 figures compared, 2 off; "), "{output:?}");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}
